//! Stores webhook events: an envelope and the keys of its rows (transactions or trades). The rows
//! themselves stay at the provider, where a redelivery reads them again.

use std::collections::BTreeMap;

use bellbird_domain::{
    AccountId, ApiVersion, ConnectionCategory, ConnectionId, ConnectionStatus, EndpointId, EventId,
    EventType, Plan, RemovedRow, RowKey, SyncRunId, UserId,
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::db::{Bound, Row, Tx, from_row, named, params, scalar, statements};
use crate::error::Result;
use crate::jobs::{ClaimedJob, sync_is_held};
use crate::locks::user_lock;
use crate::webhooks::endpoints::{self, ENDPOINT_DISABLED};
use crate::{StorageError, WebhookEvents};

/// The columns that [`webhook_event`] expects, in its order, of the events `e`. `$rest` may begin
/// with more columns.
macro_rules! select_events {
    ($rest:literal) => {
        concat!(
            "SELECT e.id, e.event_type, e.connection_id, e.sync_run_id, e.created_at, e.new_count, e.updated_count,
                e.chunk, e.total_chunks, e.row_locator, e.date_range_from, e.date_range_to, e.row_keys, e.removed,
                e.connection_status, e.previous_status, e.provider, e.institution_name, e.last_refreshed_at,
                e.consent_expires_at, e.category, e.institution_id",
            $rest
        )
    };
}
pub(crate) use select_events;

/// The endpoints `p` of a user and of the installation that subscribe to a type of events, in a
/// version of their body from `:version_min` on.
macro_rules! subscribers {
    () => {
        "FROM webhook_endpoints p
        WHERE p.user_id IN (:user, '00000000-0000-0000-0000-000000000000') AND p.api_version >= :version_min
            AND (',' || p.event_types || ',') LIKE ('%,' || :event_type || ',%')"
    };
}

statements! {
    /// Without a fence, the caller has made sure that it may write. Except for a ping, stores
    /// nothing without a subscriber, nor for a user who has none of `:plans` or was removed: a sync
    /// may end later. Returns to how many endpoints the event is sent: none while all that
    /// subscribe are disabled.
    INSERT = concat!(
        "INSERT INTO webhook_events (user_id, id, connection_id, sync_run_id, event_type, created_at,
            date_range_from, date_range_to, row_keys, new_count, updated_count, chunk, total_chunks, row_locator,
            connection_status, previous_status, provider, institution_name, last_refreshed_at, removed,
            consent_expires_at, category, institution_id)
        SELECT :user, :id, :connection, :run, :event_type, :now,
            :date_range_from, :date_range_to, :row_keys, :new_count, :updated_count, :chunk, :total_chunks,
            :row_locator, :connection_status, :previous_status, :provider, :institution_name, :last_refreshed_at,
            :removed, :consent_expires_at, :category, :institution_id
        WHERE :event_type = 'endpoint.ping' OR (EXISTS (SELECT 1 ",
        subscribers!(),
        ") AND EXISTS (SELECT 1 FROM users u WHERE u.id = :user AND :plans LIKE '%' || u.plan || '%')
            AND (CAST(:fence AS BIGINT) IS NULL OR ",
        sync_is_held!(),
        ")) RETURNING (SELECT COUNT(*) ",
        subscribers!(),
        " AND p.status <> 'disabled')"
    );

    /// If the event was stored, locks the user's queues at the endpoints that subscribe to its
    /// type, always in the same order, and adds those that are missing. What follows sees whether
    /// the holder of a claim has disabled an endpoint meanwhile.
    ADD_QUEUES = concat!(
        "INSERT INTO webhook_queues (user_id, endpoint_id, owner_id) SELECT :user, p.id, p.user_id ",
        subscribers!(),
        " AND EXISTS (SELECT 1 FROM webhook_events WHERE user_id = :user AND id = :event) ORDER BY p.id
        ON CONFLICT (user_id, endpoint_id) DO UPDATE SET owner_id = excluded.owner_id WHERE 1 = 0"
    );

    /// Inserts the deliveries of the first chunk, if it was stored. Those to a disabled endpoint
    /// have failed already. An endpoint of the installation may change between two statements, so
    /// the deliveries decide what follows. One that was added since has no queue, and gets none.
    INSERT_DELIVERIES = concat!(
        "INSERT INTO webhook_deliveries (user_id, endpoint_id, event_id, sync_run_id, chunk, created_at, state,
            next_attempt_at, ended_at, last_error)
        SELECT e.user_id, p.id, e.id, e.sync_run_id, e.chunk, e.created_at,
            CASE WHEN p.status = 'disabled' THEN 'failed' ELSE 'pending' END,
            CASE WHEN p.status <> 'disabled' THEN CAST(:due_at AS BIGINT) END,
            CASE WHEN p.status = 'disabled' THEN e.created_at END,
            CASE WHEN p.status = 'disabled' THEN :error END
        FROM webhook_events e CROSS JOIN (SELECT p.id, p.status ",
        subscribers!(),
        " AND EXISTS (SELECT 1 FROM webhook_queues q WHERE q.user_id = :user AND q.endpoint_id = p.id)
        ) p WHERE e.user_id = :user AND e.id = :event"
    );

    /// Makes the queues that got a first chunk due at `:due_at`, unless they are due before. Writes
    /// those too: if the endpoint began to subscribe after [`ADD_QUEUES`], the queue is not locked,
    /// and a claim of it may be released at this moment.
    MAKE_QUEUES_DUE = "UPDATE webhook_queues SET due_at = CASE WHEN due_at <= :due_at THEN due_at ELSE :due_at END
        WHERE user_id = :user AND EXISTS (SELECT 1 FROM webhook_deliveries d
            WHERE d.user_id = :user AND d.endpoint_id = webhook_queues.endpoint_id AND d.event_id = :event
                AND d.state = 'pending')";

    /// Inserts the deliveries of a later chunk, which wait for those of the first one, or have
    /// failed as these.
    INSERT_LATER_DELIVERIES = "INSERT INTO webhook_deliveries
            (user_id, endpoint_id, event_id, sync_run_id, chunk, created_at, state, ended_at, last_error)
        SELECT e.user_id, d.endpoint_id, e.id, e.sync_run_id, e.chunk,
            e.created_at, CASE WHEN d.state = 'pending' THEN 'waiting' ELSE d.state END, d.ended_at, d.last_error
        FROM webhook_queues q CROSS JOIN webhook_deliveries d CROSS JOIN webhook_events e
        WHERE q.user_id = :user AND d.user_id = :user AND d.endpoint_id = q.endpoint_id AND d.event_id = :first
            AND e.user_id = :user AND e.id = :event";

    FIND = select_events!(" FROM webhook_events e WHERE e.user_id = $1 AND e.id = $2");

    LIST_WAITING = select_events!(
        " FROM webhook_deliveries d CROSS JOIN webhook_events e
        WHERE d.user_id = $1 AND d.endpoint_id = $2 AND d.sync_run_id = $3 AND d.chunk > $4 AND d.ended_at IS NULL
            AND e.user_id = $1 AND e.id = d.event_id
        ORDER BY d.chunk LIMIT $5"
    );

    /// Events of before `$1`, after `$3` and `$4`, and whether they are of before `$2` or all their
    /// deliveries have succeeded.
    LIST_OLD = "SELECT e.user_id, e.id, e.created_at, CAST(CASE WHEN e.created_at < $2 OR NOT EXISTS (SELECT 1
                FROM webhook_queues q CROSS JOIN webhook_deliveries d
                WHERE q.user_id = e.user_id AND d.user_id = e.user_id AND d.endpoint_id = q.endpoint_id
                    AND d.event_id = e.id AND d.state <> 'delivered') THEN 1 ELSE 0 END AS BIGINT)
        FROM webhook_events e WHERE e.created_at < $1 AND (e.created_at, e.id) > ($3, $4)
        ORDER BY e.created_at, e.id LIMIT $5";

    DELETE = "DELETE FROM webhook_events WHERE user_id = $1 AND id = $2 RETURNING chunk";

    /// Names the queues, as the keys of both tables do: an index by event alone would be one more
    /// to write.
    DELETE_DELIVERIES = "DELETE FROM webhook_deliveries WHERE user_id = $1 AND event_id = $2
        AND endpoint_id IN (SELECT endpoint_id FROM webhook_queues WHERE user_id = $1)";

    DELETE_ATTEMPTS = "DELETE FROM webhook_attempts WHERE user_id = $1 AND event_id = $2
        AND endpoint_id IN (SELECT endpoint_id FROM webhook_queues WHERE user_id = $1)";

    /// The event of its removal outlives it.
    LIST_OF_CONNECTION = "SELECT id FROM webhook_events
        WHERE connection_id = $2 AND user_id = $1 AND event_type <> 'connection.removed' LIMIT $3";

    DELETE_OPEN_DELIVERIES = "DELETE FROM webhook_deliveries WHERE user_id = $1 AND ended_at IS NULL
        AND endpoint_id IN (SELECT endpoint_id FROM webhook_queues WHERE user_id = $1)
        AND event_id IN (SELECT id FROM webhook_events WHERE connection_id = $2 AND user_id = $1)";
}

