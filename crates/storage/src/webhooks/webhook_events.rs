//! Stores webhook events: an envelope and the digests of its rows (transactions or trades). The rows themselves stay at
//! the provider, where a redelivery reads them again.

use std::collections::BTreeMap;

use bellbird_domain::webhook_event::DIGEST_BYTES;
use bellbird_domain::{ConnectionId, Digest, EventId, EventType, SyncRunId, UserId};
use jiff::Timestamp;

use crate::db::{Row, Tx, params, statements};
use crate::digest::parse_digest;
use crate::error::Result;
use crate::locks::lock_user_if_exists;
use crate::webhooks::endpoints::{self, endpoint_disabled};
use crate::{Storage, StorageError};

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
            "total_chunks"
        )
    };
}
pub(crate) use webhook_event_columns;

statements! {
    INSERT = "INSERT INTO webhook_events (user_id, id, connection_id, sync_run_id, event_type, created_at,
            date_range_from, date_range_to, row_digests, new_count, updated_count, chunk, total_chunks)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

    /// Creates a delivery for each endpoint that subscribes to the event type. For a disabled endpoint it has failed
    /// already, so that it can be recovered later.
    INSERT_DELIVERIES = concat!(
        "INSERT INTO webhook_deliveries (user_id, endpoint_id, event_id, sync_run_id, chunk, created_at, state,
            next_attempt_at, ended_at, last_error)
        SELECT user_id, id, $2, $3, CAST($4 AS BIGINT), CAST($5 AS BIGINT),
            CASE WHEN status = 'disabled' THEN 'failed' ELSE $6 END,
            CASE WHEN status <> 'disabled' AND $6 = 'pending' THEN CAST($8 AS BIGINT) END,
            CASE WHEN status = 'disabled' THEN CAST($5 AS BIGINT) END,
            CASE WHEN status = 'disabled' THEN ",
        endpoint_disabled!(),
        " END
        FROM webhook_endpoints WHERE user_id = $1 AND (',' || event_types || ',') LIKE ('%,' || $7 || ',%')"
    );

    FIND = concat!("SELECT ", webhook_event_columns!(""), " FROM webhook_events WHERE user_id = $1 AND id = $2");

    LIST_LATER = concat!(
        "SELECT ",
        webhook_event_columns!(""),
        " FROM webhook_events WHERE sync_run_id = $2 AND chunk > $3 AND user_id = $1 ORDER BY chunk LIMIT $4"
    );

    LIST_OUTDATED = "SELECT user_id, id FROM webhook_events WHERE created_at < $1 ORDER BY created_at LIMIT $2";

    DELETE = "DELETE FROM webhook_events WHERE user_id = $1 AND id = $2";

    DELETE_OF_CONNECTION = "DELETE FROM webhook_events WHERE connection_id = $2 AND user_id = $1";
}

/// An event to store.
#[derive(Debug, Clone, Copy)]
pub struct NewWebhookEvent<'a> {
    /// Never changes.
    pub id: EventId,
    pub event_type: EventType,
    /// The dates that the sync read: from, to.
    pub date_range: (Timestamp, Timestamp),
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
}

impl Storage {
    pub async fn find_webhook_event(&self, user: UserId, id: EventId) -> Result<Option<WebhookEvent>> {
        self.db.one(FIND, params![user, id], webhook_event).await
    }

    /// Lists the next events of a run after a chunk, in their order.
    pub async fn list_later_chunks(
        &self,
        user: UserId,
        run: SyncRunId,
        chunk: u32,
        limit: u32,
    ) -> Result<Vec<WebhookEvent>> {
        self.db.all(LIST_LATER, params![user, run, i64::from(chunk), i64::from(limit)], webhook_event).await
    }

    /// Deletes up to `limit` of the oldest events created before `before`, with their deliveries and attempts. Returns
    /// the number of deleted events, which is less than `limit` at the end.
    pub async fn delete_outdated_webhook_events(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let found = self.db.all(LIST_OUTDATED, params![before, i64::from(limit)], ids).await?;
        let mut events_by_user: BTreeMap<UserId, Vec<EventId>> = BTreeMap::new();
        for (user, event) in found {
            events_by_user.entry(user).or_default().push(event);
        }
        let mut deleted = 0;
        for (user, events) in events_by_user {
            let mut tx = self.db.begin().await?;
            if lock_user_if_exists(&mut tx, user).await? {
                endpoints::lock_endpoints(&mut tx, user).await?;
                for event in events {
                    deleted += tx.run(DELETE, params![user, event]).await?;
                }
            }
            tx.commit().await?;
        }
        Ok(deleted)
    }
}

/// Deletes all events of a connection, with their deliveries. The caller holds the locks on the user's endpoints.
pub(crate) async fn delete_webhook_events_of(tx: &mut Tx, user: UserId, connection: ConnectionId) -> Result<()> {
    tx.run(DELETE_OF_CONNECTION, params![user, connection]).await.map(|_| ())
}

/// The sync that events come from.
pub(crate) struct SyncedEvents {
    pub(crate) user: UserId,
    pub(crate) connection: ConnectionId,
    pub(crate) run: SyncRunId,
    pub(crate) now: Timestamp,
    pub(crate) first_attempt_at: Timestamp,
}

/// Stores the events that an endpoint subscribes to, with their deliveries. The first chunk is due at
/// `first_attempt_at`, and each later chunk waits for the one before it. Returns the number of stored events. The
/// caller holds the locks on the rows of the user and the connection.
pub(crate) async fn insert_events(tx: &mut Tx, sync: &SyncedEvents, events: &[NewWebhookEvent<'_>]) -> Result<u64> {
    let Some(first) = events.iter().map(|event| event.chunk).min() else { return Ok(0) };
    let subscribers = endpoints::lock_subscribers(tx, sync.user).await?;
    let mut written = 0;
    for new in events {
        if !subscribers.iter().any(|events| events.contains(&new.event_type)) {
            continue;
        }
        insert(tx, (sync.user, Some(sync.connection)), sync.run, new, sync.now).await?;
        let (event_type, state) = (new.event_type.as_str(), if new.chunk == first { "pending" } else { "waiting" });
        let values = params![
            sync.user,
            new.id,
            sync.run,
            i64::from(new.chunk),
            sync.now,
            state,
            event_type,
            sync.first_attempt_at
        ];
        tx.run(INSERT_DELIVERIES, values).await?;
        written += 1;
    }
    Ok(written)
}

/// Stores an event. The caller holds the lock on the user's row.
pub(crate) async fn insert(
    tx: &mut Tx,
    (user, connection): (UserId, Option<ConnectionId>),
    run: SyncRunId,
    new: &NewWebhookEvent<'_>,
    now: Timestamp,
) -> Result<()> {
    let digests: Vec<u8> = new.rows.iter().flat_map(|row| row.0).collect();
    let values = params![
        user,
        new.id,
        connection,
        run,
        new.event_type.as_str(),
        now,
        new.date_range.0,
        new.date_range.1,
        digests.as_slice(),
        i64::from(new.new_count),
        i64::from(new.updated_count),
        i64::from(new.chunk),
        i64::from(new.total_chunks)
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
    })
}
