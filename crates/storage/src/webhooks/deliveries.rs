//! Claims endpoints with due deliveries, and records the outcome of each attempt. A delivery is one webhook event for
//! one endpoint.
//!
//! The holder of a claim has a lease and a fence, as in `connections/removals.rs`, so that only one instance at a time
//! sends to an endpoint.

use bellbird_domain::{ApiVersion, EndpointId, EventId, SyncRunId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::Deliveries;
use crate::db::{Db, Param, Row, Sql, Tx, params, statements};
use crate::error::Result;
use crate::webhooks::endpoints::fail_unfinished_deliveries;
use crate::webhooks::webhook_events::{WebhookEvent, webhook_event, webhook_event_columns};

/// Enabled endpoints that are due and have no lease.
macro_rules! due {
    ($health:literal) => {
        concat!(
            "FROM webhook_endpoints e
            WHERE e.status = 'enabled' AND e.is_failing = ",
            $health,
            " AND COALESCE(e.lease_until, e.due_at) <= $1"
        )
    };
}

/// Claims up to `$3` due rows until `$2`, as in `connections/removals.rs`.
macro_rules! claim_due {
    ($health:literal, $lock:literal) => {
        concat!(
            "WITH due AS MATERIALIZED (SELECT e.user_id, e.id ",
            due!($health),
            " ORDER BY COALESCE(e.lease_until, e.due_at) LIMIT $3",
            $lock,
            ")
            UPDATE webhook_endpoints SET lease_until = $2, fence = fence + 1
            FROM due WHERE webhook_endpoints.user_id = due.user_id AND webhook_endpoints.id = due.id
            RETURNING webhook_endpoints.user_id, webhook_endpoints.id, url, api_version, failing_since, fence,
                unhealthy_since, is_failing"
        )
    };
}

/// The row of a claim whose lease is not lost.
macro_rules! claimed_row {
    () => {
        " WHERE user_id = $1 AND id = $2 AND fence = $3 AND lease_until IS NOT NULL"
    };
}

macro_rules! lock_claimed {
    ($lock:literal) => {
        concat!("SELECT fence FROM webhook_endpoints", claimed_row!(), $lock)
    };
}

statements! {
    /// Runs before [`CLAIM_HEALTHY`], which takes SQLite's one writer even if nothing is due.
    IS_HEALTHY_DUE = concat!("SELECT e.id ", due!("0"), " LIMIT 1");

    CLAIM_HEALTHY = claim_due!("0", ""), on_postgres = claim_due!("0", " FOR UPDATE SKIP LOCKED");

    IS_FAILING_DUE = concat!("SELECT e.id ", due!("1"), " LIMIT 1");

    CLAIM_FAILING = claim_due!("1", ""), on_postgres = claim_due!("1", " FOR UPDATE SKIP LOCKED");

    LIST_DUE = concat!(
        "SELECT ",
        webhook_event_columns!("e."),
        ", d.attempts, d.last_attempt_at, d.next_attempt_at FROM webhook_deliveries d
        CROSS JOIN webhook_events e CROSS JOIN webhook_endpoints p
        WHERE d.user_id = $1 AND d.endpoint_id = $2 AND d.next_attempt_at <= $4 AND e.user_id = $1 AND e.id = d.event_id
            AND p.user_id = $1 AND p.id = $2 AND p.fence = $3 AND p.lease_until IS NOT NULL
        ORDER BY d.next_attempt_at, d.created_at, d.chunk, d.event_id LIMIT $5"
    );

    /// The ids of [`LIST_DUE`], if the lease lasts beyond `$5`.
    LIST_DUE_IDS = "SELECT d.event_id FROM webhook_deliveries d CROSS JOIN webhook_endpoints p
        WHERE d.user_id = $1 AND d.endpoint_id = $2 AND d.next_attempt_at <= $4
            AND p.user_id = $1 AND p.id = $2 AND p.fence = $3 AND p.lease_until > $5
        ORDER BY d.next_attempt_at, d.created_at, d.chunk, d.event_id LIMIT $6";

    /// `$4` is the last success of these attempts, which clears the failures. Without one, `$5` is their first failure,
    /// which does not replace an earlier one. `$6` and `$7` are their first and last failed exchange. The endpoint is
    /// failing once a minute, in microseconds, lies between two failed exchanges without a success in between.
    UPDATE_HEALTH = concat!(
        "UPDATE webhook_endpoints SET delivered_at = COALESCE($4, delivered_at),
            failing_since = CASE WHEN CAST($4 AS BIGINT) IS NULL THEN COALESCE(failing_since, $5) END,
            unhealthy_since = CASE WHEN CAST($4 AS BIGINT) IS NULL THEN COALESCE(unhealthy_since, $6) END,
            is_failing = CASE WHEN CAST($4 AS BIGINT) IS NOT NULL THEN 0
                WHEN CAST($7 AS BIGINT) - COALESCE(unhealthy_since, $6) >= 60000000 THEN 1 ELSE is_failing END",
        claimed_row!(),
        " RETURNING fence"
    );

    /// A redelivery that was requested after this attempt became due, at `$12`, stays requested.
    FINISH = "UPDATE webhook_deliveries SET state = $4, attempts = $5, next_attempt_at = $6, ended_at = $7,
            last_status = $8, last_error = $9, last_duration_ms = $10, last_attempt_at = $11
        WHERE user_id = $1 AND endpoint_id = $2 AND event_id = $3 AND state = 'pending' AND next_attempt_at <= $12";

    INSERT_ATTEMPT = "INSERT INTO webhook_attempts
            (user_id, endpoint_id, id, event_id, attempt, attempted_at, duration_ms, status, error)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

    /// [`FINISH`] and [`INSERT_ATTEMPT`] for several attempts. Runs after [`UPDATE_HEALTH`], which locks the endpoint,
    /// and sees what that waited for. An attempt without an id is not inserted.
    FINISH_ON_POSTGRES = "", on_postgres = concat!(
        "WITH results AS (
            SELECT * FROM UNNEST(CAST($4 AS TEXT[]), CAST($5 AS TEXT[]), CAST($6 AS BIGINT[]), CAST($7 AS BIGINT[]),
                CAST($8 AS BIGINT[]), CAST($9 AS BIGINT[]), CAST($10 AS TEXT[]), CAST($11 AS BIGINT[]),
                CAST($12 AS BIGINT[]), CAST($13 AS TEXT[]), CAST($14 AS BIGINT[]))
                AS r (event_id, state, attempt, next_attempt_at, ended_at, status, error, duration_ms, at, attempt_id,
                    due_at)
        ), finished AS (
            UPDATE webhook_deliveries d SET state = r.state, attempts = r.attempt, next_attempt_at = r.next_attempt_at,
                ended_at = r.ended_at, last_status = r.status, last_error = r.error,
                last_duration_ms = r.duration_ms, last_attempt_at = r.at
            FROM results r
            WHERE d.user_id = $1 AND d.endpoint_id = $2 AND d.event_id = r.event_id AND d.state = 'pending'
                AND d.next_attempt_at <= r.due_at AND EXISTS (SELECT 1 FROM webhook_endpoints ",
        claimed_row!(),
        ")
            RETURNING r.*
        )
        INSERT INTO webhook_attempts
            (user_id, endpoint_id, id, event_id, attempt, attempted_at, duration_ms, status, error)
        SELECT $1, $2, attempt_id, event_id, attempt, at, duration_ms, status, error
        FROM finished WHERE attempt_id IS NOT NULL"
    );

    /// Makes the lowest unfinished chunk of a run pending, if it waits. Finds it by its id, because SQLite would
    /// otherwise walk all deliveries of the endpoint.
    UNBLOCK_NEXT = "UPDATE webhook_deliveries SET state = 'pending', next_attempt_at = $4
        WHERE user_id = $1 AND endpoint_id = $2 AND state = 'waiting'
            AND event_id = (SELECT o.event_id FROM webhook_deliveries o
                WHERE o.user_id = $1 AND o.endpoint_id = $2 AND o.sync_run_id = $3 AND o.ended_at IS NULL
                ORDER BY o.chunk LIMIT 1)
            AND EXISTS (SELECT 1 FROM webhook_endpoints WHERE user_id = $1 AND id = $2 AND fence = $5
                AND lease_until IS NOT NULL)";

    DISABLE = concat!(
        "UPDATE webhook_endpoints SET status = 'disabled', disabled_reason = $4, lease_until = NULL,
            due_at = NULL, fence = fence + 1",
        claimed_row!()
    );

    LOCK_CLAIMED = lock_claimed!(""), on_postgres = lock_claimed!(" FOR NO KEY UPDATE");

    /// An endpoint that is due already goes behind those that wait longer. Runs after [`LOCK_CLAIMED`], so that it sees
    /// deliveries that were added meanwhile.
    RELEASE = concat!(
        "UPDATE webhook_endpoints SET lease_until = NULL, due_at = (
            SELECT CASE WHEN least.at < $4 THEN $4 ELSE least.at END
            FROM (SELECT MIN(next_attempt_at) AS at FROM webhook_deliveries
                WHERE user_id = $1 AND endpoint_id = $2 AND next_attempt_at IS NOT NULL) least)",
        claimed_row!(),
        " RETURNING fence"
    );
}

