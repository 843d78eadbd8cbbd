//! Stores webhook events: an envelope and the digests of its rows (transactions or trades). The rows themselves stay at
//! the provider, where a redelivery reads them again.

use std::collections::BTreeMap;

use bellbird_domain::webhook_event::DIGEST_BYTES;
use bellbird_domain::{
    AccountId, ApiVersion, ConnectionId, ConnectionStatus, Digest, EndpointId, EventId, EventType, RemovedRow, RowKey,
    SyncRunId, UserId,
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::db::{Bound, Param, Row, Tx, named, params, statements};
use crate::digest::parse_digest;
use crate::error::Result;
use crate::jobs::{ClaimedJob, sync_is_held};
use crate::locks::user_lock;
use crate::webhooks::endpoints::{self, ENDPOINT_DISABLED};
use crate::{StorageError, WebhookEvents};

/// The columns that [`webhook_event`] expects, in its order.
macro_rules! webhook_event_columns {
    ($table:literal) => {
        concat!(
            $table,
            "id, ",
            $table,
            "event_type, ",
            $table,
            "connection_id, ",
            $table,
            "sync_run_id, ",
            $table,
            "created_at, ",
            $table,
            "date_range_from, ",
            $table,
            "date_range_to, ",
            $table,
            "row_digests, ",
            $table,
            "new_count, ",
            $table,
            "updated_count, ",
            $table,
            "chunk, ",
            $table,
            "total_chunks, ",
            $table,
            "row_hint, ",
            $table,
            "connection_status, ",
            $table,
            "previous_status, ",
            $table,
            "provider, ",
            $table,
            "institution_name, ",
            $table,
            "last_refreshed_at, ",
            $table,
            "removed, ",
            $table,
            "consent_expires_at"
        )
    };
}
pub(crate) use webhook_event_columns;

/// Inserts an event, under a condition if there is one.
macro_rules! insert_event {
    ($($condition:expr),*) => {
        concat!(
            "INSERT INTO webhook_events (user_id, id, connection_id, sync_run_id, event_type, created_at,
                date_range_from, date_range_to, row_digests, new_count, updated_count, chunk, total_chunks, row_hint,
                connection_status, previous_status, provider, institution_name, last_refreshed_at, removed,
                consent_expires_at)
            SELECT :user, :id, :connection, :run, :event_type, :now,
                :date_range_from, :date_range_to, :row_digests, :new_count, :updated_count, :chunk, :total_chunks,
                :row_hint, :connection_status, :previous_status, :provider, :institution_name, :last_refreshed_at,
                :removed, :consent_expires_at",
            $($condition),*
        )
    };
}

/// Whether an endpoint subscribes to a type of events, in a version of their body from this one on.
macro_rules! subscribes {
    ($event_type:literal, $version_min:literal) => {
        concat!(
            "((',' || event_types || ',') LIKE ('%,' || ",
            $event_type,
            " || ',%') AND api_version >= ",
            $version_min,
            ")"
        )
    };
}

/// The parameters are the user and the type of event. A sync may end after its user was removed.
macro_rules! add_queues {
    ($lock:literal) => {
        concat!(
            "INSERT INTO webhook_endpoints (user_id, id, url, event_types, api_version, status, disabled_reason,
                created_at, queue_fence)
            SELECT $1, p.id, p.url, p.event_types, p.api_version, p.status, p.disabled_reason, p.created_at, p.fence
            FROM webhook_endpoints p WHERE p.user_id = '00000000-0000-0000-0000-000000000000' AND ",
            subscribes!("$2", "''"),
            " AND EXISTS (SELECT u.id FROM users u WHERE u.id = $1)
            AND NOT EXISTS (SELECT l.id FROM webhook_endpoints l WHERE l.user_id = $1 AND l.id = p.id)",
            $lock,
            " ON CONFLICT (user_id, id) DO NOTHING"
        )
    };
}

