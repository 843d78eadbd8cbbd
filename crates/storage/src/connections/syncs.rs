//! Stores what is known of the syncs of a connection, and the result of each: a job (see
//! `jobs/mod.rs`) that reads the transactions or trades of a date range, and reports new and
//! changed ones in webhook events.

use bellbird_domain::{
    AccountId, ConnectionId, Digest, EventType, Fingerprints, SyncRunId, UserId,
};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::Syncs;
use crate::connections::fingerprints;
use crate::db::{Bound, Row, Tx, from_row, named, params, statements};
use crate::error::Result;
use crate::jobs::{self, ClaimedJob, JobKey, job_kinds, sync_is_held};
use crate::locks::{lock_user, user_lock};
use crate::webhooks::webhook_events::{self, EventOrigin, NewWebhookEvent};

/// Rows in `removal_hints` of a connection.
const REMOVAL_HINTS_MAX: usize = 1_000;

statements! {
    INSERT = "INSERT INTO syncs (user_id, connection_id, rows_backfill_began_at, removal_hints) VALUES ($1, $2, $3, $4)
        ON CONFLICT (user_id, connection_id) DO UPDATE SET rows_backfill_began_at = excluded.rows_backfill_began_at";

    FIND = "SELECT c.created_at, s.sequence, s.synced_at, s.covered_from, s.newest_row_at, s.rows_backfill_began_at,
            (SELECT MIN(a.missing_since) FROM accounts a WHERE a.user_id = c.user_id AND a.connection_id = c.id),
            s.reread_from, (SELECT MAX(o.restore_id) FROM database_origin o), s.change_version, s.removal_hints,
            s.last_changes_poll_at, j.run_at, j.attempts, j.last_error, s.unread_to, s.unread_after_account,
            s.unreadable_rows, s.unreadable_reason, s.unreadable_since
        FROM connections c JOIN syncs s ON s.user_id = c.user_id AND s.connection_id = c.id
            JOIN jobs j ON j.user_id = c.user_id AND j.kind = 'sync' AND j.subject = CAST(c.id AS TEXT)
        WHERE c.user_id = $1 AND c.id = $2";

    /// A refresh may have set `reread_from` while the sync ran, and an event of the provider
    /// `removal_hints`. Then it stays for the next one.
    SAVE = concat!(
        "UPDATE syncs SET sequence = :sequence, synced_at = :synced_at, covered_from = :covered_from,
            newest_row_at = :newest_row_at, rows_backfill_began_at = :rows_backfill_began_at,
            reread_from = NULLIF(reread_from, :reread), unread_to = :unread_to,
            unread_after_account = :unread_after_account, unreadable_rows = :unreadable_rows,
            unreadable_reason = :unreadable_reason, unreadable_since = :unreadable_since,
            change_version = :change_version,
            removal_hints = CASE WHEN removal_hints = :hints_before THEN :hints_after ELSE removal_hints END
        WHERE user_id = :user AND connection_id = :connection AND ",
        sync_is_held!()
    );

    /// Each return changes the value, so that a sync that began before it does not clear it.
    REREAD_FROM = "UPDATE syncs SET reread_from = CASE WHEN reread_from <= $3 THEN reread_from - 1 ELSE $3 END
        WHERE user_id = $1 AND connection_id = $2";

    ADD_REMOVAL_HINTS = "UPDATE syncs SET removal_hints = $3
        WHERE user_id = $1 AND connection_id = $2 AND removal_hints = $4";

    SET_LAST_CHANGES_POLL = "UPDATE syncs SET last_changes_poll_at = $3 WHERE user_id = $1 AND connection_id = $2";

    FIND_FOLLOWERS = "SELECT s.last_changes_poll_at, s.rows_backfill_began_at, s.synced_at, s.unread_to, j.started_at,
            CAST(CASE WHEN EXISTS (SELECT 1 FROM webhook_endpoints e
                WHERE (e.user_id = s.user_id OR e.user_id = $3) AND e.status = 'enabled') THEN 1 ELSE 0 END AS BIGINT)
        FROM syncs s
            JOIN jobs j ON j.user_id = s.user_id AND j.kind = 'refresh' AND j.subject = CAST(s.connection_id AS TEXT)
        WHERE s.user_id = $1 AND s.connection_id = $2";

    LIST_UNREADABLE = "SELECT c.id, c.provider, s.unreadable_rows, s.unreadable_reason, s.unreadable_since
        FROM syncs s JOIN connections c ON c.user_id = s.user_id AND c.id = s.connection_id
        WHERE s.unreadable_rows > 0 AND c.status <> 'deleting' ORDER BY s.unreadable_rows DESC, c.id LIMIT $1";
}

