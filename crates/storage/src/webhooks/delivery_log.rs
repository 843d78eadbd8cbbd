//! Lists deliveries and attempts for the user, and counts them for the operator. Neither request
//! nor response bodies are stored.

use std::fmt;
use std::str::FromStr;

use bellbird_domain::{
    ConnectionId, DeliveryState, EndpointId, EventId, EventType, SyncRunId, UserId,
};
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::Deliveries;
use crate::db::{Row, Tx, from_row, pair, params, statements};
use crate::error::Result;
use crate::webhooks::endpoints::{user_or_null, was_stopped};

/// How many of the newest events of an endpoint are searched for its last test event.
const LAST_PING_AMONG: i64 = 200;

/// The columns that [`delivery`] expects, in its order.
macro_rules! select_deliveries {
    ($rest:literal) => {
        concat!(
            "SELECT e.id, e.event_type, e.sync_run_id, e.chunk, e.total_chunks, e.new_count, e.updated_count,
                e.created_at, d.state, d.attempts, d.next_attempt_at, d.last_attempt_at, d.last_status, d.last_error,
                d.last_duration_ms, d.ended_at, e.user_id, CAST(LENGTH(e.removed) / 24 AS BIGINT), e.connection_id ",
            $rest
        )
    };
}

statements! {
    /// Event ids increase with time. `CROSS JOIN` makes SQLite read the deliveries in that order.
    LIST = select_deliveries!(
        "FROM webhook_deliveries d CROSS JOIN webhook_events e
        WHERE d.user_id = $1 AND d.endpoint_id = $2 AND d.state = COALESCE($3, d.state) AND d.event_id < $5
            AND e.user_id = d.user_id AND e.id = d.event_id
        ORDER BY d.event_id DESC LIMIT $4"
    );

    /// The deliveries of all users at an endpoint of the installation.
    LIST_OF_QUEUES = select_deliveries!(
        "FROM webhook_events e CROSS JOIN webhook_deliveries d
        WHERE d.user_id = e.user_id AND d.endpoint_id = $1 AND d.event_id = e.id AND d.state = COALESCE($2, d.state)
            AND (e.created_at, e.id) < ($4, $5)
        ORDER BY e.created_at DESC, e.id DESC LIMIT $3"
    );

    /// As [`LIST_OF_QUEUES`], of those in the one state that is rare and asked for.
    LIST_FAILED_OF_QUEUES = select_deliveries!(
        "FROM webhook_deliveries d CROSS JOIN webhook_events e
        WHERE d.endpoint_id = $1 AND d.state = 'failed' AND (d.created_at, d.event_id) < ($3, $4)
            AND e.user_id = d.user_id AND e.id = d.event_id
        ORDER BY d.created_at DESC, d.event_id DESC LIMIT $2"
    );

    FIND = select_deliveries!(
        "FROM webhook_deliveries d CROSS JOIN webhook_events e
        WHERE d.user_id = $1 AND d.endpoint_id = $2 AND d.event_id = $3 AND e.user_id = $1 AND e.id = $3"
    );

    /// The newest test event among the newest events, so that a long log is not read for it.
    FIND_LAST_PING = select_deliveries!(
        "FROM webhook_deliveries d CROSS JOIN webhook_events e
        WHERE d.user_id = $1 AND d.endpoint_id = $2 AND d.event_id IN (SELECT n.event_id FROM webhook_deliveries n
                WHERE n.user_id = $1 AND n.endpoint_id = $2 ORDER BY n.event_id DESC LIMIT $4)
            AND e.user_id = d.user_id AND e.id = d.event_id AND e.event_type = $3
        ORDER BY d.event_id DESC LIMIT 1"
    );

    /// A success at the first attempt has no row of its own, and no attempt comes after it. Sorted
    /// in Rust: with ORDER BY, SQLite would read all attempts of the endpoint.
    LIST_ATTEMPTS = "SELECT id, attempt, attempted_at, duration_ms, status, error FROM webhook_attempts
        WHERE user_id = $1 AND endpoint_id = $2 AND event_id = $3
        UNION ALL
        SELECT 'ffffffff-ffff-ffff-ffff-ffffffffffff', attempts, last_attempt_at, last_duration_ms, last_status,
            last_error
        FROM webhook_deliveries
        WHERE user_id = $1 AND endpoint_id = $2 AND event_id = $3 AND state = 'delivered' AND attempts = 1";

    COUNT = "SELECT COUNT(CASE WHEN next_attempt_at <= $1 THEN 1 END), COUNT(next_attempt_at),
            COUNT(CASE WHEN state = 'waiting' THEN 1 END), MIN(CASE WHEN next_attempt_at <= $1 THEN next_attempt_at END)
        FROM webhook_deliveries WHERE ended_at IS NULL";

    /// Neither reads the endpoints that are all right.
    COUNT_ENDPOINTS = concat!(
        "SELECT (SELECT COUNT(*) FROM webhook_endpoints WHERE ", was_stopped!(), "),
            (SELECT COUNT(DISTINCT q.endpoint_id) FROM webhook_queues q CROSS JOIN webhook_endpoints e
            WHERE q.failing_since IS NOT NULL AND e.user_id = q.owner_id AND e.id = q.endpoint_id
                AND e.status <> 'disabled' AND q.failing_since >= e.enabled_at)"
    );
}

