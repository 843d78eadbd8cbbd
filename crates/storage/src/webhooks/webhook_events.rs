//! Stores webhook events: an envelope and the digests of its rows (transactions or trades). The rows themselves stay at
//! the provider, where a redelivery reads them again.

use std::collections::BTreeMap;

use bellbird_domain::webhook_event::DIGEST_BYTES;
use bellbird_domain::{
    ConnectionId, ConnectionStatus, Digest, EndpointId, EndpointStatus, EventId, EventType, SyncRunId, UserId,
};
use jiff::Timestamp;

use crate::db::{Row, Tx, params, statements};
use crate::digest::parse_digest;
use crate::error::Result;
use crate::locks::lock_user_if_exists;
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
            "last_refreshed_at"
        )
    };
}
pub(crate) use webhook_event_columns;

statements! {
    INSERT = "INSERT INTO webhook_events (user_id, id, connection_id, sync_run_id, event_type, created_at,
            date_range_from, date_range_to, row_digests, new_count, updated_count, chunk, total_chunks, row_hint,
            connection_status, previous_status, provider, institution_name, last_refreshed_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)";

    /// Makes the user's endpoints that subscribe to an event type due at `$3`, if they are not due before.
    NOTIFY = "UPDATE webhook_endpoints
        SET due_at = CASE WHEN status = 'disabled' OR due_at <= $3 THEN due_at ELSE $3 END
        WHERE user_id = $1 AND (',' || event_types || ',') LIKE ('%,' || $2 || ',%') RETURNING id, status";

    INSERT_DELIVERY = "INSERT INTO webhook_deliveries (user_id, endpoint_id, event_id, sync_run_id, chunk, created_at,
            state, next_attempt_at, ended_at, last_error)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

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

    DELETE = "DELETE FROM webhook_events WHERE user_id = $1 AND id = $2";

    /// Names the endpoints, as the keys of both tables do: an index by event alone would be one more to write.
    DELETE_DELIVERIES = "DELETE FROM webhook_deliveries WHERE user_id = $1 AND event_id = $2
        AND endpoint_id IN (SELECT id FROM webhook_endpoints WHERE user_id = $1)";

    DELETE_ATTEMPTS = "DELETE FROM webhook_attempts WHERE user_id = $1 AND event_id = $2
        AND endpoint_id IN (SELECT id FROM webhook_endpoints WHERE user_id = $1)";

    LIST_OF_CONNECTION = "SELECT id FROM webhook_events WHERE connection_id = $2 AND user_id = $1 LIMIT $3";

    DELETE_OPEN_DELIVERIES = "DELETE FROM webhook_deliveries WHERE user_id = $1 AND ended_at IS NULL
        AND endpoint_id IN (SELECT id FROM webhook_endpoints WHERE user_id = $1)
        AND event_id IN (SELECT id FROM webhook_events WHERE connection_id = $2 AND user_id = $1)";
}

/// An event to store.
#[derive(Debug, Clone, Copy)]
pub struct NewWebhookEvent<'a> {
    /// Never changes.
    pub id: EventId,
    /// Row digests, new rows first.
    pub rows: &'a [Digest],
    /// New rows in this event.
    pub new_count: u32,
    /// Changed rows in this event.
    pub updated_count: u32,
    /// From 1 to `total_chunks`.
    pub chunk: u32,
    /// The number of events of the run.
    pub total_chunks: u32,
    /// Where its rows lie, sealed by the caller. Empty: unknown.
    pub hint: &'a [u8],
}

impl NewWebhookEvent<'_> {
    pub(crate) fn row_digests(&self) -> Vec<u8> {
        self.rows.iter().flat_map(|row| row.0).collect()
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
    /// None unless the type is `connection.updated`.
    pub status_change: Option<ConnectionStatusChange>,
}

/// What a `connection.updated` event says: its connection at the time of the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionStatusChange {
    pub provider: String,
    pub institution_name: String,
    pub status: ConnectionStatus,
    pub previous_status: ConnectionStatus,
    pub last_refreshed_at: Option<Timestamp>,
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
            let mut tx = self.0.db.begin().await?;
            if lock_user_if_exists(&mut tx, user).await? {
                endpoints::lock_endpoints(&mut tx, user).await?;
                for event in events {
                    deleted += tx.run(DELETE, params![user, event]).await?;
                    delete_deliveries(&mut tx, user, event).await?;
                }
            }
            tx.commit().await?;
        }
        Ok(deleted)
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
        tx.run(DELETE, params![user, event]).await?;
        delete_deliveries(tx, user, event).await?;
        deleted += 1;
    }
    Ok(deleted)
}

