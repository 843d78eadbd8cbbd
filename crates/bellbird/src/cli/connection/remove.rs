//! `bellbird connection remove`: withdraws the consent of a connection at its provider and deletes
//! its data.

use bellbird_api::v1::{AccountView, ConnectionView};
use bellbird_connections::{Connections, Removal};
use bellbird_domain::{Account, Connection, ConnectionId};
use bellbird_storage::Storage;
use clap::Args;
use serde_json::json;

use super::super::ask::RemovalArgs;
use super::super::output::{self, ErrorView};
use super::super::{actor, arguments};
use super::{email_of, find};

/// Remove a connection: withdraw its consent at the provider and delete its data.
///
/// The command shows what it removes, and asks. The connection is hidden immediately. If its
/// consent cannot be withdrawn now, the command prints the error and exits with status 1. A running
/// service then retries until it succeeds, and `connection list` shows the pending removal. Run the
/// command again to retry immediately.
#[derive(Args)]
#[command(after_long_help = "Examples:
  bellbird connection remove 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f --dry-run
  bellbird connection remove 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(crate) struct RemoveArgs {
    /// Id of the connection, as `connection list` shows it
    #[arg(value_parser = arguments::connection_id)]
    id: ConnectionId,

    /// Remove the connection only here; the consent stays active until the user withdraws it at the
    /// provider. Use it when a provider is permanently unreachable, or when the master key of the
    /// credentials is lost
    #[arg(long)]
    local_only: bool,

    #[command(flatten)]
    removal: RemovalArgs,
}

pub(super) async fn run(
    storage: &Storage,
    connections: &Connections,
    args: &RemoveArgs,
) -> anyhow::Result<()> {
    let connection = find(storage, args.id).await?;
    let user = email_of(storage, connection.user_id).await?;
    let accounts = storage
        .accounts()
        .list_of_connection(connection.user_id, connection.id)
        .await?;
    let description = describe(&connection, &user, &accounts, args.local_only);
    let plan = json!({
        "user": user,
        "accounts": accounts.iter().map(AccountView::from).collect::<Vec<_>>(),
        "dryRun": true,
        "withdrawsConsent": !args.local_only,
    });
    let plan = output::with_members(ConnectionView::from(&connection), plan);
    if !args.removal.confirm(&plan, &description)? {
        return Ok(());
    }
    remove(storage, connections, args, &connection).await
}

fn describe(connection: &Connection, user: &str, accounts: &[Account], local_only: bool) -> String {
    let name = |account: &Account| match &account.number {
        Some(number) => format!("{} {}", account.name, number.as_str()),
        None => account.name.clone(),
    };
    let names = accounts.iter().map(name).collect::<Vec<_>>().join(", ");
    let withdrawn = if local_only {
        "nothing: the consent stays active until the user withdraws it at the provider".to_owned()
    } else {
        format!("the consent at {}", connection.provider)
    };
    output::details(&[
        ("id", &connection.id),
        ("user", &user),
        ("institution", &connection.institution_name),
        ("status", &connection.status),
        ("accounts", &output::or_none(names)),
        ("withdraws", &withdrawn),
        (
            "deletes",
            &"the connection, its accounts, its fingerprints and its webhook events",
        ),
    ])
}

async fn remove(
    storage: &Storage,
    connections: &Connections,
    args: &RemoveArgs,
    connection: &Connection,
) -> anyhow::Result<()> {
    // Hidden with its row in the audit, whatever becomes of the rest. A repeated command finds it
    // hidden.
    let mut change = actor::begin_change(storage).await?;
    if bellbird_management::connections::remove(&mut change, connection).await? {
        change.commit().await?;
    } else {
        drop(change);
    }
    let outcome = if args.local_only {
        connections.removals().remove_locally(args.id).await?
    } else {
        connections.removals().remove(args.id).await?
    };
    let name = &connection.institution_name;
    let (mut pending, mut error) = (None, None);
    if let Removal::Waiting {
        reason,
        next_attempt_at,
    } = &outcome
    {
        pending = storage.removals().find(connection.user_id, args.id).await?;
        let retry_at = match next_attempt_at {
            Some(next) => format!("at {}", output::format_instant(*next)),
            None => "in a few minutes".to_owned(),
        };
        error = Some(format!(
            "the connection to {name} is hidden, but its consent is not withdrawn yet: {reason}. A running service \
             retries {retry_at} and until it succeeds; `bellbird connection list` shows the pending removal"
        ));
    }
    let removed = outcome == Removal::Done;
    let consent_withdrawn = removed && !args.local_only;
    let mut outcome = json!({"removed": removed, "consentWithdrawn": consent_withdrawn});
    if let Some(pending) = &pending {
        outcome["removal"] = json!(pending);
    }
    if let Some(error) = ErrorView::of(error.as_slice()) {
        outcome["error"] = json!(error);
    }
    let shown = pending
        .as_ref()
        .map_or(connection, |pending| &pending.connection);
    let view = output::with_members(ConnectionView::from(shown), outcome);
    if removed || output::is_json() {
        output::print_done(&view, |_| {
            if args.local_only {
                format!(
                    "Removed the connection to {name} here. Its consent stays active until the user withdraws it at \
                     the provider."
                )
            } else {
                format!("Removed the connection to {name}.")
            }
        })?;
    }
    output::finish(error.as_slice())
}
