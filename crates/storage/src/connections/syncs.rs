//! Schedules and claims syncs: jobs that read the transactions or trades of a date range, and report new and changed
//! ones in webhook events. The job is stored in columns of the connection's row.
//!
//! The holder of a claim has a lease and a fence, as in `removals.rs`. While a sync runs, `next_sync_at >=
//! sync_started_at` means that another sync was requested meanwhile. Finishing keeps that request.

use bellbird_domain::{ConnectionId, EventType, Fingerprint, SyncRunId, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::connections::fingerprints;
use crate::db::{Db, Param, Row, params, statements};
use crate::error::Result;
use crate::locks::LOCK_USER;
use crate::webhooks::endpoints::ENDPOINT_DISABLED;
use crate::webhooks::webhook_events::{self, NewWebhookEvent, SyncedEvents};
use crate::{Storage, StorageError};

/// A sync is due at its time if no lease exists, and also when a lease has expired, because its holder was killed.
macro_rules! is_due {
    () => {
        "status <> 'deleting'
            AND ((next_sync_at <= $1 AND sync_lease_until IS NULL) OR sync_lease_until <= $1)"
    };
}
pub(crate) use is_due;

/// What a claim at `$now` changes, besides the lease. It leaves `next_sync_at` before `sync_started_at`, which means
/// that no other sync is requested.
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

/// Claims up to `$3` due rows until `$2`, as in `connections/removals.rs`.
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
            RETURNING connections.user_id, connections.id, synced_at, covered_from, sync_attempts, sync_fence,
                sync_sequence"
        )
    };
}

/// The time of a sync requested at `$3`: at once, unless the last one started after `$4`. Then it starts `$3 - $4`
/// after the last one started.
macro_rules! next_allowed {
    () => {
        "CASE WHEN sync_started_at > $4 THEN sync_started_at - $4 + $3 ELSE $3 END"
    };
}

/// The sync after one that ends: the planned time `$4`, or an earlier one that was requested meanwhile.
macro_rules! next_after {
    () => {
        "next_sync_at = CASE WHEN next_sync_at >= sync_started_at AND next_sync_at < $4 THEN next_sync_at ELSE $4 END,
            sync_lease_until = NULL"
    };
}

/// The row of a claim whose lease is not lost.
macro_rules! claimed_row {
    () => {
        " WHERE user_id = $1 AND id = $2 AND status <> 'deleting' AND sync_fence = $3 AND sync_lease_until IS NOT NULL"
    };
}

/// Finishes the job of a claim that is not stale.
macro_rules! finish {
    () => {
        concat!(
            "UPDATE connections SET sync_attempts = 0, sync_last_error = NULL, synced_at = $5, covered_from = $6,
                sync_sequence = sync_sequence + 1, ",
            next_after!(),
            claimed_row!()
        )
    };
}

