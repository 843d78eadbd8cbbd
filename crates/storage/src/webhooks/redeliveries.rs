//! Redelivers one event, or recovers all that failed since a time. Also stores the result of a
//! ping, which is sent at once and never redelivered.

use std::collections::BTreeSet;

use bellbird_domain::{EndpointId, EventId, EventType, SyncRunId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::db::{Param, Row, Tx, named, params, statements};
use crate::error::Result;
use crate::locks::lock_user_if_exists;
use crate::webhooks::webhook_events::{self, EventOrigin, NewWebhookEvent};
use crate::{Deliveries, StorageError};

/// Failed deliveries of all users in one read.
const FAILED_PER_READ: u32 = 500;
/// Deliveries of all users from which on a recovery leaves the rest to the next one.
const RECOVERED_MAX: u64 = 10_000;

/// An earlier chunk of the same run that has not ended.
macro_rules! earlier_chunk {
    () => {
        "(SELECT o.chunk FROM webhook_deliveries o
            WHERE o.user_id = $1 AND o.endpoint_id = $2 AND o.sync_run_id = webhook_deliveries.sync_run_id
                AND o.chunk < webhook_deliveries.chunk AND o.ended_at IS NULL)"
    };
}

/// An event that may be sent again: no ping, and no row or status of a connection that is being
/// removed.
macro_rules! can_be_sent_again {
    ($event:literal) => {
        concat!(
            "EXISTS (SELECT e.id FROM webhook_events e
                WHERE e.user_id = $1 AND e.id = ",
            $event,
            " AND e.event_type <> 'endpoint.ping' AND (e.event_type = 'connection.removed'
                    OR NOT EXISTS (SELECT c.id FROM connections c
                        WHERE c.user_id = $1 AND c.id = e.connection_id AND c.status = 'deleting')))"
        )
    };
}

statements! {
    /// The queue of an endpoint's owner, locked. None without the endpoint.
    ADD_QUEUE = "INSERT INTO webhook_queues (user_id, endpoint_id, owner_id)
        SELECT p.user_id, p.id, p.user_id FROM webhook_endpoints p WHERE p.user_id = $1 AND p.id = $2
        ON CONFLICT (user_id, endpoint_id) DO UPDATE SET owner_id = excluded.owner_id";

    LOCK_QUEUE = "SELECT fence FROM webhook_queues WHERE user_id = $1 AND endpoint_id = $2",
        lock = " FOR NO KEY UPDATE";

    /// Runs after [`LOCK_QUEUE`], so that it sees whether the holder of a claim has disabled the
    /// endpoint meanwhile.
    MAKE_DUE = "UPDATE webhook_queues SET due_at = CASE WHEN due_at <= $3 THEN due_at ELSE $3 END
        WHERE user_id = $1 AND endpoint_id = $2 AND EXISTS (SELECT 1 FROM webhook_endpoints p
            WHERE p.user_id = webhook_queues.owner_id AND p.id = $2 AND p.status = 'enabled')";

    /// Gives a first attempt that ended in the state `$5` a row, before the delivery starts again.
    KEEP_ATTEMPT = "INSERT INTO webhook_attempts
            (user_id, endpoint_id, id, event_id, attempt, attempted_at, duration_ms, status, error)
        SELECT user_id, endpoint_id, $4, event_id, attempts, last_attempt_at, last_duration_ms, last_status, last_error
        FROM webhook_deliveries
        WHERE user_id = $1 AND endpoint_id = $2 AND event_id = $3 AND state = $5 AND attempts = 1";

    INSERT_PING = "INSERT INTO webhook_deliveries (user_id, endpoint_id, event_id, sync_run_id, chunk, created_at,
            state, attempts, ended_at, last_status, last_error, last_duration_ms, last_attempt_at)
        VALUES (:user, :endpoint, :event, :run, 1, :at, :state, 1, :at, :status, :error, :duration_ms, :at)";

    REDELIVER = concat!(
        "UPDATE webhook_deliveries SET state = 'pending', attempts = 0, is_requested = 1,
            next_attempt_at = $4, ended_at = NULL
        WHERE user_id = $1 AND endpoint_id = $2 AND event_id = $3 AND state <> 'waiting' AND ",
        can_be_sent_again!("$3")
    );

    /// The failed deliveries of all users at an endpoint, in the order of their index.
    LIST_FAILED = "SELECT created_at, event_id, user_id FROM webhook_deliveries
        WHERE endpoint_id = $1 AND state = 'failed' AND (created_at, event_id) > ($2, $3)
        ORDER BY created_at, event_id LIMIT $4";

    RECOVER = concat!(
        "UPDATE webhook_deliveries SET state = 'waiting', attempts = 0, is_requested = 1, ended_at = NULL
        WHERE user_id = $1 AND endpoint_id = $2 AND state = 'failed' AND created_at >= $3 AND ",
        can_be_sent_again!("webhook_deliveries.event_id")
    );

    /// Holds a chunk back while a recovered earlier one is unfinished. If it is being sent at this
    /// moment, it is sent twice.
    HOLD_BACK = concat!(
        "UPDATE webhook_deliveries SET state = 'waiting', next_attempt_at = NULL
        WHERE user_id = $1 AND endpoint_id = $2 AND state = 'pending' AND ended_at IS NULL AND EXISTS ",
        earlier_chunk!()
    );

    /// Makes the lowest unfinished chunk of each run pending, if it waits.
    UNBLOCK_FIRST = concat!(
        "UPDATE webhook_deliveries SET state = 'pending', next_attempt_at = $3
        WHERE user_id = $1 AND endpoint_id = $2 AND state = 'waiting' AND ended_at IS NULL AND NOT EXISTS ",
        earlier_chunk!()
    );
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingResult<'a> {
    /// When the ping was sent.
    pub at: Timestamp,
    pub duration_ms: u32,
    /// HTTP status. None: no response.
    pub status: Option<u16>,
    /// A few words.
    pub error: Option<&'a str>,
    /// Whether the endpoint accepted the ping.
    pub delivered: bool,
}