statements! {
    /// The queues of the user `$1` at the endpoints that subscribe to the events `$2`.
    /// On PostgreSQL, waits for a change of such an endpoint, or makes it wait: it would not see the queue.
    ADD_QUEUES = add_queues!(""), on_postgres = add_queues!(" FOR SHARE OF p");

    INSERT = insert_event!();

    /// Without a fence, the caller has made sure that it may write. Returns to how many endpoints the event is sent:
    /// none while all that subscribe are disabled.
    INSERT_FOR_SUBSCRIBERS = insert_event!(
        " WHERE EXISTS (SELECT 1 FROM webhook_endpoints WHERE user_id = :user AND ",
        subscribes!(":event_type", ":version_min"),
        ") AND (CAST(:fence AS BIGINT) IS NULL OR ",
        sync_is_held!(),
        ") RETURNING (SELECT COUNT(*) FROM webhook_endpoints WHERE user_id = :user AND status <> 'disabled' AND ",
        subscribes!(":event_type", ":version_min"),
        ")"
    );

    /// Makes the user's endpoints that subscribe to an event type, in version `$5` or later, due at `$4`, if they are
    /// not
    /// due before and the event `$3` was stored. Locks them, so that none is released or disabled before its deliveries
    /// are committed.
    NOTIFY = concat!(
        "UPDATE webhook_endpoints SET due_at = CASE WHEN status = 'disabled' OR due_at <= $4 THEN due_at ELSE $4 END
        WHERE user_id = $1 AND ",
        subscribes!("$2", "$5"),
        " AND EXISTS (SELECT 1 FROM webhook_events WHERE user_id = $1 AND id = $3)"
    );

    /// Inserts the deliveries of the event `$2` to endpoints of version `$5` or later, if it was stored. Those to a
    /// disabled endpoint have failed already.
    INSERT_DELIVERIES = concat!(
        "INSERT INTO webhook_deliveries (user_id, endpoint_id, event_id, sync_run_id, chunk, created_at, state,
            next_attempt_at, ended_at, last_error)
        SELECT e.user_id, p.id, e.id, e.sync_run_id, e.chunk, e.created_at,
            CASE WHEN p.status = 'disabled' THEN 'failed' WHEN e.chunk = 1 THEN 'pending' ELSE 'waiting' END,
            CASE WHEN p.status <> 'disabled' AND e.chunk = 1 THEN CAST($3 AS BIGINT) END,
            CASE WHEN p.status = 'disabled' THEN e.created_at END,
            CASE WHEN p.status = 'disabled' THEN $4 END
        FROM webhook_events e CROSS JOIN webhook_endpoints p
        WHERE e.user_id = $1 AND e.id = $2 AND p.user_id = $1 AND ",
        subscribes!("e.event_type", "$5")
    );

    FIND = concat!("SELECT ", webhook_event_columns!(""), " FROM webhook_events WHERE user_id = $1 AND id = $2");

    LIST_WAITING = concat!(
        "SELECT ",
        webhook_event_columns!("e."),
        " FROM webhook_deliveries d CROSS JOIN webhook_events e
        WHERE d.user_id = $1 AND d.endpoint_id = $2 AND d.sync_run_id = $3 AND d.chunk > $4 AND d.ended_at IS NULL
            AND e.user_id = $1 AND e.id = d.event_id
        ORDER BY d.chunk LIMIT $5"
    );

    LIST_OUTDATED = "SELECT user_id, id FROM webhook_events WHERE created_at < $1 ORDER BY created_at LIMIT $2";

    DELETE = "DELETE FROM webhook_events WHERE user_id = $1 AND id = $2 RETURNING chunk";

    /// Names the endpoints, as the keys of both tables do: an index by event alone would be one more to write.
    DELETE_DELIVERIES = "DELETE FROM webhook_deliveries WHERE user_id = $1 AND event_id = $2
        AND endpoint_id IN (SELECT id FROM webhook_endpoints WHERE user_id = $1)";

    DELETE_ATTEMPTS = "DELETE FROM webhook_attempts WHERE user_id = $1 AND event_id = $2
        AND endpoint_id IN (SELECT id FROM webhook_endpoints WHERE user_id = $1)";

    /// The event of its removal outlives it.
    LIST_OF_CONNECTION = "SELECT id FROM webhook_events
        WHERE connection_id = $2 AND user_id = $1 AND event_type <> 'connection.removed' LIMIT $3";

    DELETE_OPEN_DELIVERIES = "DELETE FROM webhook_deliveries WHERE user_id = $1 AND ended_at IS NULL
        AND endpoint_id IN (SELECT id FROM webhook_endpoints WHERE user_id = $1)
        AND event_id IN (SELECT id FROM webhook_events WHERE connection_id = $2 AND user_id = $1)";
}

