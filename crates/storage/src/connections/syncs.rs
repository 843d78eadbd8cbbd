//! Stores the result of a sync: a job (see `jobs.rs`) that reads the transactions or trades of a date range, and
//! reports new and changed ones in webhook events.

use bellbird_domain::{AccountId, ConnectionId, EventType, Fingerprint, SyncRunId, UserId};
use jiff::Timestamp;
use serde::Serialize;

use crate::Syncs;
use crate::connections::fingerprints;
use crate::db::{Db, Param, Row, params, statements};
use crate::error::Result;
use crate::jobs::{self, ClaimedJob};
use crate::locks::LOCK_USER;
use crate::webhooks::endpoints::ENDPOINT_DISABLED;
use crate::webhooks::webhook_events::{self, EventOrigin, NewWebhookEvent};

statements! {
    FIND = "SELECT c.synced_at, c.covered_from, j.run_at, j.attempts, j.last_error, c.sync_sequence, c.newest_row_at,
            c.rows_backfill_began_at, c.unread_to, c.unread_after_account, c.unreadable_rows, c.unreadable_reason,
            c.unreadable_since, c.absent_since,
            (SELECT MIN(a.missing_since) FROM accounts a WHERE a.user_id = c.user_id AND a.connection_id = c.id)
        FROM connections c JOIN jobs j ON j.user_id = c.user_id AND j.kind = 'sync' AND j.subject = c.id
        WHERE c.user_id = $1 AND c.id = $2";

    /// A refresh may have set `absent_since` while the sync ran. Then it stays for the next one.
    FINISH = "UPDATE connections SET synced_at = $3, covered_from = $4, sync_sequence = sync_sequence + $5,
            newest_row_at = $6, rows_backfill_began_at = $7, unread_to = $8, unread_after_account = $9,
            unreadable_rows = $10, unreadable_reason = $11, unreadable_since = $12,
            absent_since = NULLIF(absent_since, $13)
        WHERE user_id = $1 AND id = $2";

    LIST_UNREADABLE = "SELECT id, provider, unreadable_rows, unreadable_reason, unreadable_since FROM connections
        WHERE unreadable_rows > 0 AND status <> 'deleting' ORDER BY unreadable_rows DESC, id LIMIT $1";

    /// All that `finish_sync` writes, in one statement. NULL if the claim is stale, otherwise the number of written
    /// events. Runs after the lock, as a statement of its own: the parts of one statement see the moment before a wait.
    /// `subscribers` waits for locks too, and then has the state after the wait. So `notified` asks `subscribers` when
    /// an endpoint is due: a release may have changed it meanwhile.
    FINISH_ON_POSTGRES = "", on_postgres = concat!(
        "WITH finished AS (",
        jobs::release_done!(),
        " RETURNING subject), synced AS (
            UPDATE connections SET synced_at = $21, covered_from = $22, sync_sequence = sync_sequence + $23,
                newest_row_at = $24, rows_backfill_began_at = $25, unread_to = $26, unread_after_account = $27,
                unreadable_rows = $28, unreadable_reason = $29, unreadable_since = $30,
                absent_since = NULLIF(absent_since, $31)
            FROM finished WHERE user_id = $1 AND id = $3
        ), stored AS (
            INSERT INTO fingerprints (user_id, connection_id, entries)
            SELECT $1, $3, CAST($8 AS BYTEA) FROM finished WHERE CAST($8 AS BYTEA) IS NOT NULL
            ON CONFLICT (user_id, connection_id) DO UPDATE SET entries = excluded.entries
        ), written AS (
            SELECT * FROM UNNEST(CAST($9 AS TEXT[]), CAST($10 AS BYTEA[]), CAST($11 AS BIGINT[]), CAST($12 AS BIGINT[]),
                CAST($13 AS BIGINT[]), CAST($17 AS BIGINT[]), CAST($20 AS BYTEA[]))
                AS e (id, row_digests, new_count, updated_count, chunk, total_chunks, row_hint)
        ), subscribers AS (
            SELECT id, status, due_at FROM webhook_endpoints
            WHERE user_id = $1 AND (',' || event_types || ',') LIKE ('%,' || $14 || ',%')
                AND EXISTS (SELECT 1 FROM finished) AND EXISTS (SELECT 1 FROM written)
            FOR NO KEY UPDATE
        ), notified AS (
            UPDATE webhook_endpoints e SET due_at = $18 FROM subscribers s
            WHERE e.user_id = $1 AND e.id = s.id AND s.status <> 'disabled' AND (s.due_at > $18 OR s.due_at IS NULL)
        ), events AS (
            INSERT INTO webhook_events (user_id, id, connection_id, sync_run_id, event_type, created_at,
                date_range_from, date_range_to, row_digests, new_count, updated_count, chunk, total_chunks, row_hint)
            SELECT $1, id, $3, $15, $14, $16, $7, $6, row_digests, new_count, updated_count, chunk, total_chunks,
                row_hint
            FROM written WHERE EXISTS (SELECT 1 FROM subscribers) RETURNING id
        ), deliveries AS (
            INSERT INTO webhook_deliveries (user_id, endpoint_id, event_id, sync_run_id, chunk, created_at, state,
                next_attempt_at, ended_at, last_error)
            SELECT $1, s.id, e.id, $15, e.chunk, CAST($16 AS BIGINT),
                CASE WHEN s.status = 'disabled' THEN 'failed' WHEN e.chunk = 1 THEN 'pending' ELSE 'waiting' END,
                CASE WHEN s.status <> 'disabled' AND e.chunk = 1 THEN CAST($18 AS BIGINT) END,
                CASE WHEN s.status = 'disabled' THEN CAST($16 AS BIGINT) END,
                CASE WHEN s.status = 'disabled' THEN $19 END
            FROM written e CROSS JOIN subscribers s
        )
        SELECT CASE WHEN EXISTS (SELECT 1 FROM finished) THEN (SELECT COUNT(*) FROM events) END"
    );
}