/// An event to store.
#[derive(Debug, Clone)]
pub struct NewWebhookEvent {
    /// Never changes.
    pub id: EventId,
    /// The keys of its rows, one after the other, new rows first.
    pub row_keys: Vec<u8>,
    /// New rows in this event.
    pub new_count: u32,
    /// Changed rows in this event.
    pub updated_count: u32,
    /// From 1 to `total_chunks`.
    pub chunk: u32,
    /// The number of events of the run.
    pub total_chunks: u32,
    /// Where its rows lie, sealed by the caller. Empty: unknown.
    pub row_locator: Vec<u8>,
    /// Rows that are gone, by [`removed_bytes`]. Such an event has no others, and is sent only in
    /// versions of the body that report them.
    pub removed: Vec<u8>,
}

impl NewWebhookEvent {
    /// The only event of its run.
    #[must_use]
    pub fn without_rows(id: EventId) -> Self {
        Self {
            id,
            row_keys: Vec::new(),
            new_count: 0,
            updated_count: 0,
            chunk: 1,
            total_chunks: 1,
            row_locator: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// The first version of the body in which it is sent.
    fn version_min(&self) -> &'static str {
        if self.removed.is_empty() {
            ""
        } else {
            ApiVersion::V2026_12_01.as_str()
        }
    }
}

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookEvent {
    pub id: EventId,
    pub event_type: EventType,
    /// None: a ping or `user.removed`, which have no rows.
    pub connection_id: Option<ConnectionId>,
    pub sync_run_id: SyncRunId,
    pub created_at: Timestamp,
    /// The dates that the sync read: from, to.
    pub date_range: (Timestamp, Timestamp),
    /// The keys of its rows, new rows first.
    pub rows: Vec<RowKey>,
    /// New rows in this event.
    pub new_count: u32,
    /// Changed rows in this event.
    pub updated_count: u32,
    /// From 1 to `total_chunks`.
    pub chunk: u32,
    /// The number of events of the run.
    pub total_chunks: u32,
    /// Where its rows lie, as [`NewWebhookEvent::row_locator`].
    pub row_locator: Vec<u8>,
    /// What the event says of its connection. None: it has rows, or is a ping or
    /// `connection.removed`.
    pub shown: Option<EventConnection>,
    /// Rows that are gone.
    pub removed: Vec<RemovedRow>,
}

impl WebhookEvent {
    /// Whether its body needs the provider. That of a ping, of an event about a connection or a
    /// user, or of removed rows does not.
    #[must_use]
    pub fn has_rows(&self) -> bool {
        self.connection_id.is_some() && !self.rows.is_empty()
    }
}

/// A connection at the time of an event about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventConnection {
    pub provider: String,
    pub category: ConnectionCategory,
    /// The provider's id of the institution.
    pub institution_id: String,
    pub institution_name: String,
    pub status: ConnectionStatus,
    /// None: the status has not changed.
    pub previous_status: Option<ConnectionStatus>,
    pub last_refreshed_at: Option<Timestamp>,
    pub consent_expires_at: Option<Timestamp>,
}

