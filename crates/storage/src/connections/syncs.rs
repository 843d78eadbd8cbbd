//! Syncs: reading what is new of a connection, as due work of its own row.
//!
//! Whoever syncs holds a lease and has a fencing number, as with looks. Claiming leaves the time at which the sync was
//! due before `sync_started_at`: so a time from there on was asked for since, and stays when the sync ends.

use bellbird_domain::{ConnectionId, Fingerprint, SyncRunId, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::connections::fingerprints;
use crate::db::{Row, params, statements};
use crate::error::Result;
use crate::locks::lock_user_if_exists;
use crate::webhooks::webhook_events::{self, NewWebhookEvent, SyncedEvents};
use crate::{Storage, StorageError};

/// What makes a sync due: its time has come and nobody is at it, or whoever was has been killed.
macro_rules! is_due {
    () => {
        "status <> 'deleting'
            AND ((next_sync_at <= $1 AND sync_lease_until IS NULL) OR sync_lease_until <= $1)"
    };
}
pub(crate) use is_due;

/// What a claim at `$now` does to the row, but for the lease. Nobody has asked for anything since.
macro_rules! start {
    ($now:literal) => {
        concat!(
            "next_sync_at = CASE WHEN next_sync_at < ",
            $now,
            " THEN next_sync_at ELSE ",
            $now,
            " - 1 END, sync_started_at = ",
            $now,
            ", sync_fence = sync_fence + 1"
        )
    };
}

/// The claim of what is due, as in `removals.rs`.
macro_rules! claim_due {
    ($lock:literal) => {
        concat!(
            "WITH due AS MATERIALIZED (
                SELECT user_id, id FROM connections WHERE ",
            is_due!(),
            " ORDER BY COALESCE(sync_lease_until, next_sync_at) LIMIT $3",
            $lock,
            ")
            UPDATE connections SET sync_lease_until = $2, ",
            start!("$1"),
            " FROM due WHERE connections.user_id = due.user_id AND connections.id = due.id
            RETURNING connections.user_id, connections.id, synced_at, covered_from, sync_attempts, sync_fence"
        )
    };
}

/// When a sync may be that is asked for at `$3`, as in `refreshes.rs`. Never before the last one began.
macro_rules! next_allowed {
    () => {
        "CASE WHEN sync_started_at > $4 THEN sync_started_at - $4 + $3 ELSE $3 END"
    };
}

/// The time of the next sync after one that ends: what was planned, or what was asked for meanwhile, if that is
/// earlier.
macro_rules! next_after {
    () => {
        "next_sync_at = CASE WHEN next_sync_at >= sync_started_at AND next_sync_at < $4 THEN next_sync_at ELSE $4 END,
            sync_lease_until = NULL"
    };
}

/// The row of a claim that still holds.
macro_rules! claimed_row {
    () => {
        " WHERE user_id = $1 AND id = $2 AND status <> 'deleting' AND sync_fence = $3 AND sync_lease_until IS NOT NULL"
    };
}

statements! {
    CLAIM = concat!(
        "UPDATE connections SET sync_lease_until = $4, ",
        start!("$3"),
        " WHERE user_id = $1 AND id = $2 AND status <> 'deleting'
            AND (sync_lease_until IS NULL OR sync_lease_until <= $3)
        RETURNING user_id, id, synced_at, covered_from, sync_attempts, sync_fence"
    );

    /// Asked before [`CLAIM_DUE`], which takes SQLite's one writer.
    IS_DUE = concat!("SELECT id FROM connections WHERE ", is_due!(), " LIMIT 1");

    CLAIM_DUE = claim_due!(""), on_postgres = claim_due!(" FOR UPDATE SKIP LOCKED");

    RENEW = concat!("UPDATE connections SET sync_lease_until = $4", claimed_row!());

    /// An earlier time stays, unless it is the one of the sync that is under way.
    REQUEST = concat!(
        "UPDATE connections SET next_sync_at = CASE
            WHEN next_sync_at < ",
        next_allowed!(),
        " AND (sync_lease_until IS NULL OR next_sync_at >= sync_started_at) THEN next_sync_at ELSE ",
        next_allowed!(),
        " END
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting'"
    );

    POSTPONE = concat!(
        "UPDATE connections SET sync_attempts = sync_attempts + 1, sync_last_error = $5, ",
        next_after!(),
        claimed_row!()
    );

    FINISH = concat!(
        "UPDATE connections SET sync_attempts = 0, sync_last_error = NULL, synced_at = $5, covered_from = $6, ",
        next_after!(),
        claimed_row!()
    );

    FINISH_WITHOUT_ROWS = concat!(
        "UPDATE connections SET sync_attempts = 0, sync_last_error = NULL, ",
        next_after!(),
        claimed_row!()
    );
}

/// The right to sync one connection, until the lease ends or somebody else claims it after that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedSync {
    /// Whose connection it is.
    pub user_id: UserId,
    /// Which.
    pub connection_id: ConnectionId,
    /// When the last sync that ended well began; none: there was none.
    pub synced_at: Option<Timestamp>,
    /// Where the window of that one began.
    pub covered_from: Option<Timestamp>,
    /// Syncs that failed since then.
    pub attempts: u32,
    fence: i64,
}

