//! `bellbird connection sync`.

use std::process::ExitCode;

use anyhow::bail;
use bellbird_connections::{Connections, ConnectionsError, SyncReport};
use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, SyncRunId};
use bellbird_storage::Storage;
use clap::Args;
use serde::Serialize;
use tokio::task::JoinSet;

use super::super::output::{self, JsonFlag, Progress};
use super::super::user::find_user;
use super::find;

/// Connections that are synced at the same time.
const AT_ONCE: usize = 4;

/// Look now for what is new at the provider, and make events of it.
///
/// Refreshes the accounts and the status, reads the transactions or trades of the last days, and remembers, as keyed hashes,
/// which ones it has seen. What is new or has changed becomes events for the user's webhook endpoints, which a running
/// service delivers. Waits for the end; where the service syncs the same connection at this moment, it is waited for
/// first. Ends with status 1 when a sync failed, and when the connection of ID is not active; with --all, those that are
/// not active are only told of.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  bellbird connection sync 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f
  bellbird connection sync --all --user me@example.com")]
pub(in super::super) struct SyncArgs {
    /// Id of the connection, as `connection list` shows it
    #[arg(required_unless_present = "all")]
    id: Option<ConnectionId>,

    /// Every connection, of every user
    #[arg(long, conflicts_with = "id")]
    all: bool,

    /// With --all, one user's only: e-mail address or id
    #[arg(long, requires = "all")]
    user: Option<String>,

    #[command(flatten)]
    format: JsonFlag,
}

/// What `--json` prints of each connection that was synced.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SyncedConnection {
    connection_id: ConnectionId,
    sync_run_id: SyncRunId,
    new_count: usize,
    updated_count: usize,
    events: usize,
    status: ConnectionStatus,
}

impl From<&SyncReport> for SyncedConnection {
    fn from(report: &SyncReport) -> Self {
        let SyncReport { connection_id, run, new_count, updated_count, events, status } = *report;
        Self { connection_id, sync_run_id: run, new_count, updated_count, events, status }
    }
}

pub(super) async fn run(storage: &Storage, connections: &Connections, args: &SyncArgs) -> anyhow::Result<ExitCode> {
    let asked = match (args.id, &args.user) {
        (Some(id), _) => vec![find(storage, id).await?],
        (None, Some(user)) => storage.list_connections(find_user(storage, user).await?.id).await?,
        (None, None) => storage.list_all_connections().await?,
    };
    if let (Some(id), [one]) = (args.id, &asked[..])
        && one.status == ConnectionStatus::Deleting
    {
        bail!("connection {id} is being removed: there is nothing to sync");
    }
    let asked: Vec<_> = asked.into_iter().filter(|one| one.status != ConnectionStatus::Deleting).collect();
    let synced = sync_all(connections, &asked).await;

    let (mut views, mut failed) = (Vec::new(), false);
    for (connection, synced) in asked.iter().zip(&synced) {
        let name = &connection.institution_name;
        match synced {
            Ok(report) => {
                views.push(SyncedConnection::from(report));
                if report.status != ConnectionStatus::Active {
                    failed |= args.id.is_some();
                    output::note(&format!(
                        "{name} ({}) is {}: nothing was read. `bellbird connection link --reconnect {}` repairs it",
                        connection.id, report.status, connection.id
                    ));
                }
            }
            // Removed while others were synced.
            Err(ConnectionsError::NotFound) if args.all => {}
            Err(error) => {
                failed = true;
                output::note(&format!("error: {name} ({}) could not be synced: {error}", connection.id));
            }
        }
    }
    output::print(args.format, &views, |views| text(views, &asked))?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Syncs a few at a time; what came of each, in their order.
async fn sync_all(connections: &Connections, asked: &[Connection]) -> Vec<Result<SyncReport, ConnectionsError>> {
    let mut progress = Progress::new("connections synced", u64::try_from(asked.len()).unwrap_or(u64::MAX));
    progress.add(0);
    let mut under_way = JoinSet::new();
    let mut waiting = asked.iter().enumerate();
    let mut synced: Vec<_> = asked.iter().map(|_| Err(ConnectionsError::Busy)).collect();
    loop {
        while under_way.len() < AT_ONCE
            && let Some((place, connection)) = waiting.next()
        {
            let (connections, user, id) = (connections.clone(), connection.user_id, connection.id);
            under_way.spawn(async move { (place, connections.sync(user, id).await) });
        }
        let Some(done) = under_way.join_next().await else { return synced };
        if let Ok((place, result)) = done {
            synced[place] = result;
        }
        progress.add(1);
    }
}

fn text(views: &[SyncedConnection], asked: &[Connection]) -> String {
    if asked.is_empty() {
        return "There are no connections to sync.".to_owned();
    }
    let rows = views.iter().map(|view| {
        let name = asked.iter().find(|one| one.id == view.connection_id).map_or("-", |one| &one.institution_name);
        let counts = [view.new_count, view.updated_count, view.events].map(|count| count.to_string());
        let [new, updated, events] = counts;
        [name.to_owned(), view.status.to_string(), new, updated, events, view.connection_id.to_string()]
    });
    output::table(["institution", "status", "new", "updated", "events", "id"], rows)
}