/// What is known of the syncs of a connection. Serialized as commands print it with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncState {
    /// When the connection was linked.
    #[serde(skip)]
    pub linked_at: Timestamp,
    /// The number of finished syncs.
    #[serde(skip)]
    pub sequence: u32,
    /// The start of the last successful sync.
    pub synced_at: Option<Timestamp>,
    /// The start of that sync's date range.
    #[serde(skip)]
    pub covered_from: Option<Timestamp>,
    /// The newest row that a sync has read.
    #[serde(skip)]
    pub newest_row_at: Option<Timestamp>,
    /// Since when the provider may be loading older rows: since the connection was linked or last
    /// renewed, or since a gap ended.
    #[serde(skip)]
    pub rows_backfill_began_at: Timestamp,
    /// Since when an account is missing from the provider's list.
    #[serde(skip)]
    pub missing_since: Option<Timestamp>,
    /// An account that is listed again was missing since then. No sync has read its rows meanwhile.
    #[serde(skip)]
    pub reread_from: Option<Timestamp>,
    /// What the last sync has not read yet, because it was too large for one run.
    #[serde(skip)]
    pub unread: Option<UnreadRange>,
    /// Names the last restore of the database from a backup. A change version of another history
    /// may be that of another run here.
    #[serde(skip)]
    pub restore_id: i64,
    /// The change version of the last run that found changes; 0 before the first (`Fingerprints`).
    #[serde(skip)]
    pub change_version: u32,
    /// Rows of which the provider said that they are gone, and of which no sync has read the days
    /// since.
    #[serde(skip)]
    pub removal_hints: Vec<Digest>,
    /// When a client last asked for the changes, or a person for a sync, within a day.
    #[serde(skip)]
    pub last_changes_poll_at: Option<Timestamp>,
    /// Rows that the last sync could not read.
    pub unreadable: Option<UnreadableRows>,
    /// The next sync. While one runs, this is when that one was due, or a later time that was
    /// requested meanwhile.
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

/// Whether anybody waits for the rows of a connection, and what is known of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followers {
    /// The user or the installation has an enabled endpoint.
    pub has_endpoint: bool,
    /// As in [`SyncState`].
    pub last_changes_poll_at: Option<Timestamp>,
    /// As in [`SyncState`].
    pub rows_backfill_began_at: Timestamp,
    /// As in [`SyncState`].
    pub synced_at: Option<Timestamp>,
    /// Whether the last sync was too large for one run.
    pub has_unread: bool,
    /// When the last refresh began.
    pub refreshed_at: Option<Timestamp>,
}

/// A connection with rows that its last sync could not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DegradedConnection {
    pub id: ConnectionId,
    pub provider: String,
    pub rows: UnreadableRows,
}

/// A successful run of a sync: what it found, and what is known after it.
#[derive(Debug, Clone, Copy)]
pub struct FinishedSync<'a> {
    pub run: SyncRunId,
    /// The start of the run.
    pub started_at: Timestamp,
    /// The dates that the run has read.
    pub date_range: (Timestamp, Timestamp),
    /// What was known when the run began.
    pub before: &'a SyncState,
    /// What is known now. Its `next_at` is when the job is due, unless an earlier run was requested
    /// meanwhile.
    pub after: &'a SyncState,
    /// All fingerprints of the connection. None keeps the stored ones.
    pub fingerprints: Option<&'a Fingerprints>,
    /// When the first delivery attempts are due.
    pub first_attempt_at: Timestamp,
    /// The type of the events.
    pub event_type: EventType,
    /// All chunks of the run, in their order.
    pub events: &'a [NewWebhookEvent],
    /// Events of rows that are gone, which are a run of their own.
    pub removed_events: (SyncRunId, &'a [NewWebhookEvent]),
}