statements! {
    CLAIM = concat!(
        "UPDATE connections SET sync_lease_until = $4, ",
        start!("$3"),
        " WHERE user_id = $1 AND id = $2 AND status <> 'deleting'
            AND (sync_lease_until IS NULL OR sync_lease_until <= $3)
        RETURNING user_id, id, synced_at, covered_from, sync_attempts, sync_fence, sync_sequence"
    );

    /// Runs before [`CLAIM_DUE`], which takes SQLite's one writer even if nothing is due.
    IS_DUE = concat!("SELECT id FROM connections WHERE ", is_due!(), " LIMIT 1");

    CLAIM_DUE = claim_due!(""), on_postgres = claim_due!(" FOR UPDATE SKIP LOCKED");

    RENEW = concat!("UPDATE connections SET sync_lease_until = $4", claimed_row!());

    /// An earlier time stays, unless it belongs to the running sync.
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

    FINISH = finish!();

    /// [`FINISH`], then all that `finish_sync` writes besides, in one statement. NULL if the claim is stale, otherwise
    /// the number of written events. Runs after the lock, as a statement of its own: the parts of one statement see the
    /// moment before a wait. `RETURNING` of `subscribers` gives the state after the wait for an endpoint.
    FINISH_ON_POSTGRES = "", on_postgres = concat!(
        "WITH finished AS (",
        finish!(),
        " RETURNING id), stored AS (
            INSERT INTO fingerprints (user_id, connection_id, entries)
            SELECT $1, $2, CAST($7 AS BYTEA) FROM finished WHERE CAST($7 AS BYTEA) IS NOT NULL
            ON CONFLICT (user_id, connection_id) DO UPDATE SET entries = excluded.entries
        ), written AS (
            SELECT * FROM UNNEST(CAST($8 AS TEXT[]), CAST($9 AS BYTEA[]), CAST($10 AS BIGINT[]), CAST($11 AS BIGINT[]),
                CAST($12 AS BIGINT[]), CAST($16 AS BIGINT[]))
                AS e (id, row_digests, new_count, updated_count, chunk, total_chunks)
        ), subscribers AS (",
        webhook_events::notify!("$13", "$17"),
        " AND EXISTS (SELECT 1 FROM finished) AND EXISTS (SELECT 1 FROM written) RETURNING id, status
        ), events AS (
            INSERT INTO webhook_events (user_id, id, connection_id, sync_run_id, event_type, created_at,
                date_range_from, date_range_to, row_digests, new_count, updated_count, chunk, total_chunks)
            SELECT $1, id, $2, $14, $13, $15, $6, $5, row_digests, new_count, updated_count, chunk, total_chunks
            FROM written WHERE EXISTS (SELECT 1 FROM subscribers) RETURNING id
        ), deliveries AS (
            INSERT INTO webhook_deliveries (user_id, endpoint_id, event_id, sync_run_id, chunk, created_at, state,
                next_attempt_at, ended_at, last_error)
            SELECT $1, s.id, e.id, $14, e.chunk, CAST($15 AS BIGINT),
                CASE WHEN s.status = 'disabled' THEN 'failed' WHEN e.chunk = 1 THEN 'pending' ELSE 'waiting' END,
                CASE WHEN s.status <> 'disabled' AND e.chunk = 1 THEN CAST($17 AS BIGINT) END,
                CASE WHEN s.status = 'disabled' THEN CAST($15 AS BIGINT) END,
                CASE WHEN s.status = 'disabled' THEN $18 END
            FROM written e CROSS JOIN subscribers s
        )
        SELECT CASE WHEN EXISTS (SELECT 1 FROM finished) THEN (SELECT COUNT(*) FROM events) END"
    );

    FINISH_WITHOUT_ROWS = concat!(
        "UPDATE connections SET sync_attempts = 0, sync_last_error = NULL, ",
        next_after!(),
        claimed_row!()
    );
}

/// The right to sync one connection, until the lease ends and another task claims it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedSync {
    pub user_id: UserId,
    pub connection_id: ConnectionId,
    /// The start of the last successful sync, if any.
    pub synced_at: Option<Timestamp>,
    /// The start of that sync's date range.
    pub covered_from: Option<Timestamp>,
    /// Failures since then.
    pub attempts: u32,
    /// The number of this sync among the finished ones of its connection, from 1.
    pub sequence: u32,
    fence: i64,
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
    /// All fingerprints of the connection, sorted. None keeps the stored ones.
    pub fingerprints: Option<&'a [Fingerprint]>,
    /// When the first delivery attempts are due.
    pub first_attempt_at: Timestamp,
    /// The type of the events.
    pub event_type: EventType,
    /// All chunks of the run, in their order.
    pub events: &'a [NewWebhookEvent<'a>],
}

impl Storage {
    /// Claims the sync of one connection, due or not. None while another task holds its lease, or if the user has no
    /// such connection, or it is being deleted.
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

    /// Claims up to `limit` syncs, the longest due first. An expired lease counts as due, because its holder was
    /// killed.
    pub async fn claim_due_syncs(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
    ) -> Result<Vec<ClaimedSync>> {
        self.db.claim_due((IS_DUE, CLAIM_DUE), now, lease_until, limit, claimed).await
    }

    /// Extends the lease. Returns false, and changes nothing, if the claim is stale: the lease was lost, the connection
    /// was imported again, or it is being deleted.
    pub async fn renew_sync(&self, claim: &ClaimedSync, lease_until: Timestamp) -> Result<bool> {
        let values = params![claim.user_id, claim.connection_id, claim.fence, lease_until];
        Ok(self.db.run(RENEW, values).await? > 0)
    }