impl WebhookEvents<'_> {
    pub async fn find(self, user: UserId, id: EventId) -> Result<Option<WebhookEvent>> {
        self.db.one(FIND, params![user, id], webhook_event).await
    }

    /// Lists the events of a run that an endpoint gets after a chunk, in their order.
    pub async fn list_waiting_chunks(
        self,
        (user, endpoint): (UserId, EndpointId),
        run: SyncRunId,
        chunk: u32,
        limit: u32,
    ) -> Result<Vec<WebhookEvent>> {
        let values = params![user, endpoint, run, chunk, limit];
        self.db.all(LIST_WAITING, values, webhook_event).await
    }

    /// Deletes events with their deliveries and attempts: those of before `delivered_before` whose
    /// deliveries have all succeeded, and all of before `before`. Looks at `batch_size` events in
    /// one transaction.
    pub async fn delete_outdated(
        self,
        delivered_before: Timestamp,
        before: Timestamp,
        batch_size: u32,
    ) -> Result<u64> {
        let (mut after, mut deleted) = ((Timestamp::MIN, EventId::from(Uuid::nil())), 0);
        loop {
            let values = params![delivered_before, before, after.0, after.1, batch_size];
            let found = self.db.all(LIST_OLD, values, old_event).await?;
            let Some(last) = found.last() else {
                return Ok(deleted);
            };
            after = (last.created_at, last.id);
            let mut events_by_user: BTreeMap<UserId, Vec<EventId>> = BTreeMap::new();
            for event in found.iter().filter(|event| event.is_outdated) {
                events_by_user.entry(event.user).or_default().push(event.id);
            }
            for (user, events) in events_by_user {
                let mut statements = vec![user_lock(user), endpoints::queues_lock(user)];
                statements.extend(events.iter().flat_map(|event| deletion(user, *event)));
                deleted += self.db.batch(&statements).await?[2..]
                    .iter()
                    .flatten()
                    .count() as u64;
            }
        }
    }
}