/// The right to send to one endpoint, until the lease ends and another task claims it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedEndpoint {
    pub user_id: UserId,
    pub endpoint_id: EndpointId,
    pub url: String,
    /// The format of its events.
    pub api_version: ApiVersion,
    /// The first failure since the last success.
    pub failing_since: Option<Timestamp>,
    /// Whether the last exchange failed, also if the endpoint was not at fault.
    pub is_unhealthy: bool,
    /// Whether exchanges have failed for a minute or longer.
    pub is_failing: bool,
    fence: i64,
}

/// A delivery whose next attempt is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueDelivery {
    pub event: WebhookEvent,
    /// Failures so far. A redelivery starts again from 0.
    pub attempts: u32,
    /// Whether no attempt was ever made.
    pub is_first: bool,
    pub due_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The endpoint accepted the event.
    Delivered,
    /// The next attempt is due then.
    Retry(Timestamp),
    /// The delivery has failed and is not retried.
    Failed,
}

/// A finished attempt to deliver an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedAttempt {
    pub event_id: EventId,
    pub sync_run_id: SyncRunId,
    /// From 1 to `total_chunks`.
    pub chunk: u32,
    pub total_chunks: u32,
    /// From 1.
    pub attempt: u32,
    /// When the attempt was due.
    pub due_at: Timestamp,
    /// The start of the attempt.
    pub at: Timestamp,
    pub duration_ms: u32,
    /// HTTP status. None: no answer.
    pub status: Option<u16>,
    /// A few words, never the provider's or the endpoint's text.
    pub error: Option<&'static str>,
    /// Whether the exchange with the endpoint failed. False if the attempt failed before that.
    pub exchange_failed: bool,
    /// Whether the endpoint was at fault.
    pub endpoint_at_fault: bool,
    pub outcome: AttemptOutcome,
}

