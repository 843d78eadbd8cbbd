//! `bellbird user remove`: removes a user, here and at the providers.

use anyhow::Context as _;
use bellbird_domain::User;
use bellbird_management::{Refusal, users};
use bellbird_storage::Storage;
use clap::Args;
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

pub(super) async fn run(
    settings: &Settings,
    storage: &Storage,
    args: &RemoveArgs,
) -> anyhow::Result<()> {
    let user = args.user.find(storage).await?;
    let connected = storage.connections();
    let connected = connected.list_after(None, Some(user.id), u32::MAX).await?;
    let is_still_connected = !connected.is_empty() && !args.connections;
    if is_still_connected && !args.removal.is_dry_run() {
        return Err(still_connected(&user, args));
    }
    // Names of institutions and of providers.
    let (mut connections, mut registrations) = (Vec::<String>::new(), Vec::<String>::new());
    if !args.local_only {
        connections.extend(connected.into_iter().map(|one| one.institution_name));
        let registered = storage.provider_users().list(user.id).await?;
        registrations.extend(registered.into_iter().map(|one| one.provider));
    }
    let keys = storage.keys().list(user.id).await?.len();
    let endpoints = storage.endpoints().list(user.id).await?.len();
    let plan = json!({
        "connections": connections,
        "stillConnected": is_still_connected,
        "keys": keys,
        "endpoints": endpoints,
        "registrations": registrations,
        "dryRun": true,
    });
    let description = output::details(&[
        ("id", &user.id),
        ("e-mail", &user.email),
        ("plan", &user.plan),
        ("withdraws", &output::or_none(connections.join(", "))),
        ("API keys", &keys),
        ("webhook endpoints", &endpoints),
        ("unregisters at", &output::or_none(registrations.join(", "))),
    ]);
    let plan = output::with_members(&user, plan);
    if !args.removal.confirm(&plan, &description)? {
        if is_still_connected && !output::is_json() {
            output::note(&format!(
                "The removal would fail: {}.",
                still_connected(&user, args)
            ));
        }
        return Ok(());
    }
    if !connections.is_empty() {
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
    users::begin_removal(&mut change, user.id).await?;
    change.commit().await?;
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