/// An event that may be deleted.
struct OldEvent {
    user: UserId,
    id: EventId,
    created_at: Timestamp,
    is_outdated: bool,
}

/// Deletes the deliveries of a connection's events that have not ended, so that none is sent any
/// more. The caller holds the locks on the user's endpoints.
pub(crate) async fn delete_open_deliveries_of(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
) -> Result<()> {
    tx.execute(DELETE_OPEN_DELIVERIES, params![user, connection])
        .await
}

/// Deletes up to `limit` events of a connection, with their deliveries, and returns their number.
/// The caller holds the locks on the user's endpoints.
pub(crate) async fn delete_webhook_events_of(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
    limit: u32,
) -> Result<u32> {
    let mut deleted = 0;
    let values = params![user, connection, limit];
    for event in tx.all(LIST_OF_CONNECTION, values, scalar).await? {
        tx.batch(&deletion(user, event)).await?;
        deleted += 1;
    }
    Ok(deleted)
}

/// Deletes an event with its deliveries. Only the first statement returns a number, if the event
/// existed.
fn deletion<'a>(user: UserId, event: EventId) -> [Bound<'a>; 3] {
    [DELETE, DELETE_DELIVERIES, DELETE_ATTEMPTS].map(|sql| (sql, params![user, event].to_vec()))
}

/// What the events of a sync, about a connection or a user, or of a ping have in common.
pub(crate) struct EventOrigin<'a> {
    pub(crate) user: UserId,
    /// None: a ping or `user.removed`.
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

/// Stores the events if an endpoint subscribes to their type, with their deliveries. The first
/// chunk is due at `first_attempt_at`, and each later chunk waits for the one before it. For a
/// disabled endpoint a delivery has failed already, so that it can be recovered later.
///
/// The first statements store one event each, and return to how many endpoints it is sent. The
/// others depend on what these stored. The transaction holds the lock on the user's row.
pub(crate) fn insert_events<'a>(
    origin: &EventOrigin<'a>,
    events: &'a [NewWebhookEvent],
    first_attempt_at: Timestamp,
) -> Vec<Bound<'a>> {
    let Some((first, later)) = events.split_first() else {
        return Vec::new();
    };
    let (user, event_type) = (origin.user, origin.event_type);
    let mut statements: Vec<_> = events.iter().map(|new| insert(origin, new)).collect();
    statements.push(ADD_QUEUES.with(named![
        user = user,
        event = first.id,
        event_type = event_type,
        version_min = first.version_min(),
    ]));
    statements.push(INSERT_DELIVERIES.with(named![
        user = user,
        event = first.id,
        event_type = event_type,
        version_min = first.version_min(),
        due_at = first_attempt_at,
        error = ENDPOINT_DISABLED,
    ]));
    statements.push(MAKE_QUEUES_DUE.with(named![
        user = user,
        event = first.id,
        due_at = first_attempt_at,
    ]));
    statements.extend(later.iter().map(|new| {
        INSERT_LATER_DELIVERIES.with(named![user = user, first = first.id, event = new.id])
    }));
    statements
}