impl Deliveries<'_> {
    /// Stores the result of a ping: its event, delivery and only attempt. Returns false if the user
    /// has no such endpoint.
    pub async fn insert_ping(
        self,
        user: UserId,
        endpoint: EndpointId,
        event: EventId,
        run: SyncRunId,
        result: &PingResult<'_>,
    ) -> Result<bool> {
        let at = result.at;
        let mut tx = self.db.begin().await?;
        lock_user_if_exists(&mut tx, user).await?;
        if !tx.changes(ADD_QUEUE, params![user, endpoint]).await? {
            tx.rollback().await;
            return Ok(false);
        }
        let ping = NewWebhookEvent::without_rows(event);
        let origin = EventOrigin {
            user,
            connection: None,
            claim: None,
            run,
            event_type: EventType::Ping,
            date_range: (at, at),
            shown: None,
            now: at,
        };
        let insert_delivery = INSERT_PING.with(named![
            user = user,
            endpoint = endpoint,
            event = event,
            run = run,
            at = at,
            state = if result.delivered {
                "delivered"
            } else {
                "failed"
            },
            status = result.status,
            error = result.error,
            duration_ms = result.duration_ms,
        ]);
        tx.batch(&[webhook_events::insert(&origin, &ping), insert_delivery])
            .await?;
        if !result.delivered {
            tx.run(
                KEEP_ATTEMPT,
                params![user, endpoint, event, Uuid::now_v7(), "failed"],
            )
            .await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Makes the failed deliveries of all users at an endpoint of the installation pending again,
    /// as [`recover`] does for one user, in a transaction for each. It recovers some 10,000
    /// deliveries at a time, and returns how many. Nothing is left once it returns 0.
    pub async fn recover_all(
        self,
        endpoint: EndpointId,
        since: Timestamp,
        now: Timestamp,
    ) -> Result<u64> {
        let (mut recovered, mut last) = (0, (since, Param::BEFORE_ALL_IDS));
        while recovered < RECOVERED_MAX {
            let (at, event) = last;
            let values = params![endpoint, at, event, FAILED_PER_READ];
            let failed = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let failed: Vec<(Timestamp, EventId, UserId)> =
                self.db.all(LIST_FAILED, values, failed).await?;
            let Some((at, event, _)) = failed.last() else {
                break;
            };
            last = (*at, Param::from(*event));
            let users: BTreeSet<UserId> = failed.iter().map(|(_, _, user)| *user).collect();
            for user in users {
                let mut tx = self.db.begin().await?;
                let of_user = recover(&mut tx, (user, endpoint), since, now).await?;
                tx.commit().await?;
                recovered += of_user.unwrap_or(0);
            }
        }
        Ok(recovered)
    }
}

/// Makes the delivery of one event due now, whatever its state, with all attempts again.
///
/// # Errors
/// [`StorageError::NotFound`] if there is no such delivery, it waits for an earlier chunk, the
/// event is a ping, or the endpoint is disabled.
pub async fn redeliver(
    tx: &mut Tx,
    (user, endpoint): (UserId, EndpointId),
    event: EventId,
    now: Timestamp,
) -> Result<()> {
    if !make_due(tx, (user, endpoint), now).await? {
        return Err(StorageError::NotFound("delivery"));
    }
    let kept = params![user, endpoint, event, Uuid::now_v7(), "delivered"];
    tx.run(KEEP_ATTEMPT, kept).await?;
    let values = params![user, endpoint, event, now];
    tx.execute_or_not_found(REDELIVER, values, "delivery").await
}

/// Makes all failed deliveries of a user's events pending again that were created at `since` or
/// later, with all attempts. The lowest chunk of each run is due now, and the others wait for it.
/// Pings are skipped. Returns the number of recovered deliveries, or None if there is no such
/// endpoint, or it is disabled.
pub async fn recover(
    tx: &mut Tx,
    (user, endpoint): (UserId, EndpointId),
    since: Timestamp,
    now: Timestamp,
) -> Result<Option<u64>> {
    if !make_due(tx, (user, endpoint), now).await? {
        return Ok(None);
    }
    let recovered = tx.run(RECOVER, params![user, endpoint, since]).await?;
    tx.run(HOLD_BACK, params![user, endpoint]).await?;
    tx.run(UNBLOCK_FIRST, params![user, endpoint, now]).await?;
    Ok(Some(recovered))
}

/// Locks a user's row and queue, and makes the queue due. Returns false if there is no such queue,
/// or its endpoint is disabled. The user may be removed already.
async fn make_due(
    tx: &mut Tx,
    (user, endpoint): (UserId, EndpointId),
    now: Timestamp,
) -> Result<bool> {
    lock_user_if_exists(tx, user).await?;
    tx.exists(LOCK_QUEUE, params![user, endpoint]).await?;
    tx.changes(MAKE_DUE, params![user, endpoint, now]).await
}
