//! Claims queues with due deliveries, and records the outcome of each attempt. A delivery is one
//! webhook event for one endpoint, and a queue has those of one user to one endpoint.
//!
//! The holder of a claim has a lease and a fence, as of a job (see `jobs/mod.rs`), so that only one
//! instance at a time sends one user's events to an endpoint.
//!
//! A claim reads the endpoint's row, and checks before each message that it is still the same. So a
//! change of the endpoint writes no queue, however many users it has.

use bellbird_domain::{
    ApiVersion, EndpointId, EndpointStatus, EventId, Plan, SyncRunId, UserId, random,
};
use jiff::{SignedDuration, Timestamp};

use crate::Deliveries;
use crate::db::{Bound, Param, Row, Tx, named, params, scalar, statements};
use crate::error::Result;
use crate::jobs::new_fence;
use crate::webhooks::endpoints;
use crate::webhooks::webhook_events::{WebhookEvent, select_events, webhook_event};

/// How exact the time of an endpoint's last success is, so that its queues seldom write the
/// endpoint's row.
const DELIVERED_AT_STEP: SignedDuration = SignedDuration::from_mins(1);

/// Claims up to `$3` due rows until `$2` for the instance `$4`, all with the fence `$6`, as in
/// `jobs/mod.rs`. SQLite returns no column of a joined table, so those of the endpoint and the user
/// are looked up by their keys. The last column, of an endpoint of the installation: whether the
/// queue that failed first since the endpoint's last success has failed for a minute. One that
/// joined the failing ones has `is_failing` before that, so `failing_since`, in microseconds, is
/// compared too.
macro_rules! claim_due {
    ($lock:literal) => {
        concat!(
            "WITH due AS MATERIALIZED (SELECT q.user_id, q.endpoint_id FROM webhook_queues q
                WHERE q.is_failing = $5 AND COALESCE(q.lease_until, q.due_at) <= $1
                ORDER BY COALESCE(q.lease_until, q.due_at) LIMIT $3",
            $lock,
            ")
            UPDATE webhook_queues SET lease_until = $2, holder = $4, fence = $6
            FROM due WHERE webhook_queues.user_id = due.user_id AND webhook_queues.endpoint_id = due.endpoint_id
            RETURNING webhook_queues.user_id, webhook_queues.endpoint_id, owner_id, fence, failing_since,
                unhealthy_since, is_failing,
                (SELECT p.url FROM webhook_endpoints p
                    WHERE p.user_id = owner_id AND p.id = webhook_queues.endpoint_id),
                (SELECT p.api_version FROM webhook_endpoints p
                    WHERE p.user_id = owner_id AND p.id = webhook_queues.endpoint_id),
                (SELECT p.status FROM webhook_endpoints p
                    WHERE p.user_id = owner_id AND p.id = webhook_queues.endpoint_id),
                (SELECT p.revision FROM webhook_endpoints p
                    WHERE p.user_id = owner_id AND p.id = webhook_queues.endpoint_id),
                (SELECT p.enabled_at FROM webhook_endpoints p
                    WHERE p.user_id = owner_id AND p.id = webhook_queues.endpoint_id),
                (SELECT p.delivered_at FROM webhook_endpoints p
                    WHERE p.user_id = owner_id AND p.id = webhook_queues.endpoint_id),
                (SELECT u.plan FROM users u WHERE u.id = webhook_queues.user_id),
                COALESCE((SELECT u.reference FROM users u WHERE u.id = webhook_queues.user_id), user_reference),
                CASE WHEN owner_id = '00000000-0000-0000-0000-000000000000' THEN (SELECT f.is_failing
                    FROM webhook_queues f
                    WHERE f.endpoint_id = webhook_queues.endpoint_id AND f.failing_since >= (
                        SELECT CASE WHEN p.delivered_at > p.enabled_at THEN p.delivered_at ELSE p.enabled_at END
                        FROM webhook_endpoints p
                        WHERE p.user_id = webhook_queues.owner_id AND p.id = webhook_queues.endpoint_id)
                        AND f.failing_since <= $1 - 60000000
                    ORDER BY f.failing_since LIMIT 1) END"
        )
    };
}