/// What came of a sync that ended well.
#[derive(Debug, Clone, Copy)]
pub struct FinishedSync<'a> {
    /// Its id.
    pub run: SyncRunId,
    /// When it began: the end of its window.
    pub started_at: Timestamp,
    /// The beginning of its window.
    pub covered_from: Timestamp,
    /// When the next one is due.
    pub next_sync_at: Timestamp,
    /// What is to be remembered anew, each row and occurrence once.
    pub fingerprints: &'a [Fingerprint],
    /// When those rows were seen. Events are of this moment.
    pub seen_at: Timestamp,
    /// When the first attempts to tell of them are due.
    pub first_attempt_at: Timestamp,
    /// What was not seen since then is forgotten; none where it is known that there is nothing, as looking for it takes
    /// longer than all the rest.
    pub prune_before: Option<Timestamp>,
    /// What is told, in the order of the chunks.
    pub events: &'a [NewWebhookEvent<'a>],
}

impl Storage {
    /// Claims the sync of one connection, due or not. None while somebody is at it, and when it is gone, is being
    /// deleted, or is another user's.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn claim_sync(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedSync>> {
        let mut tx = self.db.begin().await?;
        let claim = tx.one(CLAIM, params![user, id, now, lease_until], claimed).await?;
        tx.commit().await?;
        Ok(claim)
    }

    /// Claims a few of the syncs that are due and that nobody is at, and of those whose lease ran out (whoever had it
    /// was killed), the longest due first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn claim_due_syncs(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
    ) -> Result<Vec<ClaimedSync>> {
        self.db.claim_due((IS_DUE, CLAIM_DUE), now, lease_until, limit, claimed).await
    }

    /// Moves the end of the lease. False when somebody else has overtaken the claim, or the connection was adopted
    /// again since, or is being deleted; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn renew_sync(&self, claim: &ClaimedSync, lease_until: Timestamp) -> Result<bool> {
        let values = params![claim.user_id, claim.connection_id, claim.fence, lease_until];
        Ok(self.db.run(RENEW, values).await? > 0)
    }

    /// Makes a sync due now, or, where one began less than `at_most_every` ago, that long after it; while somebody is
    /// at one, not before they are done. An earlier time stays. False when there is no such connection of the user, or
    /// it is being deleted.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn request_sync(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        at_most_every: SignedDuration,
    ) -> Result<bool> {
        let since = now.saturating_sub(at_most_every).map_err(StorageError::unavailable)?;
        Ok(self.db.run(REQUEST, params![user, id, now, since]).await? > 0)
    }

    /// Gives a sync back that failed: when to try again, unless somebody asked for an earlier time meanwhile, and why
    /// it failed. False as with [`Self::renew_sync`].
    ///
    /// # Errors
    /// Those of the database.
    pub async fn postpone_sync(&self, claim: &ClaimedSync, next: Timestamp, last_error: &str) -> Result<bool> {
        let values = params![claim.user_id, claim.connection_id, claim.fence, next, last_error];
        Ok(self.db.run(POSTPONE, values).await? > 0)
    }

    /// Ends a sync, in one transaction: what is remembered of rows, what is told to whom, and when the next one is due,
    /// unless somebody asked for an earlier time meanwhile. Gives how many events were written: none where
    /// nobody asks for them. None as
    /// [`Self::renew_sync`] says false.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn finish_sync(&self, claim: &ClaimedSync, finished: &FinishedSync<'_>) -> Result<Option<u64>> {
        let (user, connection) = (claim.user_id, claim.connection_id);
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await? {
            return Ok(None);
        }
        let values =
            params![user, connection, claim.fence, finished.next_sync_at, finished.started_at, finished.covered_from];
        if tx.run(FINISH, values).await? == 0 {
            tx.rollback().await;
            return Ok(None);
        }
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

    /// Ends a sync that read nothing, because the connection does not work. The next window begins where this one would
    /// have. False as with [`Self::renew_sync`].
    ///
    /// # Errors
    /// Those of the database.
    pub async fn finish_sync_without_rows(&self, claim: &ClaimedSync, next: Timestamp) -> Result<bool> {
        let values = params![claim.user_id, claim.connection_id, claim.fence, next];
        Ok(self.db.run(FINISH_WITHOUT_ROWS, values).await? > 0)
    }
}

fn claimed(row: &Row<'_>) -> Result<ClaimedSync> {
    Ok(ClaimedSync {
        user_id: row.id(0)?,
        connection_id: row.id(1)?,
        synced_at: row.opt_time(2)?,
        covered_from: row.opt_time(3)?,
        attempts: row.attempts(4)?,
        fence: row.int(5)?,
    })
}
