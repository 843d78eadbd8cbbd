//! `bellbird webhook`: manages the webhook endpoints of users and of the installation, and their
//! deliveries.

pub(super) mod add;
pub(super) mod advice;
mod log;
mod ping;
mod redeliver;
mod remove;
mod set;
mod state;

use bellbird_domain::{EndpointId, EventId, EventType, UserId};
use bellbird_management::Refusal;
use bellbird_management::deliveries::user_of_event;
use bellbird_management::endpoints::require_events_of;
use bellbird_storage::{Endpoint, Storage};
use clap::{Args, Subcommand};
use serde_json::json;

use super::arguments::{self, SettingArgs};
use super::output::{self, format_instant};
use super::user::{UserFilter, find_user};
use crate::failure::Failure;
use crate::instances;
use crate::wiring;

/// Manage webhook endpoints and their deliveries.
#[derive(Subcommand)]
pub(super) enum WebhookCommand {
    Add(add::AddArgs),
    Set(set::SetArgs),
    /// List endpoints, without their secrets.
    #[command(after_long_help = "Example:
  bellbird webhook list --user me@example.com")]
    List(UserFilter),
    /// Show one endpoint, without its secret.
    #[command(after_long_help = "Example:
  bellbird webhook show 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
    Show(EndpointArgs),
    /// Send a test event to an endpoint.
    ///
    /// The event has the type `endpoint.ping` and no rows. This command sends it once, without
    /// retries, even to a disabled endpoint. Only the delivery log records it. Exits with status 1
    /// if the endpoint does not accept the event.
    #[command(after_long_help = "Example:
  bellbird webhook ping 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
    Ping(EndpointArgs),
    /// Create a new signing secret for an endpoint; the old one stays valid for 24 hours.
    ///
    /// For 24 hours, each event has two signatures and verifies with either secret. The new secret
    /// is shown only once. Rotating twice within 24 hours ends the oldest of the three secrets
    /// within a minute.
    #[command(after_long_help = "Example:
  bellbird webhook rotate-secret 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
    RotateSecret(EndpointArgs),
    /// Enable a disabled endpoint.
    ///
    /// Deliveries that failed while the endpoint was disabled are not sent automatically. The
    /// command prints their number and the command that recovers them.
    #[command(after_long_help = "Example:
  bellbird webhook enable 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
    Enable(EndpointArgs),
    /// Disable an endpoint: stop deliveries until it is enabled again.
    ///
    /// Pending deliveries fail, and so do later ones. After enabling the endpoint, recover them
    /// with `bellbird webhook recover`.
    #[command(after_long_help = "Example:
  bellbird webhook disable 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
    Disable(EndpointArgs),
    Remove(remove::RemoveArgs),
    Deliveries(log::DeliveriesArgs),
    Redeliver(redeliver::RedeliverArgs),
    Recover(redeliver::RecoverArgs),
}

/// The stored error of an attempt whose status says more.
const REJECTED: &str = "rejected";

/// The endpoint that a command is about.
#[derive(Args)]
pub(super) struct EndpointArgs {
    /// Id of the endpoint, as `webhook list` shows it
    #[arg(value_parser = arguments::endpoint_id)]
    id: EndpointId,
}

impl EndpointArgs {
    async fn find(&self, storage: &Storage) -> anyhow::Result<Endpoint> {
        let found = storage.endpoints().find_any(self.id).await?;
        found.ok_or_else(|| endpoint_not_found(self.id))
    }
}

/// Whose events a command is about, at an endpoint of the installation.
#[derive(Args)]
struct EventUserArgs {
    /// E-mail address or id of the user, if the endpoint gets the events of all users
    #[arg(long)]
    user: Option<String>,
}

impl EventUserArgs {
    /// Their user, or the installation: all users.
    async fn find_or_all(&self, storage: &Storage, endpoint: &Endpoint) -> anyhow::Result<UserId> {
        let Some(given) = &self.user else {
            return Ok(endpoint.user_id);
        };
        let user = match find_user(storage, given).await {
            Ok(user) => user.id,
            // Events that are not delivered outlive their user.
            Err(unknown) if endpoint.user_id == UserId::INSTALLATION => {
                given.parse().map_err(|_| unknown)?
            }
            Err(unknown) => return Err(unknown),
        };
        user_of_event(endpoint, Some(user)).map_err(|_| {
            Failure::not_found(format!(
                "the endpoint {} belongs to another user",
                endpoint.id
            ))
        })
    }

    async fn find(&self, storage: &Storage, endpoint: &Endpoint) -> anyhow::Result<UserId> {
        match self.find_or_all(storage, endpoint).await? {
            UserId::INSTALLATION => anyhow::bail!(
                "the endpoint gets the events of all users: name one with --user, as `bellbird webhook deliveries {}` \
                 shows them",
                endpoint.id
            ),
            user => Ok(user),
        }
    }
}

fn status(endpoint: &Endpoint) -> String {
    match (&endpoint.disabled_reason, endpoint.failing_since) {
        (Some(reason), _) if endpoint.is_paused() => format!("{} ({reason})", endpoint.status),
        (Some(reason), _) => format!("{} by the service ({reason})", endpoint.status),
        (None, Some(since)) => format!(
            "{} (failing since {})",
            endpoint.status,
            format_instant(since)
        ),
        (None, None) => endpoint.status.to_string(),
    }
}