statements! {
    /// Runs before [`CLAIM`], which takes SQLite's one writer even if nothing is due.
    IS_DUE = "SELECT q.endpoint_id FROM webhook_queues q
        WHERE q.is_failing = $2 AND COALESCE(q.lease_until, q.due_at) <= $1 LIMIT 1";

    CLAIM = claim_due!(""), on_postgres = claim_due!(" FOR UPDATE SKIP LOCKED");

    /// None unless the claim may send: its lease lasts beyond `$4`, and neither the endpoint nor
    /// the user's plan has changed since.
    LIST_DUE = select_events!(
        ", d.attempts, d.last_attempt_at, d.next_attempt_at, d.is_requested, d.last_error
        FROM webhook_deliveries d CROSS JOIN webhook_events e
        WHERE d.user_id = $1 AND d.endpoint_id = $2 AND d.next_attempt_at <= $7
            AND e.user_id = $1 AND e.id = d.event_id
            AND EXISTS (SELECT 1 FROM webhook_queues q CROSS JOIN webhook_endpoints p
                WHERE q.user_id = $1 AND q.endpoint_id = $2 AND q.fence = $3 AND q.lease_until > $4
                    AND p.user_id = q.owner_id AND p.id = q.endpoint_id AND p.revision = $5
                    AND COALESCE((SELECT u.plan FROM users u WHERE u.id = $1), '') = $6)
        ORDER BY d.next_attempt_at, d.created_at, d.chunk, d.event_id LIMIT $8"
    );

    /// The ids of [`LIST_DUE`].
    LIST_DUE_IDS = "SELECT d.event_id FROM webhook_deliveries d
        WHERE d.user_id = $1 AND d.endpoint_id = $2 AND d.next_attempt_at <= $7
            AND EXISTS (SELECT 1 FROM webhook_queues q CROSS JOIN webhook_endpoints p
                WHERE q.user_id = $1 AND q.endpoint_id = $2 AND q.fence = $3 AND q.lease_until > $4
                    AND p.user_id = q.owner_id AND p.id = q.endpoint_id AND p.revision = $5
                    AND COALESCE((SELECT u.plan FROM users u WHERE u.id = $1), '') = $6)
        ORDER BY d.next_attempt_at, d.created_at, d.chunk, d.event_id LIMIT $8";

    /// `:delivered` is the last success of these attempts, which clears the failures. Without one,
    /// `:failed` is their first failure, which does not replace an earlier one. `:first` and
    /// `:last` are their first and last failed exchange. The queue is failing once a minute, in
    /// microseconds, lies between two failed exchanges without a success in between. What was
    /// before `:enabled` is over. Locks the queue for the statements that follow.
    UPDATE_HEALTH = "UPDATE webhook_queues SET
            failing_since = CASE WHEN CAST(:delivered AS BIGINT) IS NOT NULL THEN NULL
                WHEN failing_since >= :enabled THEN failing_since ELSE :failed END,
            unhealthy_since = CASE WHEN CAST(:delivered AS BIGINT) IS NOT NULL THEN NULL
                WHEN unhealthy_since >= :enabled THEN unhealthy_since ELSE :first END,
            is_failing = CASE WHEN CAST(:delivered AS BIGINT) IS NOT NULL THEN 0
                WHEN unhealthy_since >= :enabled
                    THEN CASE WHEN CAST(:last AS BIGINT) - unhealthy_since >= 60000000 THEN 1 ELSE is_failing END
                WHEN CAST(:last AS BIGINT) - :first >= 60000000 THEN 1 ELSE 0 END
        WHERE user_id = :user AND endpoint_id = :endpoint AND fence = :fence AND lease_until IS NOT NULL
        RETURNING fence";

    JOIN_FAILING = "UPDATE webhook_queues SET is_failing = 1,
            unhealthy_since = CASE WHEN unhealthy_since >= :enabled THEN unhealthy_since ELSE :now END
        WHERE user_id = :user AND endpoint_id = :endpoint AND fence = :fence AND lease_until IS NOT NULL
            AND is_failing = 0";

    SET_DELIVERED_AT = "UPDATE webhook_endpoints SET delivered_at = $3
        WHERE user_id = $1 AND id = $2 AND (delivered_at IS NULL OR delivered_at < $3)";

    /// Under the conditions of [`FINISH`], which runs after it.
    INSERT_ATTEMPT = "INSERT INTO webhook_attempts
            (user_id, endpoint_id, id, event_id, attempt, attempted_at, duration_ms, status, error)
        SELECT :user, :endpoint, :id, :event, :attempt, :at, :duration_ms, :status, :error
        FROM webhook_deliveries WHERE user_id = :user AND endpoint_id = :endpoint AND event_id = :event
            AND state = 'pending' AND next_attempt_at = :due_at AND EXISTS (SELECT 1 FROM webhook_queues
                WHERE user_id = :user AND endpoint_id = :endpoint AND fence = :fence AND lease_until IS NOT NULL)";

    /// Ends the delivery that an attempt was for, or plans its next attempt, unless the lease was
    /// lost. A redelivery that was requested meanwhile is due at another time, perhaps an earlier
    /// one, by another clock. It stays requested. A delivery that was brought forward meanwhile,
    /// because the clock was set back, is sent again too.
    FINISH = "UPDATE webhook_deliveries SET state = :state, attempts = :attempt,
            next_attempt_at = :next, ended_at = :ended, last_status = :status, last_error = :error,
            last_duration_ms = :duration_ms, last_attempt_at = :at
        WHERE user_id = :user AND endpoint_id = :endpoint AND event_id = :event
            AND state = 'pending' AND next_attempt_at = :due_at AND EXISTS (SELECT 1 FROM webhook_queues
                WHERE user_id = :user AND endpoint_id = :endpoint AND fence = :fence AND lease_until IS NOT NULL)";

    /// Makes the lowest unfinished chunk of a run pending, if it waits. Finds it by its id, because
    /// SQLite would otherwise read all deliveries of the endpoint.
    UNBLOCK_NEXT = "UPDATE webhook_deliveries SET state = 'pending', next_attempt_at = :now
        WHERE user_id = :user AND endpoint_id = :endpoint AND state = 'waiting'
            AND event_id = (SELECT o.event_id FROM webhook_deliveries o
                WHERE o.user_id = :user AND o.endpoint_id = :endpoint AND o.sync_run_id = :run AND o.ended_at IS NULL
                ORDER BY o.chunk LIMIT 1)
            AND EXISTS (SELECT 1 FROM webhook_queues
                WHERE user_id = :user AND endpoint_id = :endpoint AND fence = :fence AND lease_until IS NOT NULL)";

    LOCK_CLAIMED = "SELECT fence FROM webhook_queues
        WHERE user_id = :user AND endpoint_id = :endpoint AND fence = :fence AND lease_until IS NOT NULL",
        lock = " FOR NO KEY UPDATE";

    /// A queue that is due already goes behind those that wait longer. Runs after [`LOCK_CLAIMED`],
    /// so that it sees deliveries that were added meanwhile.
    RELEASE = "UPDATE webhook_queues SET lease_until = NULL, due_at = (
            SELECT CASE WHEN least.at < :now THEN :now ELSE least.at END
            FROM (SELECT MIN(next_attempt_at) AS at FROM webhook_deliveries
                WHERE user_id = :user AND endpoint_id = :endpoint AND next_attempt_at IS NOT NULL) least)
        WHERE user_id = :user AND endpoint_id = :endpoint AND fence = :fence AND lease_until IS NOT NULL
        RETURNING fence";
}

