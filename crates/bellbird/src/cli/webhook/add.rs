//! `bellbird webhook add` and `rotate-secret`: add an endpoint, or replace its signing secret, and
//! print the secret.

use anyhow::bail;
use bellbird_domain::{ApiVersion, EventType, User, UserId};
use bellbird_management::Refusal;
use bellbird_management::endpoints::{self, CreatedEndpoint, NewEndpoint};
use bellbird_storage::Storage;
use bellbird_webhooks::endpoint::{ENDPOINTS_MAX, EndpointUrl, EndpointUrlError, in_order};
use clap::{ArgGroup, Args};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::super::user::find_optional_user;
use super::super::{actor, arguments, output};
use super::{EndpointArgs, advice, check_events, endpoint_error, names, warn_of_rejections};
use crate::config::Settings;

/// Add a webhook endpoint: a URL that receives the events of a user, or of all users.
///
/// With --all-users, the endpoint belongs to the installation. It gets the events of everyone, also
/// of users who come later, each with the user's id and the operator's reference in `metadata`.
///
/// The URL must use https, a public host name, and port 443 or a port from 1024 on. Events are
/// signed as Standard Webhooks specifies, with a secret of the endpoint that is shown only once.
/// There can be 20 endpoints of a user, and 20 for all.
#[derive(Args)]
#[command(group(ArgGroup::new("owner").args(["user", "all_users"]).required(true).multiple(true)))]
#[command(
    override_usage = "bellbird webhook add --url <URL> --user <USER> [--events <LIST>] [--api-version <VERSION>]
       bellbird webhook add --url <URL> --all-users [--events <LIST>] [--api-version <VERSION>]"
)]
#[command(after_long_help = "Examples:
  bellbird webhook add --user me@example.com --url https://hooks.example.com/bellbird
  bellbird webhook add --user me@example.com --url https://hooks.example.com/bellbird \\
    --events transactions.synced,trades.synced,connection.updated
  bellbird webhook add --all-users --url https://hooks.example.com/bellbird")]
pub(crate) struct AddArgs {
    /// E-mail address or id of the user
    #[arg(long, conflicts_with = "all_users")]
    user: Option<String>,

    /// Send the events of all users
    #[arg(long)]
    all_users: bool,

    /// URL of the endpoint
    #[arg(long)]
    url: String,

    /// Event types to send, separated by commas; those of a connection report that it is new,
    /// changed, removed, or that its consent ends soon [default: transactions.synced,trades.synced;
    /// with --all-users all types]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = arguments::one_of(EventType::SUBSCRIBABLE, EventType::as_str))]
    events: Option<Vec<EventType>>,

    /// Version of the events' body; from 2026-12-01 on, rows have their key and exact amount, and
    /// removed rows are reported [default: 2026-11-01; with --all-users 2026-12-01]
    #[arg(long, value_name = "VERSION")]
    #[arg(value_parser = arguments::one_of(ApiVersion::ALL, ApiVersion::as_str))]
    api_version: Option<ApiVersion>,
}

pub(super) async fn add(
    settings: &Settings,
    storage: &Storage,
    args: &AddArgs,
) -> anyhow::Result<()> {
    let user = find_optional_user(storage, args.user.as_deref()).await?;
    let owner = user.as_ref().map_or(UserId::INSTALLATION, |user| user.id);
    let events = args.events.as_deref().map(in_order);
    check_events(owner, events.as_deref())?;
    let url = checked_url(settings, &args.url).await?;
    let created = insert(
        storage,
        user.as_ref(),
        &url,
        events.as_deref(),
        args.api_version,
    )
    .await?;
    let (endpoint, secret) = (&created.endpoint, created.secret.expose_secret());
    let (id, events) = (endpoint.id, &endpoint.event_types);
    // The only time that the secret is shown.
    let view = json!({
        "id": id,
        "url": endpoint.url,
        "events": events,
        "secret": secret,
        "apiVersion": endpoint.api_version,
        "status": endpoint.status,
    });
    let advice = format!(
        "Store this secret: it is not shown again. The receiver verifies event signatures with it; see \
         docs/webhooks.md.\nThe endpoint {id} receives {}.\n\nNext: `bellbird webhook ping {id}`",
        names(events)
    );
    output::print_with_note(&view, secret, &advice)?;
    if let Some(unresolved) = url.unresolved {
        output::note(&format!(
            "{unresolved}. The endpoint was added; each delivery resolves the name again"
        ));
    }
    warn_of_rejections(storage, endpoint).await
}

/// Adds an endpoint of a user or for all users. The URL is what [`checked_url`] returned.
pub(crate) async fn insert(
    storage: &Storage,
    user: Option<&User>,
    url: &EndpointUrl,
    events: Option<&[EventType]>,
    api_version: Option<ApiVersion>,
) -> anyhow::Result<CreatedEndpoint> {
    let new = NewEndpoint {
        user_id: user.map_or(UserId::INSTALLATION, |user| user.id),
        url,
        events,
        api_version,
    };
    let mut change = actor::begin_change(storage).await?;
    let created = match endpoints::create(&mut change, new).await {
        Err(Refusal::TooManyEndpoints) => bail!(
            "{} already has {ENDPOINTS_MAX} endpoints, which is the limit: `bellbird webhook list{}` shows them, and \
             `bellbird webhook remove ID` removes one",
            user.map_or("the installation", |user| &user.email),
            user.map_or_else(String::new, |user| format!(" --user {}", user.email))
        ),
        other => other?,
    };
    change.commit().await?;
    Ok(created)
}

/// Checks the URL of an endpoint, and says what to do about it.
pub(crate) async fn checked_url(settings: &Settings, url: &str) -> anyhow::Result<EndpointUrl> {
    EndpointUrl::check(url, settings.webhooks.rules)
        .await
        .map_err(|error| match error {
            EndpointUrlError::Target(error) => anyhow::Error::msg(advice::explain(error, url)),
            other => other.into(),
        })
}

pub(super) async fn rotate_secret(storage: &Storage, args: &EndpointArgs) -> anyhow::Result<()> {
    let mut change = actor::begin_change(storage).await?;
    let rotated = endpoints::rotate_secret(&mut change, args.id).await;
    let rotated = rotated.map_err(|refusal| endpoint_error(args.id, refusal))?;
    change.commit().await?;
    let (secret, old_expires_at) = (rotated.secret.expose_secret(), rotated.old_expires_at);
    let old = match old_expires_at {
        Some(until) => format!(
            "The old one stays valid until {}.",
            output::format_instant(until)
        ),
        None => "The old one could not be opened and was deleted.".to_owned(),
    };
    output::print_with_note(
        &json!({"id": args.id, "secret": secret, "oldSecretExpiresAt": old_expires_at}),
        secret,
        &format!("Store this secret: it is not shown again. {old}"),
    )
}
