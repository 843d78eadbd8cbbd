//! Claims endpoints with due deliveries, and records the outcome of each attempt. A delivery is one webhook event for
//! one endpoint.
//!
//! The holder of a claim has a lease and a fence, as of a job (see `jobs/mod.rs`), so that only one instance at a time
//! sends to an endpoint. The fence of an endpoint is a counter, because its row outlives all claims.

use bellbird_domain::{ApiVersion, EndpointId, EventId, SyncRunId, UserId, random};
use jiff::Timestamp;

use crate::Deliveries;
use crate::db::{Bound, Param, Row, Sql, named, params, statements};
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

/// Claims up to `$3` due rows until `$2` for the instance `$4`, as in `jobs/mod.rs`.
macro_rules! claim_due {
    ($health:literal, $lock:literal) => {
        concat!(
            "WITH due AS MATERIALIZED (SELECT e.user_id, e.id ",
            due!($health),
            " ORDER BY COALESCE(e.lease_until, e.due_at) LIMIT $3",
            $lock,
            ")
            UPDATE webhook_endpoints SET lease_until = $2, holder = $4, fence = fence + 1
            FROM due WHERE webhook_endpoints.user_id = due.user_id AND webhook_endpoints.id = due.id
            RETURNING webhook_endpoints.user_id, webhook_endpoints.id, url, api_version, failing_since, fence,
                unhealthy_since, is_failing, queue_fence,
                (SELECT u.reference FROM users u WHERE u.id = webhook_endpoints.user_id)"
        )
    };
}

/// The row of a claim whose lease is not lost.
macro_rules! claimed {
    () => {
        "user_id = :user AND id = :endpoint AND fence = :fence AND lease_until IS NOT NULL"
    };
}