/// The right to send the events of one user to one endpoint, until the lease ends and another task
/// claims it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedEndpoint {
    /// Whose events these are.
    pub user_id: UserId,
    pub endpoint_id: EndpointId,
    /// The owner of the endpoint and its secret: the user, or the installation.
    pub owner_id: UserId,
    /// None: the endpoint is disabled or removed, and gets nothing.
    pub url: Option<String>,
    /// The format of its events.
    pub api_version: ApiVersion,
    /// The first failure since the last success. Not before the endpoint's last success, of any
    /// user.
    pub failing_since: Option<Timestamp>,
    /// Whether the last exchange failed, also if the endpoint was not at fault.
    pub is_unhealthy: bool,
    /// Whether exchanges have failed for a minute or longer: the user's own, or those of another
    /// user, after [`Deliveries::join_failing`].
    pub is_failing: bool,
    /// Whether exchanges for another user have failed for a minute, without a success of anybody
    /// since. Only known of endpoints of the installation.
    fails_another: bool,
    /// The operator's own name of the user, also of a removed one.
    pub user_reference: Option<String>,
    /// None: the user was removed.
    pub plan: Option<Plan>,
    fence: i64,
    revision: i64,
    enabled_at: Timestamp,
    delivered_at: Option<Timestamp>,
}