impl Syncs<'_> {
    /// The syncs of the user's connection. None if it is gone or being deleted.
    pub async fn find(self, user: UserId, connection: ConnectionId) -> Result<Option<SyncState>> {
        self.db.one(FIND, params![user, connection], state).await
    }

    /// Who waits for the rows of a connection. None if it is gone.
    pub async fn find_followers(
        self,
        user: UserId,
        connection: ConnectionId,
    ) -> Result<Option<Followers>> {
        self.db
            .one(
                FIND_FOLLOWERS,
                params![user, connection, UserId::INSTALLATION],
                followers,
            )
            .await
    }

    /// A client asks for the changes of the connection.
    pub async fn set_last_changes_poll(
        self,
        user: UserId,
        connection: ConnectionId,
        now: Timestamp,
    ) -> Result<()> {
        self.db
            .execute(SET_LAST_CHANGES_POLL, params![user, connection, now])
            .await
    }

    /// The provider said that these rows of the user's connection are gone. The next sync checks
    /// it.
    ///
    /// It is only a hint: what is said at the same time, or beyond `REMOVAL_HINTS_MAX` rows, is
    /// found missing later.
    pub async fn add_removal_hints(
        self,
        user: UserId,
        connection: ConnectionId,
        rows: &[Digest],
    ) -> Result<()> {
        let Some(state) = self.find(user, connection).await? else {
            return Ok(());
        };
        let (before, mut after) = (hint_bytes(&state.removal_hints), state.removal_hints);
        after.extend(rows);
        after.sort_unstable();
        after.dedup();
        after.truncate(REMOVAL_HINTS_MAX);
        let after = hint_bytes(&after);
        self.db
            .execute(
                ADD_REMOVAL_HINTS,
                params![user, connection, &after, &before],
            )
            .await
    }

    /// The connections with rows that their last sync could not read, those with the most first.
    pub async fn list_degraded(self, limit: u32) -> Result<Vec<DegradedConnection>> {
        let degraded = |row: &Row<'_>| {
            let (id, provider) = (row.get(0)?, row.get(1)?);
            Ok(unreadable(row, 2)?.map(|rows| DegradedConnection { id, provider, rows }))
        };
        Ok(self
            .db
            .all(LIST_UNREADABLE, params![limit], degraded)
            .await?
            .into_iter()
            .flatten()
            .collect())
    }

    /// Finishes a successful run of a sync. What is known, fingerprints, webhook events, deliveries
    /// and the next time commit in one transaction.
    ///
    /// Returns the number of webhook events that will be sent, which is 0 if no enabled endpoint
    /// subscribes to them. Returns None, and changes nothing, if the lease was lost: to another
    /// task, by an import, or because the connection is being deleted.
    pub async fn finish(
        self,
        claim: &ClaimedJob,
        finished: &FinishedSync<'_>,
    ) -> Result<Option<u64>> {
        let FinishedSync { events, after, .. } = *finished;
        let (user, connection) = (claim.user_id(), claim.subject_id());
        let encoded = finished.fingerprints.map(fingerprints::encode);
        let origin = EventOrigin {
            user,
            connection: Some(connection),
            claim: Some(claim),
            run: finished.run,
            event_type: finished.event_type,
            date_range: finished.date_range,
            shown: None,
            now: finished.started_at,
        };
        let hints = [finished.before, after].map(|state| hint_bytes(&state.removal_hints));
        let mut statements = vec![
            user_lock(user),
            jobs::held(claim),
            save(claim, finished, &hints),
        ];
        statements.extend(
            encoded
                .as_ref()
                .map(|encoded| fingerprints::store(claim, encoded)),
        );
        // The events come late, because they lock the queues, which deliveries need.
        let inserted_at = statements.len();
        statements.extend(webhook_events::insert_events(
            &origin,
            events,
            finished.first_attempt_at,
        ));
        let removed_at = statements.len();
        let (run, removed_events) = finished.removed_events;
        let origin = EventOrigin { run, ..origin };
        statements.extend(webhook_events::insert_events(
            &origin,
            removed_events,
            finished.first_attempt_at,
        ));
        statements.push(jobs::finished(claim, after.next_at));
        let rows = self.db.batch(&statements).await?;
        let inserted = rows.iter().skip(inserted_at).take(events.len());
        let removed = rows.iter().skip(removed_at).take(removed_events.len());
        let sent = inserted
            .chain(removed)
            .flatten()
            .filter(|endpoints| **endpoints > 0)
            .count();
        Ok(rows[1].map(|_| sent as u64))
    }
}