/// An event to store.
#[derive(Debug, Clone)]
pub struct NewWebhookEvent {
    /// Never changes.
    pub id: EventId,
    /// The digests of its rows, one after the other, new rows first.
    pub row_digests: Vec<u8>,
    /// New rows in this event.
    pub new_count: u32,
    /// Changed rows in this event.
    pub updated_count: u32,
    /// From 1 to `total_chunks`.
    pub chunk: u32,
    /// The number of events of the run.
    pub total_chunks: u32,
    /// Where its rows lie, sealed by the caller. Empty: unknown.
    pub hint: Vec<u8>,
    /// Rows that are gone, by [`removed_bytes`]. Such an event has no others, and is sent only in versions of the body
    /// that report them.
    pub removed: Vec<u8>,
}

impl NewWebhookEvent {
    /// The only event of its run.
    #[must_use]
    pub fn without_rows(id: EventId) -> Self {
        let (row_digests, hint, removed) = (Vec::new(), Vec::new(), Vec::new());
        Self { id, row_digests, new_count: 0, updated_count: 0, chunk: 1, total_chunks: 1, hint, removed }
    }

    /// The first version of the body in which it is sent.
    fn version_min(&self) -> &'static str {
        if self.removed.is_empty() { "" } else { ApiVersion::V2026_12_01.as_str() }
    }
}

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookEvent {
    pub id: EventId,
    pub event_type: EventType,
    /// None: a ping, which has no rows.
    pub connection_id: Option<ConnectionId>,
    pub sync_run_id: SyncRunId,
    pub created_at: Timestamp,
    /// The dates that the sync read: from, to.
    pub date_range: (Timestamp, Timestamp),
    /// Row digests, new rows first.
    pub rows: Vec<Digest>,
    /// New rows in this event.
    pub new_count: u32,
    /// Changed rows in this event.
    pub updated_count: u32,
    /// From 1 to `total_chunks`.
    pub chunk: u32,
    /// The number of events of the run.
    pub total_chunks: u32,
    /// Where its rows lie, as [`NewWebhookEvent::hint`].
    pub hint: Vec<u8>,
    /// What the event says of its connection. None: it has rows, or is a ping or `connection.removed`.
    pub shown: Option<EventConnection>,
    /// Rows that are gone.
    pub removed: Vec<RemovedRow>,
}

/// A connection at the time of an event about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventConnection {
    pub provider: String,
    pub institution_name: String,
    pub status: ConnectionStatus,
    /// None: the status has not changed.
    pub previous_status: Option<ConnectionStatus>,
    pub last_refreshed_at: Option<Timestamp>,
    pub consent_expires_at: Option<Timestamp>,
}

impl WebhookEvents<'_> {
    pub async fn find(self, user: UserId, id: EventId) -> Result<Option<WebhookEvent>> {
        self.0.db.one(FIND, params![user, id], webhook_event).await
    }

    /// Lists the events of a run that an endpoint gets after a chunk, in their order.
    pub async fn list_waiting_chunks(
        self,
        (user, endpoint): (UserId, EndpointId),
        run: SyncRunId,
        chunk: u32,
        limit: u32,
    ) -> Result<Vec<WebhookEvent>> {
        let values = params![user, endpoint, run, i64::from(chunk), i64::from(limit)];
        self.0.db.all(LIST_WAITING, values, webhook_event).await
    }

    /// Deletes up to `limit` of the oldest events created before `before`, with their deliveries and attempts. Returns
    /// the number of deleted events, which is less than `limit` at the end.
    pub async fn delete_outdated(self, before: Timestamp, limit: u32) -> Result<u64> {
        let found = self.0.db.all(LIST_OUTDATED, params![before, i64::from(limit)], ids).await?;
        let mut events_by_user: BTreeMap<UserId, Vec<EventId>> = BTreeMap::new();
        for (user, event) in found {
            events_by_user.entry(user).or_default().push(event);
        }
        let mut deleted = 0;
        for (user, events) in events_by_user {
            let mut statements = vec![user_lock(user), endpoints::endpoints_lock(user)];
            statements.extend(events.iter().flat_map(|event| deletion(user, *event)));
            deleted += self.0.db.batch(&statements).await?[2..].iter().flatten().count();
        }
        Ok(deleted as u64)
    }
}