impl Deliveries<'_> {
    /// Claims up to `limit` endpoints with due deliveries and no lease, the longest due first. `failing` selects
    /// the endpoints whose exchanges have failed for a minute or longer, otherwise the rest. So endpoints that are dead
    /// do not delay the others, and a single failure does not put an endpoint behind them.
    pub async fn claim_endpoints(
        self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
        failing: bool,
    ) -> Result<Vec<ClaimedEndpoint>> {
        let statements: (Sql, Sql) =
            if failing { (IS_FAILING_DUE, CLAIM_FAILING) } else { (IS_HEALTHY_DUE, CLAIM_HEALTHY) };
        self.0.db.claim_due(statements, now, lease_until, limit, claimed).await
    }

    /// Lists due deliveries of a claimed endpoint, the longest due first, then in the order of their events. Empty if
    /// the lease was lost or the endpoint is disabled.
    pub async fn list_due(self, claim: &ClaimedEndpoint, now: Timestamp, limit: u32) -> Result<Vec<DueDelivery>> {
        let values = params![claim.user_id, claim.endpoint_id, claim.fence, now, i64::from(limit)];
        self.0.db.all(LIST_DUE, values, due_delivery).await
    }

    /// Lists the ids of the due deliveries of a claimed endpoint, in the order of `storage.deliveries().list_due`. Empty
    /// if the lease was lost or ends before `lease_after`. Costs less than listing the deliveries.
    pub async fn list_due_ids(
        self,
        claim: &ClaimedEndpoint,
        now: Timestamp,
        lease_after: Timestamp,
        limit: u32,
    ) -> Result<Vec<EventId>> {
        let values = params![claim.user_id, claim.endpoint_id, claim.fence, now, lease_after, i64::from(limit)];
        self.0.db.all(LIST_DUE_IDS, values, |row| row.id(0)).await
    }

    /// Records attempts in one transaction. When a chunk has ended, the next chunk of its run becomes due. Skips events
    /// that were deleted, are no longer pending, or were redelivered since the attempt was due. Returns false, and
    /// changes nothing, if the lease was lost or the endpoint is disabled.
    pub async fn finish_attempts(
        self,
        claim: &ClaimedEndpoint,
        attempts: &[FinishedAttempt],
        now: Timestamp,
    ) -> Result<bool> {
        let (user, endpoint) = (claim.user_id, claim.endpoint_id);
        let delivered = attempts
            .iter()
            .filter(|finished| finished.outcome == AttemptOutcome::Delivered)
            .map(|finished| finished.at)
            .max();
        let failed = attempts.iter().filter(|finished| finished.endpoint_at_fault).map(|finished| finished.at).min();
        let failed_exchanges =
            || attempts.iter().filter(|finished| finished.exchange_failed).map(|finished| finished.at);
        let (first, last) = (failed_exchanges().min(), failed_exchanges().max());
        let health: &[Param<'_>] = params![user, endpoint, claim.fence, delivered, failed, first, last];
        if matches!(self.0.db, Db::Postgres(_)) {
            return self.finish_attempts_on_postgres(claim, attempts, now, health).await;
        }
        let mut tx = self.0.db.begin().await?;
        if tx.one(UPDATE_HEALTH, health, |_| Ok(())).await?.is_none() {
            tx.rollback().await;
            return Ok(false);
        }
        for finished in attempts {
            finish(&mut tx, claim, finished, now).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    async fn finish_attempts_on_postgres(
        self,
        claim: &ClaimedEndpoint,
        attempts: &[FinishedAttempt],
        now: Timestamp,
        health: &[Param<'_>],
    ) -> Result<bool> {
        let (user, endpoint, fence) = (claim.user_id, claim.endpoint_id, claim.fence);
        let columns: Vec<[Param<'_>; 11]> = attempts
            .iter()
            .map(|finished| {
                let (state, next, ended) = finished.outcome.columns(now);
                let attempt_id = if finished.has_row() { Param::Id(Uuid::now_v7()) } else { Param::Null };
                [
                    finished.event_id.into(),
                    state.into(),
                    i64::from(finished.attempt).into(),
                    next.into(),
                    ended.into(),
                    finished.status.map(i64::from).into(),
                    finished.error.into(),
                    i64::from(finished.duration_ms).into(),
                    finished.at.into(),
                    attempt_id,
                    finished.due_at.into(),
                ]
            })
            .collect();
        let lists: [Vec<Param<'_>>; 11] =
            std::array::from_fn(|column| columns.iter().map(|columns| columns[column]).collect());
        let mut values: Vec<Param<'_>> = params![user, endpoint, fence].to_vec();
        values.extend(lists.iter().map(|list| Param::List(list)));
        let unblocks: Vec<[Param<'_>; 5]> = attempts
            .iter()
            .filter(|finished| finished.ends_chunk())
            .map(|finished| [user.into(), endpoint.into(), finished.sync_run_id.into(), now.into(), fence.into()])
            .collect();
        let mut statements: Vec<(Sql, &[Param<'_>])> = vec![(UPDATE_HEALTH, health), (FINISH_ON_POSTGRES, &values)];
        statements.extend(unblocks.iter().map(|values| (UNBLOCK_NEXT, values.as_slice())));
        Ok(self.0.db.batch(&statements).await?[0].is_some())
    }

    /// As `storage.endpoints().disable`, for the holder of a claim. Returns false as `storage.deliveries().finish_attempts` does.
    pub async fn disable_endpoint(self, claim: &ClaimedEndpoint, reason: &str, now: Timestamp) -> Result<bool> {
        let (user, endpoint) = (claim.user_id, claim.endpoint_id);
        let mut tx = self.0.db.begin().await?;
        if tx.run(DISABLE, params![user, endpoint, claim.fence, reason]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        fail_unfinished_deliveries(&mut tx, user, endpoint, now).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Releases the claim. Returns false as `storage.deliveries().finish_attempts` does.
    pub async fn release_endpoint(self, claim: &ClaimedEndpoint, now: Timestamp) -> Result<bool> {
        let (user, endpoint, fence) = (claim.user_id, claim.endpoint_id, claim.fence);
        let lock: &[Param<'_>] = params![user, endpoint, fence];
        let release: &[Param<'_>] = params![user, endpoint, fence, now];
        let answers = self.0.db.batch(&[(LOCK_CLAIMED, lock), (RELEASE, release)]).await?;
        Ok(answers[1].is_some())
    }
}

impl AttemptOutcome {
    /// The columns `state`, `next_attempt_at` and `ended_at` of a delivery.
    fn columns(self, now: Timestamp) -> (&'static str, Option<Timestamp>, Option<Timestamp>) {
        match self {
            Self::Delivered => ("delivered", None, Some(now)),
            Self::Retry(next) => ("pending", Some(next), None),
            Self::Failed => ("failed", None, Some(now)),
        }
    }
}

impl FinishedAttempt {
    /// Whether the attempt gets a row of its own. The delivery's row says all about a success at the first attempt.
    fn has_row(&self) -> bool {
        self.attempt > 1 || self.outcome != AttemptOutcome::Delivered
    }

    /// Whether the next chunk of the run may become due.
    fn ends_chunk(&self) -> bool {
        self.total_chunks > 1 && !matches!(self.outcome, AttemptOutcome::Retry(_))
    }
}

/// Records one attempt. For SQLite, where no other transaction runs meanwhile.
async fn finish(tx: &mut Tx, claim: &ClaimedEndpoint, finished: &FinishedAttempt, now: Timestamp) -> Result<()> {
    let (user, endpoint) = (claim.user_id, claim.endpoint_id);
    let (state, next, ended) = finished.outcome.columns(now);
    let values = params![
        user,
        endpoint,
        finished.event_id,
        state,
        i64::from(finished.attempt),
        next,
        ended,
        finished.status.map(i64::from),
        finished.error,
        i64::from(finished.duration_ms),
        finished.at,
        finished.due_at
    ];
    let is_pending = tx.run(FINISH, values).await? > 0;
    if is_pending && finished.has_row() {
        let attempt = Attempt {
            event: finished.event_id,
            number: finished.attempt,
            at: finished.at,
            duration_ms: finished.duration_ms,
            status: finished.status,
            error: finished.error,
        };
        insert_attempt(tx, (user, endpoint), &attempt).await?;
    }
    if finished.ends_chunk() {
        tx.run(UNBLOCK_NEXT, params![user, endpoint, finished.sync_run_id, now, claim.fence]).await?;
    }
    Ok(())
}

/// An attempt to store.
pub(crate) struct Attempt<'a> {
    pub(crate) event: EventId,
    pub(crate) number: u32,
    pub(crate) at: Timestamp,
    pub(crate) duration_ms: u32,
    pub(crate) status: Option<u16>,
    pub(crate) error: Option<&'a str>,
}

/// Stores an attempt of an existing delivery. The caller holds the lock on the endpoint's row.
pub(crate) async fn insert_attempt(
    tx: &mut Tx,
    (user, endpoint): (UserId, EndpointId),
    attempt: &Attempt<'_>,
) -> Result<()> {
    let values = params![
        user,
        endpoint,
        Param::Id(Uuid::now_v7()),
        attempt.event,
        i64::from(attempt.number),
        attempt.at,
        i64::from(attempt.duration_ms),
        attempt.status.map(i64::from),
        attempt.error
    ];
    tx.run(INSERT_ATTEMPT, values).await.map(|_| ())
}

fn claimed(row: &Row<'_>) -> Result<ClaimedEndpoint> {
    Ok(ClaimedEndpoint {
        user_id: row.id(0)?,
        endpoint_id: row.id(1)?,
        url: row.text(2)?.to_owned(),
        api_version: row.word(3, "an API version")?,
        failing_since: row.opt_time(4)?,
        fence: row.int(5)?,
        is_unhealthy: row.opt_time(6)?.is_some(),
        is_failing: row.int(7)? != 0,
    })
}

fn due_delivery(row: &Row<'_>) -> Result<DueDelivery> {
    Ok(DueDelivery {
        event: webhook_event(row)?,
        attempts: row.attempts(18)?,
        is_first: row.opt_int(19)?.is_none(),
        due_at: row.time(20)?,
    })
}