/// A delivery whose next attempt is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueDelivery {
    pub event: WebhookEvent,
    /// Failures so far. A redelivery starts again from 0.
    pub attempts: u32,
    /// Of the attempt before, also of one before a redelivery. None: no attempt was ever made.
    pub last_attempt_at: Option<Timestamp>,
    /// What that attempt failed with.
    pub last_error: Option<String>,
    /// Whether somebody wanted the event again, who pays for all attempts that follow.
    pub is_requested: bool,
    pub due_at: Timestamp,
}

impl DueDelivery {
    /// Whether no attempt was ever made.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.last_attempt_at.is_none()
    }
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
    /// Claims up to `limit` queues with due deliveries and no lease, the longest due first.
    /// `failing` selects the queues whose exchanges have failed for a minute or longer, otherwise
    /// the rest. So endpoints that are dead do not delay the others, and a single failure does not
    /// put an endpoint behind them.
    pub async fn claim_endpoints(
        self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
        failing: bool,
    ) -> Result<Vec<ClaimedEndpoint>> {
        if self.claims_paused() || !self.db.may_be_due(IS_DUE, params![now, failing]).await? {
            return Ok(Vec::new());
        }
        // Drawn only for a claim: see `jobs/mod.rs`.
        let fence = new_fence();
        let values = params![now, lease_until, limit, self.holder, failing, fence];
        self.db.write(CLAIM, values, claimed).await
    }

    /// Lists due deliveries of a claimed endpoint, the longest due first, then in the order of
    /// their events. Empty if the lease was lost, or the endpoint or the user's plan has changed
    /// since the claim.
    pub async fn list_due(
        self,
        claim: &ClaimedEndpoint,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<DueDelivery>> {
        self.db
            .all(LIST_DUE, &claim.due(now, now, limit), due_delivery)
            .await
    }

    /// Lists the ids of the due deliveries of a claimed endpoint, in the order of
    /// [`Self::list_due`], and is empty as that, or if the lease ends before `lease_after`. Costs
    /// less than listing the deliveries.
    pub async fn list_due_ids(
        self,
        claim: &ClaimedEndpoint,
        now: Timestamp,
        lease_after: Timestamp,
        limit: u32,
    ) -> Result<Vec<EventId>> {
        self.db
            .all(LIST_DUE_IDS, &claim.due(now, lease_after, limit), scalar)
            .await
    }

    /// Records attempts in one transaction. When a chunk has ended, the next chunk of its run
    /// becomes due. Skips events that were deleted, are no longer pending, or were redelivered
    /// since the attempt was due. Returns false if the lease was lost: then only the time of a
    /// delivery is noted at the endpoint.
    pub async fn finish_attempts(
        self,
        claim: &ClaimedEndpoint,
        attempts: &[FinishedAttempt],
        now: Timestamp,
    ) -> Result<bool> {
        let (user, endpoint, fence) = (claim.user_id, claim.endpoint_id, claim.fence);
        let times = |is_counted: fn(&FinishedAttempt) -> bool| {
            attempts
                .iter()
                .filter(move |attempt| is_counted(attempt))
                .map(|attempt| attempt.at)
        };
        let delivered = times(|attempt| attempt.outcome == AttemptOutcome::Delivered).max();
        let mut statements = vec![UPDATE_HEALTH.with(named![
            user = user,
            endpoint = endpoint,
            fence = fence,
            enabled = claim.enabled_at,
            delivered = delivered,
            failed = times(|attempt| attempt.endpoint_at_fault).min(),
            first = times(|attempt| attempt.exchange_failed).min(),
            last = times(|attempt| attempt.exchange_failed).max(),
        ])];
        for attempt in attempts {
            statements.extend(attempt.statements(claim, now));
        }
        let is_news = |at: &Timestamp| {
            claim
                .delivered_at
                .is_none_or(|last| at.duration_since(last) >= DELIVERED_AT_STEP)
        };
        if let Some(at) = delivered.filter(is_news) {
            statements.push((
                SET_DELIVERED_AT,
                params![claim.owner_id, endpoint, at].to_vec(),
            ));
        }
        Ok(self.db.batch(&statements).await?[0].is_some())
    }

    /// Puts a queue at an endpoint of the installation among the failing ones if exchanges for
    /// another user have failed for a minute, and the endpoint has accepted nothing since then.
    /// Otherwise the queues of many users would take all permits of the healthy ones. Returns
    /// whether it did: then the claim is to be released.
    pub async fn join_failing(self, claim: &ClaimedEndpoint, now: Timestamp) -> Result<bool> {
        if claim.is_failing || !claim.fails_another {
            return Ok(false);
        }
        let (join, values) = JOIN_FAILING.with(named![
            user = claim.user_id,
            endpoint = claim.endpoint_id,
            fence = claim.fence,
            enabled = claim.enabled_at,
            now = now,
        ]);
        self.db.changes(join, &values).await
    }

    /// As `writes::endpoints::disable`, for the holder of a claim, who has sent to the endpoint as
    /// it is. Returns false if the lease was lost, or the endpoint has changed since the claim.
    pub async fn disable_endpoint(
        self,
        claim: &ClaimedEndpoint,
        reason: &str,
        now: Timestamp,
    ) -> Result<bool> {
        let mut tx = self.db.begin().await?;
        let is_done = hold(&mut tx, claim).await?
            && endpoints::set_disabled(
                &mut tx,
                (claim.owner_id, claim.endpoint_id),
                reason,
                Some(claim.revision),
            )
            .await?;
        if !is_done {
            tx.rollback().await;
            return Ok(false);
        }
        endpoints::fail_deliveries(&mut tx, (claim.user_id, claim.endpoint_id), now).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Ends the unfinished deliveries of a claim whose endpoint gets nothing: they have failed if
    /// it is disabled, and are deleted with their queue if it was removed. Returns false as
    /// [`Self::finish_attempts`] does.
    pub async fn end_deliveries(self, claim: &ClaimedEndpoint, now: Timestamp) -> Result<bool> {
        let queue = (claim.user_id, claim.endpoint_id);
        let mut tx = self.db.begin().await?;
        if !hold(&mut tx, claim).await? {
            tx.rollback().await;
            return Ok(false);
        }
        match endpoints::find(&mut tx, claim.endpoint_id)
            .await?
            .map(|endpoint| endpoint.status)
        {
            None => endpoints::delete_queue(&mut tx, queue).await?,
            Some(EndpointStatus::Disabled) => {
                endpoints::fail_deliveries(&mut tx, queue, now).await?;
            }
            // It was enabled meanwhile.
            Some(EndpointStatus::Enabled) => {}
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Releases the claim. Returns false as [`Self::finish_attempts`] does.
    pub async fn release_endpoint(self, claim: &ClaimedEndpoint, now: Timestamp) -> Result<bool> {
        let (user, endpoint, fence) = (claim.user_id, claim.endpoint_id, claim.fence);
        let lock = LOCK_CLAIMED.with(named![user = user, endpoint = endpoint, fence = fence]);
        let release = RELEASE.with(named![
            user = user,
            endpoint = endpoint,
            fence = fence,
            now = now
        ]);
        Ok(self.db.batch(&[lock, release]).await?[1].is_some())
    }
}

/// Locks the queue of a claim. Returns false if the lease was lost.
async fn hold(tx: &mut Tx, claim: &ClaimedEndpoint) -> Result<bool> {
    let lock = LOCK_CLAIMED.with(named![
        user = claim.user_id,
        endpoint = claim.endpoint_id,
        fence = claim.fence
    ]);
    Ok(tx.batch(&[lock]).await?[0].is_some())
}

impl ClaimedEndpoint {
    /// The values of [`LIST_DUE`] and [`LIST_DUE_IDS`].
    fn due(&self, now: Timestamp, lease_after: Timestamp, limit: u32) -> [Param<'static>; 8] {
        [
            self.user_id.into(),
            self.endpoint_id.into(),
            self.fence.into(),
            lease_after.into(),
            self.revision.into(),
            self.plan.map_or("", Plan::as_str).into(),
            now.into(),
            limit.into(),
        ]
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
    fn statements(
        &self,
        claim: &ClaimedEndpoint,
        now: Timestamp,
    ) -> impl Iterator<Item = Bound<'static>> {
        let (user, endpoint, fence) = (claim.user_id, claim.endpoint_id, claim.fence);
        let (state, next, ended) = self.outcome.columns(now);
        // The delivery's row says all about a success at the first attempt.
        let has_row = self.attempt > 1 || self.outcome != AttemptOutcome::Delivered;
        let insert = has_row.then(|| {
            INSERT_ATTEMPT.with(named![
                user = user,
                endpoint = endpoint,
                fence = fence,
                id = random::time_ordered_id(),
                event = self.event_id,
                due_at = self.due_at,
                attempt = self.attempt,
                at = self.at,
                duration_ms = self.duration_ms,
                status = self.status,
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
            attempt = self.attempt,
            next = next,
            ended = ended,
            status = self.status,
            error = self.error,
            duration_ms = self.duration_ms,
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
    let status = row.get::<Option<_>>(9)?;
    let is_enabled = status == Some(EndpointStatus::Enabled);
    let (enabled_at, delivered_at) = (
        row.get::<Option<_>>(11)?.unwrap_or(Timestamp::MIN),
        row.get::<Option<Timestamp>>(12)?,
    );
    // What failed before the endpoint was enabled again is over.
    let since = |at: Option<Timestamp>| at.filter(|at| *at >= enabled_at);
    let is_unhealthy = since(row.get(5)?).is_some();
    Ok(ClaimedEndpoint {
        user_id: row.get(0)?,
        endpoint_id: row.get(1)?,
        owner_id: row.get(2)?,
        url: row.get::<Option<_>>(7)?.filter(|_| is_enabled),
        api_version: row.get::<Option<_>>(8)?.unwrap_or(ApiVersion::DEFAULT),
        failing_since: since(row.get(4)?).map(|at| delivered_at.map_or(at, |last| at.max(last))),
        is_unhealthy,
        is_failing: is_unhealthy && row.get(6)?,
        fails_another: row.get::<Option<bool>>(15)?.unwrap_or_default(),
        user_reference: row.get(14)?,
        plan: row.get(13)?,
        fence: row.get(3)?,
        revision: row.opt_int(10)?.unwrap_or_default(),
        enabled_at,
        delivered_at,
    })
}

fn due_delivery(row: &Row<'_>) -> Result<DueDelivery> {
    Ok(DueDelivery {
        event: webhook_event(row)?,
        attempts: row.number(22, "a number of attempts")?,
        last_attempt_at: row.get(23)?,
        last_error: row.get(26)?,
        due_at: row.get(24)?,
        is_requested: row.get(25)?,
    })
}