/// What is known of the syncs of a connection. Serialized as commands print it with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncState {
    /// The start of the last successful sync.
    pub synced_at: Option<Timestamp>,
    /// The start of that sync's date range.
    #[serde(skip)]
    pub covered_from: Option<Timestamp>,
    /// The number of the next successful sync, from 1.
    #[serde(skip)]
    pub next_sequence: u32,
    /// Since when an account was missing that is listed again, if no sync has read its rows since.
    #[serde(skip)]
    pub absent_since: Option<Timestamp>,
    /// Since when an account is missing from the provider's list.
    #[serde(skip)]
    pub missing_since: Option<Timestamp>,
    /// The newest row that a sync has read.
    #[serde(skip)]
    pub newest_row_at: Option<Timestamp>,
    /// Since when the provider may be loading older rows.
    #[serde(skip)]
    pub rows_backfill_began_at: Timestamp,
    /// What the last sync has not read yet, because it was too large for one run.
    #[serde(skip)]
    pub unread: Option<UnreadRange>,
    /// Rows that the last sync could not read.
    pub unreadable: Option<UnreadableRows>,
    /// The next sync. While one runs, this is when that one was due, or a later time that was requested meanwhile.
    pub next_at: Option<Timestamp>,
    /// Failures since the last success.
    #[serde(rename = "failedAttempts")]
    pub attempts: u32,
    /// Why the last sync failed. None after a success.
    pub last_error: Option<String>,
}

/// The part of a sync's date range that it has not read: it goes from its start to `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadRange {
    pub to: Timestamp,
    /// If set, only the accounts after this one are unread, by id.
    pub after_account: Option<AccountId>,
}

/// Rows that a sync could not read. Serialized as commands print it with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadableRows {
    /// At most so many: a row that two runs of the sync read counts twice.
    pub count: u32,
    /// Why the oldest one cannot be read, as one word.
    pub reason: String,
    /// When the oldest one was, or a time before.
    pub since: Timestamp,
}

/// A connection with rows that its last sync could not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DegradedConnection {
    pub id: ConnectionId,
    pub provider: String,
    pub rows: UnreadableRows,
}

/// How far the syncs of a connection have come, as the last run leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncProgress {
    pub synced_at: Timestamp,
    pub covered_from: Timestamp,
    /// Whether the run continued the sync of the run before, and so has its sequence number.
    pub continues: bool,
    pub newest_row_at: Option<Timestamp>,
    pub rows_backfill_began_at: Timestamp,
    pub unread: Option<UnreadRange>,
    pub unreadable: Option<UnreadableRows>,
}

/// The result of a successful run of a sync.
#[derive(Debug, Clone, Copy)]
pub struct FinishedSync<'a> {
    pub run: SyncRunId,
    /// The start of the run.
    pub started_at: Timestamp,
    /// The dates that the run has read.
    pub date_range: (Timestamp, Timestamp),
    /// As in the state that the sync began with. None keeps the stored one.
    pub absent_since: Option<Timestamp>,
    pub progress: &'a SyncProgress,
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