/// Deletes the deliveries of a connection's events that have not ended, so that none is sent any more. The caller holds
/// the locks on the user's endpoints.
pub(crate) async fn delete_open_deliveries_of(tx: &mut Tx, user: UserId, connection: ConnectionId) -> Result<()> {
    tx.run(DELETE_OPEN_DELIVERIES, params![user, connection]).await.map(|_| ())
}

/// Deletes up to `limit` events of a connection, with their deliveries, and returns their number. The caller holds the
/// locks on the user's endpoints.
pub(crate) async fn delete_webhook_events_of(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
    limit: u32,
) -> Result<u32> {
    let mut deleted = 0;
    let values = params![user, connection, i64::from(limit)];
    for event in tx.all(LIST_OF_CONNECTION, values, |row| row.id(0)).await? {
        tx.batch(&deletion(user, event)).await?;
        deleted += 1;
    }
    Ok(deleted)
}

/// Deletes an event with its deliveries. Only the first statement returns a number, if the event existed.
fn deletion<'a>(user: UserId, event: EventId) -> [Bound<'a>; 3] {
    [DELETE, DELETE_DELIVERIES, DELETE_ATTEMPTS].map(|sql| (sql, params![user, event].to_vec()))
}

/// What the events of a sync, about a connection, or of a ping have in common.
pub(crate) struct EventOrigin<'a> {
    pub(crate) user: UserId,
    /// None: a ping.
    pub(crate) connection: Option<ConnectionId>,
    /// Of the connection's sync. None: another origin.
    pub(crate) claim: Option<&'a ClaimedJob>,
    pub(crate) run: SyncRunId,
    pub(crate) event_type: EventType,
    /// The dates that the sync read: from, to.
    pub(crate) date_range: (Timestamp, Timestamp),
    pub(crate) shown: Option<&'a EventConnection>,
    pub(crate) now: Timestamp,
}

/// Stores the events if an endpoint subscribes to their type, with their deliveries. The first chunk is due at
/// `first_attempt_at`, and each later chunk waits for the one before it. For a disabled endpoint a delivery has failed
/// already, so that it can be recovered later.
///
/// The first statement adds queues. The next ones store one event each, and return to how many endpoints it is sent.
/// The others depend on what these stored. The transaction holds the lock on the user's row.
pub(crate) fn insert_events<'a>(
    origin: &EventOrigin<'a>,
    events: &'a [NewWebhookEvent],
    first_attempt_at: Timestamp,
) -> Vec<Bound<'a>> {
    let Some(first) = events.first() else { return Vec::new() };
    let mut statements = vec![(ADD_QUEUES, params![origin.user, origin.event_type.as_str()].to_vec())];
    statements.extend(events.iter().map(|new| {
        let mut values = columns(origin, new);
        values.push(("subject", origin.claim.map(|claim| claim.key.subject.as_str()).into()));
        values.push(("fence", origin.claim.map(|claim| claim.fence).into()));
        values.push(("version_min", new.version_min().into()));
        INSERT_FOR_SUBSCRIBERS.with(&values)
    }));
    let (user, event_type) = (origin.user, origin.event_type.as_str());
    let version_min = first.version_min();
    statements.push((NOTIFY, params![user, event_type, first.id, first_attempt_at, version_min].to_vec()));
    statements.extend(events.iter().map(|new| {
        let values = params![user, new.id, first_attempt_at, ENDPOINT_DISABLED, new.version_min()];
        (INSERT_DELIVERIES, values.to_vec())
    }));
    statements
}