async fn delete_deliveries(tx: &mut Tx, user: UserId, event: EventId) -> Result<()> {
    tx.run(DELETE_DELIVERIES, params![user, event]).await?;
    tx.run(DELETE_ATTEMPTS, params![user, event]).await.map(|_| ())
}

/// What the events of a sync, a status change or a ping have in common.
pub(crate) struct EventOrigin<'a> {
    pub(crate) user: UserId,
    /// None: a ping.
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) run: SyncRunId,
    pub(crate) event_type: EventType,
    /// The dates that the sync read: from, to.
    pub(crate) date_range: (Timestamp, Timestamp),
    pub(crate) status_change: Option<&'a ConnectionStatusChange>,
    pub(crate) now: Timestamp,
}

/// Stores the events if an endpoint subscribes to their type, with their deliveries. The first chunk is due at
/// `first_attempt_at`, and each later chunk waits for the one before it. For a disabled endpoint a delivery has failed
/// already, so that it can be recovered later. Returns the number of stored events.
///
/// On PostgreSQL, the caller holds the lock on the user's row. A sync has a statement of its own there.
pub(crate) async fn insert_events(
    tx: &mut Tx,
    origin: &EventOrigin<'_>,
    events: &[NewWebhookEvent<'_>],
    first_attempt_at: Timestamp,
) -> Result<u64> {
    if events.is_empty() {
        return Ok(0);
    }
    let subscriber = |row: &Row<'_>| Ok((row.id(0)?, row.word(1, "the status of an endpoint")?));
    let values = params![origin.user, origin.event_type.as_str(), first_attempt_at];
    let subscribers: Vec<(EndpointId, EndpointStatus)> = tx.all(NOTIFY, values, subscriber).await?;
    if subscribers.is_empty() {
        return Ok(0);
    }
    for new in events {
        insert(tx, origin, new).await?;
        for (endpoint, status) in &subscribers {
            let (state, next, ended, error) = match status {
                EndpointStatus::Disabled => ("failed", None, Some(origin.now), Some(ENDPOINT_DISABLED)),
                EndpointStatus::Enabled if new.chunk == 1 => ("pending", Some(first_attempt_at), None, None),
                EndpointStatus::Enabled => ("waiting", None, None, None),
            };
            let (chunk, run) = (i64::from(new.chunk), origin.run);
            let values = params![origin.user, *endpoint, new.id, run, chunk, origin.now, state, next, ended, error];
            tx.run(INSERT_DELIVERY, values).await?;
        }
    }
    Ok(events.len() as u64)
}

/// Stores an event.
pub(crate) async fn insert(tx: &mut Tx, origin: &EventOrigin<'_>, new: &NewWebhookEvent<'_>) -> Result<()> {
    let digests = new.row_digests();
    let change = origin.status_change;
    let values = params![
        origin.user,
        new.id,
        origin.connection,
        origin.run,
        origin.event_type.as_str(),
        origin.now,
        origin.date_range.0,
        origin.date_range.1,
        digests.as_slice(),
        i64::from(new.new_count),
        i64::from(new.updated_count),
        i64::from(new.chunk),
        i64::from(new.total_chunks),
        new.hint,
        change.map(|change| change.status.as_str()),
        change.map(|change| change.previous_status.as_str()),
        change.map(|change| change.provider.as_str()),
        change.map(|change| change.institution_name.as_str()),
        change.and_then(|change| change.last_refreshed_at)
    ];
    tx.run(INSERT, values).await.map(|_| ())
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
        status_change: status_change(row)?,
    })
}

fn status_change(row: &Row<'_>) -> Result<Option<ConnectionStatusChange>> {
    let Some(status) = row.opt_word(13, "a connection status")? else { return Ok(None) };
    Ok(Some(ConnectionStatusChange {
        status,
        previous_status: row.word(14, "a connection status")?,
        provider: row.text(15)?.to_owned(),
        institution_name: row.text(16)?.to_owned(),
        last_refreshed_at: row.opt_time(17)?,
    }))
}
