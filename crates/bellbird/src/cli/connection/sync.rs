//! `bellbird connection sync`: syncs one connection or all of them, and waits for the result.

use std::collections::BTreeSet;

use anyhow::bail;
use bellbird_connections::{Connections, ConnectionsError, SyncReport};
use bellbird_domain::{Connection, ConnectionId, ConnectionStatus};
use bellbird_management::connections;
use bellbird_storage::Storage;
use clap::{ArgGroup, Args};
use futures_util::stream::{self, StreamExt as _};
use serde_json::json;

use super::super::output::{self, ErrorView, Progress};
use super::super::user::find_user;
use super::super::webhook::advice;
use super::super::{actor, arguments};
use super::find;

/// Connections that are synced concurrently.
const CONCURRENCY_MAX: usize = 4;

/// Sync connections now and create webhook events for new and changed rows.
///
/// A sync refreshes the accounts and the status of a connection, and reads its recent transactions
/// or trades. It stores keyed hashes of these rows to recognise new and changed ones later. A
/// running service delivers the events to the user's webhook endpoints.
///
/// The command waits until the syncs are finished. If the service is already syncing a connection,
/// the command waits for that sync first. It exits with status 1 if a sync fails or if the
/// connection ID is not active. With --all or --user, inactive connections are only reported.
#[derive(Args)]
#[command(override_usage = "bellbird connection sync <ID>
       bellbird connection sync --user <USER>
       bellbird connection sync --all")]
#[command(group(ArgGroup::new("target").args(["id", "user", "all"]).required(true).multiple(true)))]
#[command(after_long_help = "Examples:
  bellbird connection sync 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f
  bellbird connection sync --user me@example.com")]
pub(crate) struct SyncArgs {
    /// Id of the connection, as `connection list` shows it
    #[arg(value_parser = arguments::connection_id, conflicts_with_all = ["user", "all"])]
    id: Option<ConnectionId>,

    /// Sync all connections of all users, or with --user all of that user
    #[arg(long)]
    all: bool,

    /// Sync the connections of this user: e-mail address or id
    #[arg(long)]
    user: Option<String>,
}

pub(super) async fn run(
    storage: &Storage,
    connections: &Connections,
    args: &SyncArgs,
) -> anyhow::Result<()> {
    let mut targets = match (args.id, &args.user) {
        (Some(id), _) => vec![find(storage, id).await?],
        (None, Some(user)) => {
            storage
                .connections()
                .list(find_user(storage, user).await?.id)
                .await?
        }
        (None, None) => storage.connections().list_all().await?,
    };
    if let (Some(id), [one]) = (args.id, &targets[..])
        && one.status == ConnectionStatus::Deleting
    {
        bail!("connection {id} is being removed and cannot be synced");
    }
    targets.retain(|one| one.status != ConnectionStatus::Deleting);
    for one in &targets {
        let mut change = actor::begin_change(storage).await?;
        connections::record_sync(&mut change, one).await?;
        change.commit().await?;
    }
    let synced = sync_all(connections, &targets).await;

    let (mut done, mut errors) = (Vec::new(), Vec::new());
    for (connection, synced) in targets.iter().zip(&synced) {
        let name = &connection.institution_name;
        match synced {
            Ok(report) => {
                done.push((connection, report));
                if report.status != ConnectionStatus::Active {
                    let text = format!(
                        "{name} ({}) is {} and was not synced: run `bellbird connection link --reconnect {}`",
                        connection.id, report.status, connection.id
                    );
                    if args.id.is_some() {
                        errors.push(text);
                    } else {
                        output::note(&text);
                    }
                }
            }
            // The connection was removed meanwhile.
            Err(ConnectionsError::NotFound) if args.id.is_none() => {}
            Err(error) => errors.push(format!(
                "{name} ({}) could not be synced: {error}",
                connection.id
            )),
        }
    }
    let reports: Vec<_> = done.iter().map(|(_, report)| *report).collect();
    match ErrorView::of(&errors) {
        Some(error) if output::is_json() => {
            let failed = json!({"error": error, "synced": reports});
            output::print(&failed, |_| String::new())?;
        }
        _ if targets.is_empty() => {
            output::print_done(&reports, |_| "No connections to sync.".to_owned())?;
        }
        _ => output::print(&reports, |_| text(&done))?,
    }
    if !output::is_json() {
        note_undelivered(storage, &done).await?;
    }
    output::finish(&errors)
}

/// Says which endpoints will not get the events of these syncs.
async fn note_undelivered(
    storage: &Storage,
    done: &[(&Connection, &SyncReport)],
) -> anyhow::Result<()> {
    let changed = done
        .iter()
        .filter(|(_, report)| report.new_count + report.updated_count > 0);
    let users: BTreeSet<_> = changed.map(|(connection, _)| connection.user_id).collect();
    for user in users {
        for obstacle in advice::obstacles(storage, user).await? {
            output::note(&obstacle);
        }
    }
    Ok(())
}

/// Syncs a few connections at a time. Returns the results in the order of `targets`.
async fn sync_all(
    connections: &Connections,
    targets: &[Connection],
) -> Vec<Result<SyncReport, ConnectionsError>> {
    let mut progress = Progress::new("connections synced", targets.len() as u64);
    progress.add(0);
    let syncs = targets.iter().enumerate().map(|(at, one)| async move {
        let result = connections.syncs().run(one.user_id, one.id).await;
        (at, result)
    });
    // Unordered, so that a slow sync holds up no others.
    let mut synced: Vec<_> = stream::iter(syncs)
        .buffer_unordered(CONCURRENCY_MAX)
        .inspect(|_| progress.add(1))
        .collect()
        .await;
    synced.sort_unstable_by_key(|(at, _)| *at);
    synced.into_iter().map(|(_, result)| result).collect()
}

fn text(done: &[(&Connection, &SyncReport)]) -> String {
    let rows = done.iter().map(|(connection, report)| {
        output::row![
            connection.institution_name,
            report.status,
            report.new_count,
            report.updated_count,
            report.events,
            report.connection_id,
        ]
    });
    output::table(
        ["institution", "status", "new", "updated", "events", "id"],
        rows,
    )
}