/// Stores an event that no endpoint subscribes to.
pub(crate) fn insert<'a>(origin: &EventOrigin<'a>, new: &'a NewWebhookEvent) -> Bound<'a> {
    INSERT.with(&columns(origin, new))
}

fn columns<'a>(origin: &EventOrigin<'a>, new: &'a NewWebhookEvent) -> Vec<(&'static str, Param<'a>)> {
    let shown = origin.shown;
    named![
        user = origin.user,
        id = new.id,
        connection = origin.connection,
        run = origin.run,
        event_type = origin.event_type.as_str(),
        now = origin.now,
        date_range_from = origin.date_range.0,
        date_range_to = origin.date_range.1,
        row_digests = new.row_digests.as_slice(),
        new_count = i64::from(new.new_count),
        updated_count = i64::from(new.updated_count),
        chunk = i64::from(new.chunk),
        total_chunks = i64::from(new.total_chunks),
        row_hint = new.hint.as_slice(),
        connection_status = shown.map(|shown| shown.status.as_str()),
        previous_status = shown.and_then(|shown| shown.previous_status).map(ConnectionStatus::as_str),
        provider = shown.map(|shown| shown.provider.as_str()),
        institution_name = shown.map(|shown| shown.institution_name.as_str()),
        last_refreshed_at = shown.and_then(|shown| shown.last_refreshed_at),
        consent_expires_at = shown.and_then(|shown| shown.consent_expires_at),
        removed = new.removed.as_slice(),
    ]
    .to_vec()
}

/// A key and the id of an account.
const REMOVED_BYTES: usize = 24;

/// Rows that are gone, as an event stores them.
#[must_use]
pub fn removed_bytes(removed: &[RemovedRow]) -> Vec<u8> {
    removed.iter().flat_map(|row| row.key.0.into_iter().chain(*row.account_id.uuid().as_bytes())).collect()
}

fn removed_row(bytes: &[u8; REMOVED_BYTES]) -> Option<RemovedRow> {
    let (key, account) = bytes.split_first_chunk()?;
    Some(RemovedRow { key: RowKey(*key), account_id: AccountId::from(Uuid::from_slice(account).ok()?) })
}

fn ids(row: &Row<'_>) -> Result<(UserId, EventId)> {
    Ok((row.id(0)?, row.id(1)?))
}

/// Reads an event from the first columns of a row.
pub(crate) fn webhook_event(row: &Row<'_>) -> Result<WebhookEvent> {
    let digests = row.blob(7)?;
    if !digests.len().is_multiple_of(DIGEST_BYTES) {
        return Err(StorageError::Corrupt("the digests of an event"));
    }
    Ok(WebhookEvent {
        id: row.id(0)?,
        event_type: row.word(1, "the type of an event")?,
        connection_id: row.opt_id(2)?,
        sync_run_id: row.id(3)?,
        created_at: row.time(4)?,
        date_range: (row.time(5)?, row.time(6)?),
        rows: digests.chunks_exact(DIGEST_BYTES).map(parse_digest).collect::<Result<_>>()?,
        new_count: row.number(8, "a count of rows")?,
        updated_count: row.number(9, "a count of rows")?,
        chunk: row.number(10, "the number of a chunk")?,
        total_chunks: row.number(11, "a count of chunks")?,
        hint: row.blob(12)?.to_vec(),
        shown: shown(row)?,
        removed: row.blob(18)?.as_chunks::<REMOVED_BYTES>().0.iter().filter_map(removed_row).collect(),
    })
}

fn shown(row: &Row<'_>) -> Result<Option<EventConnection>> {
    let Some(status) = row.opt_word(13, "a connection status")? else { return Ok(None) };
    Ok(Some(EventConnection {
        status,
        previous_status: row.opt_word(14, "a connection status")?,
        provider: row.text(15)?.to_owned(),
        institution_name: row.text(16)?.to_owned(),
        last_refreshed_at: row.opt_time(17)?,
        consent_expires_at: row.opt_time(19)?,
    }))
}
