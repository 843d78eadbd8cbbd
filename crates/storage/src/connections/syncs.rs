//! Stores the result of a sync: a job (see `jobs.rs`) that reads the transactions or trades of a date range, and
//! reports new and changed ones in webhook events.

use bellbird_domain::{ConnectionId, Fingerprint, SyncRunId, UserId};
use jiff::Timestamp;

use crate::Storage;
use crate::connections::fingerprints;
use crate::db::{Row, params, statements};
use crate::error::Result;
use crate::jobs::{self, ClaimedJob};
use crate::locks::lock_user_if_exists;
use crate::webhooks::webhook_events::{self, NewWebhookEvent, SyncedEvents};

statements! {
    FIND = "SELECT c.synced_at, c.covered_from, j.run_at, j.attempts, j.last_error
        FROM connections c JOIN jobs j ON j.user_id = c.user_id AND j.kind = 'sync' AND j.subject = c.id
        WHERE c.user_id = $1 AND c.id = $2";

    FINISH = "UPDATE connections SET synced_at = $3, covered_from = $4 WHERE user_id = $1 AND id = $2";
}

/// What is known of the syncs of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncState {
    /// The start of the last successful sync.
    pub synced_at: Option<Timestamp>,
    /// The start of that sync's date range.
    pub covered_from: Option<Timestamp>,
    /// The next sync. While one runs, this is when that one was due, or a later time that was requested meanwhile.
    pub next_at: Option<Timestamp>,
    /// Failures since the last success.
    pub attempts: u32,
    /// Why the last sync failed. None after a success.
    pub last_error: Option<String>,
}

/// The result of a successful sync.
#[derive(Debug, Clone, Copy)]
pub struct FinishedSync<'a> {
    pub run: SyncRunId,
    /// The start of the sync, which is the end of its date range.
    pub started_at: Timestamp,
    /// The start of its date range.
    pub covered_from: Timestamp,
    pub next_sync_at: Timestamp,
    /// New and changed fingerprints, each row and occurrence once.
    pub fingerprints: &'a [Fingerprint],
    /// When those rows were seen. The webhook events carry this time.
    pub seen_at: Timestamp,
    /// When the first delivery attempts are due.
    pub first_attempt_at: Timestamp,
    /// Deletes fingerprints last seen before this time. The caller passes None if it knows that there are none, because
    /// the search takes longer than the rest of the transaction.
    pub prune_before: Option<Timestamp>,
    /// In the order of their chunks.
    pub events: &'a [NewWebhookEvent<'a>],
}

impl Storage {
    /// The syncs of the user's connection. None if it is gone or being deleted.
    pub async fn find_sync(&self, user: UserId, connection: ConnectionId) -> Result<Option<SyncState>> {
        self.db.one(FIND, params![user, connection], state).await
    }

    /// Finishes a successful sync. Fingerprints, webhook events, deliveries and the next time commit in one
    /// transaction. An earlier sync requested meanwhile has priority.
    ///
    /// Returns the number of webhook events written, which is 0 if no endpoint subscribes to them. Returns None, and
    /// changes nothing, if the lease was lost: to another task, by an import, or because the connection is being
    /// deleted.
    pub async fn finish_sync(&self, claim: &ClaimedJob, finished: &FinishedSync<'_>) -> Result<Option<u64>> {
        let (user, connection) = (claim.user_id(), claim.subject_id());
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await? {
            return Ok(None);
        }
        if !jobs::finish(&mut tx, claim, Some(finished.next_sync_at)).await? {
            tx.rollback().await;
            return Ok(None);
        }
        tx.run(FINISH, params![user, connection, finished.started_at, finished.covered_from]).await?;
        fingerprints::upsert(&mut tx, (user, connection), finished.fingerprints, finished.seen_at).await?;
        if let Some(before) = finished.prune_before {
            fingerprints::prune(&mut tx, (user, connection), before).await?;
        }
        let (now, first_attempt_at) = (finished.seen_at, finished.first_attempt_at);
        let events = SyncedEvents { user, connection, run: finished.run, now, first_attempt_at };
        let written = webhook_events::insert_events(&mut tx, &events, finished.events).await?;
        tx.commit().await?;
        Ok(Some(written))
    }
}

fn state(row: &Row<'_>) -> Result<SyncState> {
    Ok(SyncState {
        synced_at: row.opt_time(0)?,
        covered_from: row.opt_time(1)?,
        next_at: row.opt_time(2)?,
        attempts: row.attempts(3)?,
        last_error: row.opt_text(4)?.map(str::to_owned),
    })
}