/// The delivery that an attempt was for, unless the lease was lost. A redelivery that was requested meanwhile is due at
/// another time, perhaps an earlier one, by another clock. It stays requested. A delivery that was brought forward
/// meanwhile, because the clock was set back, is sent again too.
macro_rules! attempted {
    () => {
        concat!(
            "user_id = :user AND endpoint_id = :endpoint AND event_id = :event AND state = 'pending'
            AND next_attempt_at = :due_at AND EXISTS (SELECT 1 FROM webhook_endpoints WHERE ",
            claimed!(),
            ")"
        )
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

    /// `:delivered` is the last success of these attempts, which clears the failures. Without one, `:failed` is their
    /// first failure, which does not replace an earlier one. `:first` and `:last` are their first and last failed
    /// exchange. The endpoint is failing once a minute, in microseconds, lies between two failed exchanges without a
    /// success in between. Locks the endpoint for the statements that follow.
    UPDATE_HEALTH = concat!(
        "UPDATE webhook_endpoints SET delivered_at = COALESCE(:delivered, delivered_at),
            failing_since = CASE WHEN CAST(:delivered AS BIGINT) IS NULL THEN COALESCE(failing_since, :failed) END,
            unhealthy_since = CASE WHEN CAST(:delivered AS BIGINT) IS NULL THEN COALESCE(unhealthy_since, :first) END,
            is_failing = CASE WHEN CAST(:delivered AS BIGINT) IS NOT NULL THEN 0
                WHEN CAST(:last AS BIGINT) - COALESCE(unhealthy_since, :first) >= 60000000 THEN 1 ELSE is_failing END
        WHERE ",
        claimed!(),
        " RETURNING fence"
    );

    /// Runs before [`FINISH`], which ends the delivery or plans its next attempt.
    INSERT_ATTEMPT = concat!(
        "INSERT INTO webhook_attempts
            (user_id, endpoint_id, id, event_id, attempt, attempted_at, duration_ms, status, error)
        SELECT :user, :endpoint, :id, :event, :attempt, :at, :duration_ms, :status, :error
        FROM webhook_deliveries WHERE ",
        attempted!()
    );

    FINISH = concat!(
        "UPDATE webhook_deliveries SET state = :state, attempts = :attempt, next_attempt_at = :next, ended_at = :ended,
            last_status = :status, last_error = :error, last_duration_ms = :duration_ms, last_attempt_at = :at
        WHERE ",
        attempted!()
    );

    /// Makes the lowest unfinished chunk of a run pending, if it waits. Finds it by its id, because SQLite would
    /// otherwise read all deliveries of the endpoint.
    UNBLOCK_NEXT = concat!(
        "UPDATE webhook_deliveries SET state = 'pending', next_attempt_at = :now
        WHERE user_id = :user AND endpoint_id = :endpoint AND state = 'waiting'
            AND event_id = (SELECT o.event_id FROM webhook_deliveries o
                WHERE o.user_id = :user AND o.endpoint_id = :endpoint AND o.sync_run_id = :run AND o.ended_at IS NULL
                ORDER BY o.chunk LIMIT 1)
            AND EXISTS (SELECT 1 FROM webhook_endpoints WHERE ",
        claimed!(),
        ")"
    );

    DISABLE = concat!(
        "UPDATE webhook_endpoints SET status = 'disabled', disabled_reason = :reason, lease_until = NULL,
            due_at = NULL, fence = fence + 1
        WHERE ",
        claimed!(),
        " RETURNING fence"
    );

    LOCK_CLAIMED = concat!("SELECT fence FROM webhook_endpoints WHERE ", claimed!()), lock = " FOR NO KEY UPDATE";

    /// An endpoint that is due already goes behind those that wait longer. Runs after [`LOCK_CLAIMED`], so that it sees
    /// deliveries that were added meanwhile.
    RELEASE = concat!(
        "UPDATE webhook_endpoints SET lease_until = NULL, due_at = (
            SELECT CASE WHEN least.at < :now THEN :now ELSE least.at END
            FROM (SELECT MIN(next_attempt_at) AS at FROM webhook_deliveries
                WHERE user_id = :user AND endpoint_id = :endpoint AND next_attempt_at IS NOT NULL) least)
        WHERE ",
        claimed!(),
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
    /// Whose events these are, at an endpoint of the installation. None: its owner's.
    pub event_user: Option<EventUser>,
    fence: i64,
}

/// The user of an event at an endpoint of the installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventUser {
    pub id: UserId,
    /// The operator's own name of the user.
    pub reference: Option<String>,
}

impl ClaimedEndpoint {
    /// The owner of the endpoint and its secret.
    #[must_use]
    pub fn owner(&self) -> UserId {
        self.event_user.as_ref().map_or(self.user_id, |_| UserId::INSTALLATION)
    }
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
    /// HTTP status. None: no response.
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
        if self.0.claims_nothing() {
            return Ok(Vec::new());
        }
        let statements: (Sql, Sql) =
            if failing { (IS_FAILING_DUE, CLAIM_FAILING) } else { (IS_HEALTHY_DUE, CLAIM_HEALTHY) };
        let values = params![now, lease_until, i64::from(limit), self.0.holder];
        self.0.db.claim_due(statements, values, claimed).await
    }

    /// Lists due deliveries of a claimed endpoint, the longest due first, then in the order of their events. Empty if
    /// the lease was lost or the endpoint is disabled.
    pub async fn list_due(self, claim: &ClaimedEndpoint, now: Timestamp, limit: u32) -> Result<Vec<DueDelivery>> {
        let values = params![claim.user_id, claim.endpoint_id, claim.fence, now, i64::from(limit)];
        self.0.db.all(LIST_DUE, values, due_delivery).await
    }

    /// Lists the ids of the due deliveries of a claimed endpoint, in the order of [`Self::list_due`]. Empty if the
    /// lease was lost or ends before `lease_after`. Costs less than listing the deliveries.
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
        let (user, endpoint, fence) = (claim.user_id, claim.endpoint_id, claim.fence);
        let times = |is_counted: fn(&FinishedAttempt) -> bool| {
            attempts.iter().filter(move |attempt| is_counted(attempt)).map(|attempt| attempt.at)
        };
        let mut statements = vec![UPDATE_HEALTH.with(named![
            user = user,
            endpoint = endpoint,
            fence = fence,
            delivered = times(|attempt| attempt.outcome == AttemptOutcome::Delivered).max(),
            failed = times(|attempt| attempt.endpoint_at_fault).min(),
            first = times(|attempt| attempt.exchange_failed).min(),
            last = times(|attempt| attempt.exchange_failed).max(),
        ])];
        for attempt in attempts {
            statements.extend(attempt.statements(claim, now));
        }
        Ok(self.0.db.batch(&statements).await?[0].is_some())
    }

    /// As `storage.endpoints().disable`, for the holder of a claim. Returns false as [`Self::finish_attempts`] does.
    pub async fn disable_endpoint(self, claim: &ClaimedEndpoint, reason: &str, now: Timestamp) -> Result<bool> {
        let (user, endpoint) = (claim.user_id, claim.endpoint_id);
        let disable = DISABLE.with(named![user = user, endpoint = endpoint, fence = claim.fence, reason = reason]);
        let mut tx = self.0.db.begin().await?;
        if tx.batch(&[disable]).await?[0].is_none() {
            tx.rollback().await;
            return Ok(false);
        }
        fail_unfinished_deliveries(&mut tx, user, endpoint, now).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Releases the claim. Returns false as [`Self::finish_attempts`] does.
    pub async fn release_endpoint(self, claim: &ClaimedEndpoint, now: Timestamp) -> Result<bool> {
        let (user, endpoint, fence) = (claim.user_id, claim.endpoint_id, claim.fence);
        let lock = LOCK_CLAIMED.with(named![user = user, endpoint = endpoint, fence = fence]);
        let release = RELEASE.with(named![user = user, endpoint = endpoint, fence = fence, now = now]);
        Ok(self.0.db.batch(&[lock, release]).await?[1].is_some())
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
    /// Records the attempt, and ends its delivery or plans the next attempt.
    fn statements(&self, claim: &ClaimedEndpoint, now: Timestamp) -> impl Iterator<Item = Bound<'static>> {
        let (user, endpoint, fence) = (claim.user_id, claim.endpoint_id, claim.fence);
        let (state, next, ended) = self.outcome.columns(now);
        // The delivery's row says all about a success at the first attempt.
        let has_row = self.attempt > 1 || self.outcome != AttemptOutcome::Delivered;
        let insert = has_row.then(|| {
            INSERT_ATTEMPT.with(named![
                user = user,
                endpoint = endpoint,
                fence = fence,
                id = Param::Id(random::time_ordered_id()),
                event = self.event_id,
                due_at = self.due_at,
                attempt = i64::from(self.attempt),
                at = self.at,
                duration_ms = i64::from(self.duration_ms),
                status = self.status.map(i64::from),
                error = self.error,
            ])
        });
        let finish = FINISH.with(named![
            user = user,
            endpoint = endpoint,
            fence = fence,
            event = self.event_id,
            due_at = self.due_at,
            state = state,
            attempt = i64::from(self.attempt),
            next = next,
            ended = ended,
            status = self.status.map(i64::from),
            error = self.error,
            duration_ms = i64::from(self.duration_ms),
            at = self.at,
        ]);
        let ends_chunk = self.total_chunks > 1 && !matches!(self.outcome, AttemptOutcome::Retry(_));
        let unblock = ends_chunk.then(|| {
            UNBLOCK_NEXT.with(named![
                user = user,
                endpoint = endpoint,
                fence = fence,
                run = self.sync_run_id,
                now = now,
            ])
        });
        insert.into_iter().chain([finish]).chain(unblock)
    }
}

fn claimed(row: &Row<'_>) -> Result<ClaimedEndpoint> {
    let user_id = row.id(0)?;
    let reference = row.opt_text(9)?.map(str::to_owned);
    let event_user = row.opt_int(8)?.map(|_| EventUser { id: user_id, reference });
    Ok(ClaimedEndpoint {
        user_id,
        event_user,
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
        attempts: row.attempts(20)?,
        is_first: row.opt_int(21)?.is_none(),
        due_at: row.time(22)?,
    })
}