/// Requests a sync for a person, as `storage.jobs().request` does. Returns false if the
/// connection is gone.
pub async fn request(
    tx: &mut Tx,
    (user, connection): (UserId, ConnectionId),
    now: Timestamp,
    at_most_every: SignedDuration,
) -> Result<bool> {
    lock_user(tx, user).await?;
    tx.run(SET_LAST_CHANGES_POLL, params![user, connection, now])
        .await?;
    jobs::request(
        tx,
        &JobKey::new(job_kinds::SYNC, user, connection),
        now,
        at_most_every,
    )
    .await
}

/// Adds what is known of the syncs of a new connection, or begins the backfill of a renewed one
/// again.
pub(crate) async fn begin_backfill(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
    now: Timestamp,
) -> Result<()> {
    tx.execute(INSERT, params![user, connection, now, [].as_slice()])
        .await
}

/// The next sync reads from there, because an account that was missing since then is listed again.
/// The caller holds the lock on the user's row.
pub(crate) async fn reread_from(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
    missing_since: Timestamp,
) -> Result<()> {
    tx.execute(REREAD_FROM, params![user, connection, missing_since])
        .await
}

fn hint_bytes(rows: &[Digest]) -> Vec<u8> {
    rows.iter().flat_map(|row| row.0).collect()
}

/// The hints are those before and after the sync, as they are stored.
fn save<'a>(
    claim: &'a ClaimedJob,
    finished: &FinishedSync<'a>,
    [before_hints, after_hints]: &'a [Vec<u8>; 2],
) -> Bound<'a> {
    let FinishedSync { before, after, .. } = *finished;
    let (unread, unreadable) = (after.unread.as_ref(), after.unreadable.as_ref());
    SAVE.with(named![
        user = claim.user_id(),
        connection = claim.subject_id::<ConnectionId>(),
        subject = &claim.key.subject,
        fence = claim.fence,
        sequence = after.sequence,
        synced_at = after.synced_at,
        covered_from = after.covered_from,
        newest_row_at = after.newest_row_at,
        rows_backfill_began_at = after.rows_backfill_began_at,
        reread = before.reread_from.filter(|_| after.reread_from.is_none()),
        unread_to = unread.map(|unread| unread.to),
        unread_after_account = unread.and_then(|unread| unread.after_account),
        unreadable_rows = unreadable.map_or(0, |rows| rows.count),
        unreadable_reason = unreadable.map(|rows| &rows.reason),
        unreadable_since = unreadable.map(|rows| rows.since),
        change_version = after.change_version,
        hints_before = before_hints,
        hints_after = after_hints,
    ])
}

from_row! {
    fn followers(row) -> Followers {
        last_changes_poll_at, rows_backfill_began_at, synced_at,
        has_unread = row.get::<Option<Timestamp>>(3)?.is_some(), refreshed_at, has_endpoint,
    }
}

fn unreadable(row: &Row<'_>, at: usize) -> Result<Option<UnreadableRows>> {
    let count = row.number::<u32>(at, "a number of rows")?;
    let (Some(reason), Some(since)) = (row.get(at + 1)?, row.get(at + 2)?) else {
        return Ok(None);
    };
    Ok((count > 0).then_some(UnreadableRows {
        count,
        reason,
        since,
    }))
}

fn unread(row: &Row<'_>) -> Result<Option<UnreadRange>> {
    let (to, after_account) = (row.get::<Option<_>>(15)?, row.get(16)?);
    Ok(to.map(|to| UnreadRange { to, after_account }))
}

from_row! {
    fn state(row) -> SyncState {
        linked_at, sequence: "a number of syncs", synced_at, covered_from, newest_row_at,
        rows_backfill_began_at, missing_since, reread_from,
        restore_id = row.opt_int(8)?.unwrap_or_default(),
        change_version: "the change version of a sync",
        removal_hints = row.blob(10)?.as_chunks().0.iter().map(|row| Digest(*row)).collect(),
        last_changes_poll_at, next_at, attempts: "a number of attempts", last_error,
        unread = unread(row)?, unreadable = unreadable(row, 17)?,
    }
}