impl Syncs<'_> {
    /// The syncs of the user's connection. None if it is gone or being deleted.
    pub async fn find(self, user: UserId, connection: ConnectionId) -> Result<Option<SyncState>> {
        self.0.db.one(FIND, params![user, connection], state).await
    }

    /// The connections with rows that their last sync could not read, those with the most first.
    pub async fn list_degraded(self, limit: u32) -> Result<Vec<DegradedConnection>> {
        let degraded = |row: &Row<'_>| {
            let (id, provider) = (row.id(0)?, row.text(1)?.to_owned());
            Ok(unreadable(row, 2)?.map(|rows| DegradedConnection { id, provider, rows }))
        };
        Ok(self.0.db.all(LIST_UNREADABLE, params![i64::from(limit)], degraded).await?.into_iter().flatten().collect())
    }

    /// Finishes a successful run of a sync. Fingerprints, webhook events, deliveries and the next time commit in one
    /// transaction. An earlier sync requested meanwhile has priority.
    ///
    /// Returns the number of webhook events written, which is 0 if no endpoint subscribes to them. Returns None, and
    /// changes nothing, if the lease was lost: to another task, by an import, or because the connection is being
    /// deleted.
    pub async fn finish(self, claim: &ClaimedJob, finished: &FinishedSync<'_>) -> Result<Option<u64>> {
        let FinishedSync { started_at, next_sync_at, .. } = *finished;
        let (user, connection) = (claim.user_id(), claim.subject_id());
        let entries = finished.fingerprints.map(fingerprints::encode);
        if matches!(self.0.db, Db::Postgres(_)) {
            return self.finish_sync_on_postgres(claim, finished, entries.as_deref()).await;
        }
        let mut tx = self.0.db.begin().await?;
        if !jobs::finish(&mut tx, claim, Some(next_sync_at)).await? {
            tx.rollback().await;
            return Ok(None);
        }
        let mut values = params![user, connection].to_vec();
        values.extend(progress_values(finished.progress));
        values.push(finished.absent_since.into());
        tx.run(FINISH, &values).await?;
        if let Some(entries) = entries {
            fingerprints::store(&mut tx, user, connection, &entries).await?;
        }
        let origin = EventOrigin {
            user,
            connection: Some(connection),
            run: finished.run,
            event_type: finished.event_type,
            date_range: finished.date_range,
            status_change: None,
            now: started_at,
        };
        let written =
            webhook_events::insert_events(&mut tx, &origin, finished.events, finished.first_attempt_at).await?;
        tx.commit().await?;
        Ok(Some(written))
    }

    async fn finish_sync_on_postgres(
        self,
        claim: &ClaimedJob,
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
        let hints: Vec<Param<'_>> = finished.events.iter().map(|event| event.hint.into()).collect();
        let digests: Vec<Param<'_>> = digests.iter().map(|digests| digests.as_slice().into()).collect();
        let values: &[Param<'_>] = params![
            claim.user_id(),
            claim.key.kind,
            claim.key.subject.as_str(),
            claim.fence,
            finished.next_sync_at,
            finished.date_range.1,
            finished.date_range.0,
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
            ENDPOINT_DISABLED,
            hints.as_slice()
        ];
        let mut values = values.to_vec();
        values.extend(progress_values(finished.progress));
        values.push(finished.absent_since.into());
        let answers = self.0.db.batch(&[(LOCK_USER, params![claim.user_id()]), (FINISH_ON_POSTGRES, &values)]).await?;
        Ok(answers.last().copied().flatten().map(|written| u64::try_from(written).unwrap_or(0)))
    }
}

/// In the order of the columns in [`FINISH`].
fn progress_values(progress: &SyncProgress) -> [Param<'_>; 10] {
    let SyncProgress { synced_at, covered_from, continues, newest_row_at, rows_backfill_began_at, unread, unreadable } =
        progress;
    let (unread, unreadable) = (unread.as_ref(), unreadable.as_ref());
    [
        (*synced_at).into(),
        (*covered_from).into(),
        i64::from(!*continues).into(),
        (*newest_row_at).into(),
        (*rows_backfill_began_at).into(),
        unread.map(|unread| unread.to).into(),
        unread.and_then(|unread| unread.after_account).into(),
        i64::from(unreadable.map_or(0, |rows| rows.count)).into(),
        unreadable.map(|rows| rows.reason.as_str()).into(),
        unreadable.map(|rows| rows.since).into(),
    ]
}

fn unreadable(row: &Row<'_>, at: usize) -> Result<Option<UnreadableRows>> {
    let count = row.number::<u32>(at, "a number of rows")?;
    let (Some(reason), Some(since)) = (row.opt_text(at + 1)?, row.opt_time(at + 2)?) else { return Ok(None) };
    Ok((count > 0).then(|| UnreadableRows { count, reason: reason.to_owned(), since }))
}

fn state(row: &Row<'_>) -> Result<SyncState> {
    let unread = match row.opt_time(8)? {
        Some(to) => Some(UnreadRange { to, after_account: row.opt_id(9)? }),
        None => None,
    };
    Ok(SyncState {
        synced_at: row.opt_time(0)?,
        covered_from: row.opt_time(1)?,
        next_at: row.opt_time(2)?,
        attempts: row.attempts(3)?,
        last_error: row.opt_text(4)?.map(str::to_owned),
        absent_since: row.opt_time(13)?,
        missing_since: row.opt_time(14)?,
        next_sequence: row.number::<u32>(5, "a number of syncs")?.saturating_add(1),
        newest_row_at: row.opt_time(6)?,
        rows_backfill_began_at: row.time(7)?,
        unread,
        unreadable: unreadable(row, 10)?,
    })
}