fn row(endpoint: &Endpoint) -> [String; 6] {
    output::row![
        endpoint.url,
        names(&endpoint.event_types),
        status(endpoint),
        format_instant(endpoint.delivered_at),
        format_instant(endpoint.created_at),
        endpoint.id,
    ]
}

/// Whose events an endpoint gets.
async fn user_of(storage: &Storage, endpoint: &Endpoint) -> anyhow::Result<Option<String>> {
    if endpoint.user_id == UserId::INSTALLATION {
        return Ok(Some("all users".to_owned()));
    }
    Ok(storage
        .users()
        .find(endpoint.user_id)
        .await?
        .map(|user| user.email))
}

/// All about an endpoint, with its user unless that one was removed meanwhile.
fn details(endpoint: &Endpoint, user: Option<&str>) -> String {
    output::details(&[
        ("id", &endpoint.id),
        ("user", &output::or_dash(user)),
        ("url", &endpoint.url),
        ("events", &names(&endpoint.event_types)),
        ("API version", &endpoint.api_version),
        ("status", &status(endpoint)),
        ("delivered", &format_instant(endpoint.delivered_at)),
        ("created", &format_instant(endpoint.created_at)),
    ])
}

pub(super) async fn run(settings: &SettingArgs, command: WebhookCommand) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let storage = match &command {
        WebhookCommand::Add(_) | WebhookCommand::Ping(_) | WebhookCommand::RotateSecret(_) => {
            wiring::open_sealed_storage(&settings).await?
        }
        _ => wiring::open_storage(&settings).await?,
    };
    let result = match command {
        WebhookCommand::Add(args) => add::add(&settings, &storage, &args).await,
        WebhookCommand::Set(args) => set::set(&settings, &storage, &args).await,
        WebhookCommand::List(args) => list(&storage, &args).await,
        WebhookCommand::Show(args) => show(&storage, &args).await,
        WebhookCommand::Ping(args) => ping::ping(&settings, &storage, &args).await,
        WebhookCommand::RotateSecret(args) => add::rotate_secret(&storage, &args).await,
        WebhookCommand::Enable(args) => state::enable(&storage, &args).await,
        WebhookCommand::Disable(args) => state::disable(&storage, &args).await,
        WebhookCommand::Remove(args) => remove::remove(&storage, &args).await,
        WebhookCommand::Deliveries(args) => log::deliveries(&storage, &args).await,
        WebhookCommand::Redeliver(args) => redeliver::redeliver(&storage, &args).await,
        WebhookCommand::Recover(args) => redeliver::recover(&storage, &args).await,
    };
    storage.close().await;
    result
}

async fn list(storage: &Storage, args: &UserFilter) -> anyhow::Result<()> {
    let endpoints = match args.find(storage).await? {
        Some(user) => storage.endpoints().list(user.id).await?,
        None => storage.endpoints().list_all().await?,
    };
    let none = "No endpoints yet. Add one with `bellbird webhook add --user USER --url URL`.";
    let head = ["url", "events", "status", "delivered", "created", "id"];
    let disabled: Vec<_> = endpoints.iter().filter_map(advice::disabled).collect();
    output::print_list(&endpoints, none, head, row, &disabled)
}

async fn show(storage: &Storage, args: &EndpointArgs) -> anyhow::Result<()> {
    let endpoint = args.find(storage).await?;
    let user = user_of(storage, &endpoint).await?;
    let shown = output::with_members(&endpoint, json!({"user": user}));
    output::print(&shown, |_| details(&endpoint, user.as_deref()))
}

/// Also for an endpoint that another process removed during this command.
fn endpoint_not_found(id: EndpointId) -> anyhow::Error {
    Failure::unknown_id("endpoint", id, "webhook list")
}

fn event_not_found(endpoint: EndpointId, event: EventId) -> anyhow::Error {
    Failure::not_found(format!(
        "there is no event {event} for this endpoint: `bellbird webhook deliveries {endpoint}` shows the ids"
    ))
}

/// Rejects event types that are for endpoints of the installation only.
fn check_events(owner: UserId, events: Option<&[EventType]>) -> anyhow::Result<()> {
    require_events_of(owner, events).map_err(|refusal| match refusal {
        Refusal::ForAllUsersOnly(event) => {
            anyhow::anyhow!("{event} goes to endpoints for all users only: leave it out")
        }
        other => other.into(),
    })
}

/// The error of an operation on an endpoint, which another process may have removed meanwhile.
fn endpoint_error(id: EndpointId, refusal: Refusal) -> anyhow::Error {
    match refusal {
        Refusal::NotFound(_) => endpoint_not_found(id),
        other => other.into(),
    }
}

fn names(events: &[EventType]) -> String {
    events
        .iter()
        .map(|event| event.as_str())
        .collect::<Vec<_>>()
        .join(",")
}

/// Warns if a running instance rejects the URL of an endpoint.
async fn warn_of_rejections(storage: &Storage, endpoint: &Endpoint) -> anyhow::Result<()> {
    for warning in advice::rejections(&instances::running(storage).await?, endpoint) {
        output::note(&warning);
    }
    Ok(())
}
