//! `bellbird user remove`: removes a user, here and at the providers.

use anyhow::Context as _;
use bellbird_domain::User;
use bellbird_management::{Refusal, users};
use bellbird_storage::Storage;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::super::ask::RemovalArgs;
use super::super::{actor, output};
use super::UserRef;
use crate::config::Settings;
use crate::wiring::Wiring;

/// Remove a user with all API keys and webhook endpoints. Remove the user's connections first.
///
/// The command shows what it removes, and asks. If linking in the browser registered the user at a
/// provider, the registration is removed there too. With --connections, the connections need not be
/// removed first: all access of the user ends at once, and a running service withdraws the consents
/// before it removes the user.
#[derive(Args)]
#[command(override_usage = "bellbird user remove [OPTIONS] <USER>")]
#[command(after_long_help = "Examples:
  bellbird user remove me@example.com --dry-run
  bellbird user remove me@example.com")]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    user: UserRef,

    /// Remove the user only here and keep the registrations at providers. Use it when a provider is
    /// permanently unreachable, or when the master key of a registration is lost
    #[arg(long)]
    local_only: bool,

    /// Remove the user's connections too, and withdraw their consents
    #[arg(long, conflicts_with = "local_only")]
    connections: bool,

    #[command(flatten)]
    removal: RemovalArgs,
}

/// What `--dry-run --json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PlannedRemoval<'a> {
    #[serde(flatten)]
    user: &'a User,
    /// Names of the institutions whose consents are withdrawn first.
    connections: Vec<String>,
    /// Whether the removal fails, because connections are left that it does not remove.
    still_connected: bool,
    keys: usize,
    endpoints: usize,
    /// Names of the providers.
    registrations: Vec<String>,
    dry_run: bool,
}

pub(super) async fn run(
    settings: &Settings,
    storage: &Storage,
    args: &RemoveArgs,
) -> anyhow::Result<()> {
    let user = args.user.find(storage).await?;
    let plan = plan(storage, &user, args).await?;
    if plan.still_connected && !args.removal.is_dry_run() {
        return Err(still_connected(&user, args));
    }
    if !args.removal.confirm(&plan, &describe(&plan))? {
        if plan.still_connected && !output::is_json() {
            output::note(&format!(
                "The removal would fail: {}.",
                still_connected(&user, args)
            ));
        }
        return Ok(());
    }
    if !plan.connections.is_empty() {
        return begin(storage, &user).await;
    }
    remove(settings, storage, args, &user).await?;
    output::print_done(&user, |user| {
        format!(
            "Removed {} with all keys and webhook endpoints.",
            user.email
        )
    })
}

/// Removes what lets the user in. The service removes the connections, and then the user.
async fn begin(storage: &Storage, user: &User) -> anyhow::Result<()> {
    let mut change = actor::begin_change(storage).await?;
    if users::begin_removal(&mut change, user.id).await? {
        change.commit().await?;
    } else {
        drop(change);
    }
    // The service has to complete it.
    let view = output::with_members(user, json!({"pending": true}));
    output::print_done(&view, |_| {
        format!(
            "All access of {0} has ended. A running service withdraws the consents and then removes {0}; `bellbird \
             connection list` shows what is left.",
            user.email
        )
    })
}

async fn plan<'a>(
    storage: &Storage,
    user: &'a User,
    args: &RemoveArgs,
) -> anyhow::Result<PlannedRemoval<'a>> {
    let registered = if args.local_only {
        Vec::new()
    } else {
        storage.provider_users().list(user.id).await?
    };
    let connections = storage.connections();
    let mut connections = connections
        .list_after(None, Some(user.id), u32::MAX)
        .await?;
    let still_connected = !connections.is_empty() && !args.connections;
    if args.local_only {
        connections.clear();
    }
    Ok(PlannedRemoval {
        user,
        connections: connections
            .into_iter()
            .map(|connection| connection.institution_name)
            .collect(),
        still_connected,
        keys: storage.keys().list(user.id).await?.len(),
        endpoints: storage.endpoints().list(user.id).await?.len(),
        registrations: registered
            .into_iter()
            .map(|registration| registration.provider)
            .collect(),
        dry_run: true,
    })
}

fn describe(plan: &PlannedRemoval<'_>) -> String {
    output::details(&[
        ("id", &plan.user.id),
        ("e-mail", &plan.user.email),
        ("plan", &plan.user.plan),
        ("withdraws", &output::or_none(plan.connections.join(", "))),
        ("API keys", &plan.keys),
        ("webhook endpoints", &plan.endpoints),
        (
            "unregisters at",
            &output::or_none(plan.registrations.join(", ")),
        ),
    ])
}

async fn remove(
    settings: &Settings,
    storage: &Storage,
    args: &RemoveArgs,
    user: &User,
) -> anyhow::Result<()> {
    let connections = Wiring::new(settings, storage).await?.connections(None);
    let prepared = users::prepare_removal(storage, &connections, user.id, args.local_only).await;
    match prepared {
        Err(Refusal::StillConnected) => return Err(still_connected(user, args)),
        other => other.with_context(|| {
            format!(
                "{} could not be unregistered at a provider (use --local-only to remove the user only here)",
                user.email
            )
        })?,
    }
    let mut change = actor::begin_change(storage).await?;
    match users::remove(&mut change, user.id).await {
        Err(Refusal::StillConnected) => return Err(still_connected(user, args)),
        other => other?,
    }
    Ok(change.commit().await?)
}

fn still_connected(user: &User, args: &RemoveArgs) -> anyhow::Error {
    let advice = if args.local_only {
        "ID --local-only` removes each only here".to_owned()
    } else {
        format!(
            "ID` withdraws the consent of each. `bellbird user remove {} --connections` removes all of it",
            user.email
        )
    };
    anyhow::anyhow!(
        "{0} still has connections: `bellbird connection list --user {0}` shows them, and `bellbird connection remove \
         {advice}",
        user.email
    )
}