/// Stores an event, without its deliveries.
pub(crate) fn insert<'a>(origin: &EventOrigin<'a>, new: &'a NewWebhookEvent) -> Bound<'a> {
    let shown = origin.shown;
    INSERT.with(named![
        user = origin.user,
        id = new.id,
        connection = origin.connection,
        run = origin.run,
        event_type = origin.event_type,
        now = origin.now,
        date_range_from = origin.date_range.0,
        date_range_to = origin.date_range.1,
        row_keys = &new.row_keys,
        new_count = new.new_count,
        updated_count = new.updated_count,
        chunk = new.chunk,
        total_chunks = new.total_chunks,
        row_locator = &new.row_locator,
        connection_status = shown.map(|shown| shown.status),
        previous_status = shown.and_then(|shown| shown.previous_status),
        provider = shown.map(|shown| &shown.provider),
        category = shown.map(|shown| shown.category),
        institution_id = shown.map(|shown| &shown.institution_id),
        institution_name = shown.map(|shown| &shown.institution_name),
        last_refreshed_at = shown.and_then(|shown| shown.last_refreshed_at),
        consent_expires_at = shown.and_then(|shown| shown.consent_expires_at),
        removed = &new.removed,
        subject = origin.claim.map(|claim| &claim.key.subject),
        fence = origin.claim.map(|claim| claim.fence),
        version_min = new.version_min(),
        plans = plans_from(origin.event_type.plan_min()),
    ])
}

/// This plan and those that include it.
fn plans_from(plan: Plan) -> &'static str {
    match plan {
        Plan::Saver => "saver,developer,professional",
        Plan::Developer => "developer,professional",
        Plan::Professional => "professional",
    }
}

/// A key and the id of an account.
const REMOVED_BYTES: usize = 24;

/// Rows that are gone, as an event stores them.
#[must_use]
pub fn removed_bytes(removed: &[RemovedRow]) -> Vec<u8> {
    removed
        .iter()
        .flat_map(|row| {
            row.key
                .0
                .into_iter()
                .chain(*row.account_id.uuid().as_bytes())
        })
        .collect()
}

fn removed_row(bytes: &[u8; REMOVED_BYTES]) -> Option<RemovedRow> {
    let (key, account) = bytes.split_first_chunk()?;
    Some(RemovedRow {
        key: RowKey(*key),
        account_id: AccountId::from(Uuid::from_slice(account).ok()?),
    })
}

from_row! {
    fn old_event(row) -> OldEvent {
        user, id, created_at, is_outdated,
    }
}

from_row! {
    /// Reads an event from the first columns of a row.
    pub(crate) fn webhook_event(row) -> WebhookEvent {
        id, event_type, connection_id, sync_run_id, created_at, new_count: "a count of rows",
        updated_count: "a count of rows", chunk: "the number of a chunk",
        total_chunks: "a count of chunks", row_locator,
        date_range = (row.get(10)?, row.get(11)?), rows = rows(row)?, removed = removed(row)?,
        shown = shown(row)?,
    }
}

fn rows(row: &Row<'_>) -> Result<Vec<RowKey>> {
    let (keys, []) = row.blob(12)?.as_chunks() else {
        return Err(StorageError::Corrupt("the keys of an event's rows"));
    };
    Ok(keys.iter().map(|key| RowKey(*key)).collect())
}

fn removed(row: &Row<'_>) -> Result<Vec<RemovedRow>> {
    let (rows, _) = row.blob(13)?.as_chunks();
    Ok(rows.iter().filter_map(removed_row).collect())
}

fn shown(row: &Row<'_>) -> Result<Option<EventConnection>> {
    let Some(status) = row.get(14)? else {
        return Ok(None);
    };
    Ok(Some(EventConnection {
        status,
        previous_status: row.get(15)?,
        provider: row.get(16)?,
        institution_name: row.get(17)?,
        last_refreshed_at: row.get(18)?,
        consent_expires_at: row.get(19)?,
        category: row.get(20)?,
        institution_id: row.get(21)?,
    }))
}