    /// Requests a sync: now, or `at_most_every` after the last start if that is later. While one runs, the next one
    /// waits for its end. An earlier time stays. Returns false if the user has no such connection, or it is being
    /// deleted.
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

    /// Releases a failed sync, with the next time and an error for the operator. An earlier sync requested meanwhile
    /// has priority. Returns false as [`Self::renew_sync`] does.
    pub async fn postpone_sync(&self, claim: &ClaimedSync, next: Timestamp, last_error: &str) -> Result<bool> {
        let values = params![claim.user_id, claim.connection_id, claim.fence, next, last_error];
        Ok(self.db.run(POSTPONE, values).await? > 0)
    }

    /// Finishes a successful sync. Fingerprints, webhook events, deliveries and the next time commit in one
    /// transaction. An earlier sync requested meanwhile has priority.
    ///
    /// Returns the number of webhook events written, which is 0 if no endpoint subscribes to them. Returns None, and
    /// changes nothing, if the claim is stale as with [`Self::renew_sync`].
    pub async fn finish_sync(&self, claim: &ClaimedSync, finished: &FinishedSync<'_>) -> Result<Option<u64>> {
        let FinishedSync { started_at, covered_from, next_sync_at, .. } = *finished;
        let (user, connection) = (claim.user_id, claim.connection_id);
        let entries = finished.fingerprints.map(fingerprints::encode);
        if matches!(self.db, Db::Postgres(_)) {
            return self.finish_sync_on_postgres(claim, finished, entries.as_deref()).await;
        }
        let mut tx = self.db.begin().await?;
        let values = params![user, connection, claim.fence, next_sync_at, started_at, covered_from];
        if tx.run(FINISH, values).await? == 0 {
            tx.rollback().await;
            return Ok(None);
        }
        if let Some(entries) = entries {
            fingerprints::store(&mut tx, user, connection, &entries).await?;
        }
        let events = SyncedEvents {
            user,
            connection: Some(connection),
            run: finished.run,
            event_type: finished.event_type,
            date_range: (covered_from, started_at),
            now: started_at,
        };
        let written =
            webhook_events::insert_events(&mut tx, &events, finished.events, finished.first_attempt_at).await?;
        tx.commit().await?;
        Ok(Some(written))
    }

    async fn finish_sync_on_postgres(
        &self,
        claim: &ClaimedSync,
        finished: &FinishedSync<'_>,
        entries: Option<&[u8]>,
    ) -> Result<Option<u64>> {
        let digests: Vec<Vec<u8>> = finished.events.iter().map(NewWebhookEvent::row_digests).collect();
        let list = |value: fn(&NewWebhookEvent<'_>) -> Param<'static>| -> Vec<Param<'static>> {
            finished.events.iter().map(value).collect()
        };
        let (ids, new_counts) = (list(|event| event.id.into()), list(|event| i64::from(event.new_count).into()));
        let updated_counts = list(|event| i64::from(event.updated_count).into());
        let chunks = list(|event| i64::from(event.chunk).into());
        let total_chunks = list(|event| i64::from(event.total_chunks).into());
        let digests: Vec<Param<'_>> = digests.iter().map(|digests| digests.as_slice().into()).collect();
        let values = params![
            claim.user_id,
            claim.connection_id,
            claim.fence,
            finished.next_sync_at,
            finished.started_at,
            finished.covered_from,
            entries,
            ids.as_slice(),
            digests.as_slice(),
            new_counts.as_slice(),
            updated_counts.as_slice(),
            chunks.as_slice(),
            finished.event_type.as_str(),
            finished.run,
            finished.started_at,
            total_chunks.as_slice(),
            finished.first_attempt_at,
            ENDPOINT_DISABLED
        ];
        let answers = self.db.batch(&[(LOCK_USER, params![claim.user_id]), (FINISH_ON_POSTGRES, values)]).await?;
        Ok(answers.last().copied().flatten().map(|written| u64::try_from(written).unwrap_or(0)))
    }

    /// Finishes a sync without a result: the connection is not active, or its first rows have not appeared yet. The
    /// next sync also reads the dates that this one left out. Returns false as [`Self::renew_sync`] does.
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
        sequence: row.number::<u32>(6, "a number of syncs")?.saturating_add(1),
    })
}