/// The delivery of an event to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Delivery)]
pub struct DeliveryRecord {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub event_id: EventId,
    /// Whose event it is. Null: nobody's, because it is a ping of an endpoint for all users.
    // Then [`UserId::INSTALLATION`].
    #[serde(serialize_with = "user_or_null")]
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    #[schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub user_id: UserId,
    /// The type of the event.
    #[serde(rename = "type")]
    #[schema(inline, example = "transactions.synced")]
    pub event_type: EventType,
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub sync_run_id: SyncRunId,
    /// From 1 to `totalChunks`.
    #[schema(example = 1)]
    pub chunk: u32,
    #[schema(example = 1)]
    pub total_chunks: u32,
    /// New rows in the event.
    #[schema(example = 3)]
    pub new_count: u32,
    /// Changed rows in the event.
    #[schema(example = 0)]
    pub updated_count: u32,
    /// Rows in the event that are gone.
    #[schema(example = 0)]
    pub removed_count: u32,
    /// When the event was created.
    #[schema(value_type = String, format = "date-time", example = "2026-11-20T21:04:11.52Z")]
    pub created_at: Timestamp,
    /// `pending`, `waiting` for the chunk before, `delivered` or `failed`.
    #[schema(inline, example = "delivered")]
    pub state: DeliveryState,
    /// Starts again from 0 with a redelivery.
    #[schema(example = 1)]
    pub attempts: u32,
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2026-11-20T21:04:11.52Z")]
    pub next_attempt_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2026-11-20T21:04:11.52Z")]
    pub last_attempt_at: Option<Timestamp>,
    /// HTTP status of the last attempt. Null: no response, or no attempt yet.
    #[schema(required = true, example = 204)]
    pub last_status: Option<u16>,
    /// A few words.
    #[schema(required = true, example = "timeout")]
    pub last_error: Option<String>,
    #[schema(required = true, example = 84)]
    pub last_duration_ms: Option<u32>,
    /// When it was delivered, or failed and was no longer retried.
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2026-11-20T21:04:11.52Z")]
    pub ended_at: Option<Timestamp>,
    // None: the event is about no connection. The console shows the bank's name in its place.
    #[serde(skip)]
    #[schema(ignore)]
    pub connection_id: Option<ConnectionId>,
}

/// Where a page of deliveries ends: when the event was created, and its id.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryPosition(pub Timestamp, pub EventId);

impl fmt::Display for DeliveryPosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.0.as_microsecond(), self.1)
    }
}

impl FromStr for DeliveryPosition {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let (at, event) = text.split_once('.').ok_or(())?;
        let at = at
            .parse()
            .ok()
            .and_then(|at| Timestamp::from_microsecond(at).ok())
            .ok_or(())?;
        Ok(Self(at, event.parse().map_err(|_| ())?))
    }
}

impl DeliveryRecord {
    pub fn position(&self) -> DeliveryPosition {
        DeliveryPosition(self.created_at, self.event_id)
    }
}

/// An attempt to deliver an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeliveryAttempt)]
pub struct AttemptRecord {
    /// From 1, counted on after a redelivery.
    #[schema(example = 1)]
    pub attempt: u32,
    #[schema(value_type = String, format = "date-time", example = "2026-11-20T21:04:11.52Z")]
    pub at: Timestamp,
    #[schema(example = 84)]
    pub duration_ms: u32,
    /// HTTP status. Null: no response.
    #[schema(required = true, example = 204)]
    pub status: Option<u16>,
    /// A few words.
    #[schema(required = true, example = "timeout")]
    pub error: Option<String>,
}

/// Counts of all users' deliveries and endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryOverview {
    /// Deliveries whose next attempt is due.
    pub due: u64,
    /// Deliveries with a next attempt, due or later.
    pub pending: u64,
    /// Deliveries that wait for the chunk before them.
    pub waiting: u64,
    /// When the longest due attempt became due.
    pub oldest_due: Option<Timestamp>,
    /// Endpoints that are disabled, and not on purpose.
    pub disabled: u64,
    /// Enabled endpoints whose last attempts failed.
    pub failing: u64,
}

