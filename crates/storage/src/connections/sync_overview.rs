//! Reports the state of syncs: of one connection, and summed over all users for the operator.

use bellbird_domain::{ConnectionId, UserId};
use jiff::Timestamp;

use crate::Storage;
use crate::connections::syncs::is_due;
use crate::db::{Row, params, statements};
use crate::error::Result;

/// The number of failed syncs in an overview.
const FAILURES_MAX: i64 = 20;

statements! {
    FIND = "SELECT synced_at, next_sync_at, sync_attempts, sync_last_error FROM connections
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting'";

    COUNT = concat!(
        "SELECT COUNT(CASE WHEN ",
        is_due!(),
        " THEN 1 END),
            COUNT(CASE WHEN sync_lease_until > $1 THEN 1 END),
            COUNT(CASE WHEN sync_attempts > 0 THEN 1 END),
            MIN(CASE WHEN sync_lease_until IS NULL AND next_sync_at > $1 THEN next_sync_at END)
        FROM connections WHERE status <> 'deleting'"
    );

    LIST_FAILURES = "SELECT id, sync_attempts, sync_last_error FROM connections
        WHERE sync_attempts > 0 AND sync_last_error IS NOT NULL AND status <> 'deleting'
        ORDER BY sync_attempts DESC, id LIMIT $1";
}

/// The sync job of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncState {
    /// The start of the last successful sync.
    pub synced_at: Option<Timestamp>,
    /// The next sync. While one runs, this is when that one was due, or a later time that was requested meanwhile.
    pub next_at: Option<Timestamp>,
    /// Failures since the last success.
    pub attempts: u32,
    /// Why the last sync failed. None after a success.
    pub last_error: Option<String>,
}

/// The sync jobs of all users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncOverview {
    /// Syncs that are due and not running.
    pub due: u64,
    pub running: u64,
    /// Connections whose last sync failed.
    pub failing: u64,
    /// The earliest sync in the future.
    pub next: Option<Timestamp>,
    /// Up to twenty failing connections, most failures first, each with its failures since the last success and its
    /// last error.
    pub failures: Vec<(ConnectionId, u32, String)>,
}

impl Storage {
    /// The sync job of the user's connection. None if it is gone or being deleted.
    pub async fn find_sync(&self, user: UserId, connection: ConnectionId) -> Result<Option<SyncState>> {
        self.db.one(FIND, params![user, connection], state).await
    }

    pub async fn sync_overview(&self, now: Timestamp) -> Result<SyncOverview> {
        let counted = self.db.one(COUNT, params![now], overview).await?.unwrap_or_default();
        Ok(SyncOverview { failures: self.list_sync_failures().await?, ..counted })
    }

    /// Up to twenty failing connections of all users, most failures first, each with its failures since the last
    /// success and its last error.
    pub async fn list_sync_failures(&self) -> Result<Vec<(ConnectionId, u32, String)>> {
        let last_error = |row: &Row<'_>| Ok((row.id(0)?, row.attempts(1)?, row.text(2)?.to_owned()));
        self.db.all(LIST_FAILURES, params![FAILURES_MAX], last_error).await
    }
}

fn state(row: &Row<'_>) -> Result<SyncState> {
    Ok(SyncState {
        synced_at: row.opt_time(0)?,
        next_at: row.opt_time(1)?,
        attempts: row.attempts(2)?,
        last_error: row.opt_text(3)?.map(str::to_owned),
    })
}

fn overview(row: &Row<'_>) -> Result<SyncOverview> {
    Ok(SyncOverview {
        due: row.number(0, "a count")?,
        running: row.number(1, "a count")?,
        failing: row.number(2, "a count")?,
        next: row.opt_time(3)?,
        failures: Vec::new(),
    })
}