impl Deliveries<'_> {
    /// Lists deliveries to the user's endpoint, or those of all users to an endpoint of the
    /// installation, newest event first, in one state or in all.
    pub async fn list(
        self,
        user: UserId,
        endpoint: EndpointId,
        state: Option<DeliveryState>,
        limit: u32,
    ) -> Result<Vec<DeliveryRecord>> {
        self.list_before(None, (user, endpoint), state, limit).await
    }

    /// As [`Self::list`], of events before this one, which was created then.
    pub async fn list_before(
        self,
        before: Option<(Timestamp, EventId)>,
        (user, endpoint): (UserId, EndpointId),
        state: Option<DeliveryState>,
        limit: u32,
    ) -> Result<Vec<DeliveryRecord>> {
        let (created_at, id) = before.map_or((Timestamp::MAX, Uuid::max()), |(at, event)| {
            (at, event.uuid())
        });
        if user != UserId::INSTALLATION {
            let values = params![user, endpoint, state, limit, id];
            return self.db.all(LIST, values, delivery).await;
        }
        if state == Some(DeliveryState::Failed) {
            let values = params![endpoint, limit, created_at, id];
            return self.db.all(LIST_FAILED_OF_QUEUES, values, delivery).await;
        }
        let values = params![endpoint, state, limit, created_at, id];
        self.db.all(LIST_OF_QUEUES, values, delivery).await
    }

    /// Finds the delivery of an event to the user's endpoint.
    pub async fn find(
        self,
        user: UserId,
        endpoint: EndpointId,
        event: EventId,
    ) -> Result<Option<DeliveryRecord>> {
        self.db
            .one(FIND, params![user, endpoint, event], delivery)
            .await
    }

    /// Finds the last test event among the newest events of the user's endpoint.
    pub async fn find_last_ping(
        self,
        user: UserId,
        endpoint: EndpointId,
    ) -> Result<Option<DeliveryRecord>> {
        let values = params![user, endpoint, EventType::Ping, LAST_PING_AMONG];
        self.db.one(FIND_LAST_PING, values, delivery).await
    }

    /// Lists the attempts to deliver an event to the user's endpoint, oldest first.
    pub async fn list_attempts(
        self,
        user: UserId,
        endpoint: EndpointId,
        event: EventId,
    ) -> Result<Vec<AttemptRecord>> {
        let mut attempts = self
            .db
            .all(LIST_ATTEMPTS, params![user, endpoint, event], attempt)
            .await?;
        attempts.sort_unstable_by_key(|(id, _)| *id);
        // The stored number starts again with a redelivery.
        let numbered = (1..)
            .zip(attempts)
            .map(|(number, (_, attempt))| AttemptRecord {
                attempt: number,
                ..attempt
            });
        Ok(numbered.collect())
    }

    pub async fn overview(self, now: Timestamp) -> Result<DeliveryOverview> {
        let counted = self
            .db
            .one(COUNT, params![now], overview)
            .await?
            .unwrap_or_default();
        let (disabled, failing) = self
            .db
            .one(COUNT_ENDPOINTS, params![], pair)
            .await?
            .unwrap_or_default();
        Ok(DeliveryOverview {
            disabled,
            failing,
            ..counted
        })
    }
}

/// As `storage.deliveries().find`, in a transaction.
pub async fn find(
    tx: &mut Tx,
    (user, endpoint): (UserId, EndpointId),
    event: EventId,
) -> Result<Option<DeliveryRecord>> {
    tx.one(FIND, params![user, endpoint, event], delivery).await
}

from_row! {
    fn delivery(row) -> DeliveryRecord {
        event_id, event_type, sync_run_id, chunk: "the number of a chunk",
        total_chunks: "a count of chunks", new_count: "a count of rows",
        updated_count: "a count of rows", created_at, state, attempts: "a number of attempts",
        next_attempt_at, last_attempt_at, last_status, last_error,
        last_duration_ms = row.opt_number(14, "a duration")?, ended_at, user_id,
        removed_count: "a count of rows", connection_id,
    }
}

/// Reads the attempt and its id.
fn attempt(row: &Row<'_>) -> Result<(Uuid, AttemptRecord)> {
    let record = AttemptRecord {
        attempt: row.number(1, "a number of attempts")?,
        at: row.get(2)?,
        duration_ms: row.number(3, "a duration")?,
        status: row.get(4)?,
        error: row.get(5)?,
    };
    Ok((row.get(0)?, record))
}

from_row! {
    fn overview(row) -> DeliveryOverview {
        due, pending, waiting, oldest_due, disabled = 0, failing = 0,
    }
}
