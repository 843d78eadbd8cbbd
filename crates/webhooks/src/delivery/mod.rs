//! The delivery loop: claims endpoints with due deliveries, sends webhook events, stores the
//! results in batches.
//!
//! An instance claims an endpoint with a lease and serves it for a time slice of ten seconds. No
//! other instance serves it meanwhile. Each endpoint has its own time slice, so a slow or dead
//! endpoint delays only itself. An endpoint of the installation counts as one for each user whose
//! events it gets. The number of concurrent time slices is limited, separately for endpoints that
//! have been failing for a minute, so those cannot crowd out the others. Such an endpoint gets one
//! event in each time slice, until it accepts one (`health.rs`).
//!
//! A time slice ends long before the lease. So no two instances send the same event, except for
//! attempts that were running when a process was killed. Deliveries that were loaded a while ago
//! are checked again right before they are sent: the lease may be lost, the connection removed, the
//! event redelivered, or the endpoint or the user's plan changed. The next time slice goes on with
//! what has changed.

pub mod cleanup;
pub mod client;
mod health;
pub(crate) mod ping;
pub(crate) mod rebuild;
pub mod schedule;
pub mod sign;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{Plan, TimestampExt as _};
use bellbird_limits::jitter;
use bellbird_storage::{
    AttemptOutcome, ClaimedEndpoint, DueDelivery, FinishedAttempt, SealError, StorageError,
};
use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use url::Url;

use crate::Webhooks;
use crate::delivery::client::delivery_error::{
    NAME_NOT_RESOLVED, NOT_IN_PLAN, NOT_SIGNED, PANICKED,
};
use crate::delivery::client::{ConnectTime, Exchange, Message};
use crate::delivery::health::Health;
use crate::delivery::ping::PingError;
use crate::delivery::rebuild::{REBUILD_DEADLINE, has_rows};
use crate::delivery::schedule::has_failed_too_long;
use crate::delivery::sign::Signer;
use crate::target::check_url;

/// Maximum number of endpoints that one instance serves concurrently.
const HEALTHY_ENDPOINTS_MAX: usize = 32;
/// The same for endpoints that have been failing for a minute. They are served in addition to the
/// others.
const FAILING_ENDPOINTS_MAX: usize = 32;
/// Number of deliveries loaded in one query.
const BATCH_SIZE: u32 = 128;
/// Length of a time slice. It starts no attempt after that.
const TIME_SLICE: Duration = Duration::from_secs(10);
/// Only failures from this attempt on can disable an endpoint. It comes at least half an hour after
/// the first attempt. From this attempt on, even a failing endpoint has the usual time to accept a
/// connection.
const LATE_ATTEMPT: u32 = 5;
/// Time for running attempts to finish when the service stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(8);
/// Part of the lease reserved for a slow database.
const DATABASE_MARGIN: Duration = Duration::from_secs(20);
/// How often the loop polls. It finds retries, and deliveries created by other instances.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before endpoints are claimed, so that one claim covers several events and one time slice
/// all events of an endpoint.
const CLAIM_DELAY: Duration = Duration::from_millis(100);
/// Delay before results are stored, so that one write covers several.
const RESULTS_DELAY: Duration = Duration::from_millis(5);
/// Delay before results that could not be stored are stored again. It doubles up to the maximum.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(100);
const STORE_RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

/// Metric: attempts by outcome.
pub const ATTEMPTS: &str = "bellbird_webhook_attempts_total";

struct TimeSlice {
    claim: ClaimedEndpoint,
    /// None: the secret's key is not configured here.
    signer: Option<Signer>,
    url: Url,
    /// No request is sent after this time, because the lease could expire before the response
    /// comes.
    cutoff: Instant,
    lease_ends_at: Instant,
}

/// Why a time slice ended early.
enum ServeError {
    /// Another instance has claimed the endpoint, or the endpoint was disabled or removed
    /// meanwhile.
    LeaseLost,
    /// This time slice disabled the endpoint.
    Disabled,
    Storage(StorageError),
}

impl From<StorageError> for ServeError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl Webhooks {
    /// Runs due deliveries until `stop`, then waits for the running attempts.
    pub async fn deliver(&self, stop: CancellationToken) {
        let (mut healthy, mut failing) = (JoinSet::new(), JoinSet::new());
        while !stop.is_cancelled() {
            self.inner.event_buffer.purge_expired_bodies();
            let is_full = self
                .start_time_slices(&mut healthy, HEALTHY_ENDPOINTS_MAX, false, &stop)
                .await;
            self.start_time_slices(&mut failing, FAILING_ENDPOINTS_MAX, true, &stop)
                .await;
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                Some(_) = healthy.join_next() => {}
                Some(_) = failing.join_next() => {}
                () = self.inner.event_buffer.new_events.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            // If all permits are in use, endpoints may be waiting, so the next free permit is used
            // without delay.
            if !is_full {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(CLAIM_DELAY) => {}
                }
            }
        }
        while healthy.join_next().await.is_some() {}
        while failing.join_next().await.is_some() {}
    }

    /// Runs all due deliveries and returns when none is left.
    pub async fn run_due_deliveries(&self) {
        let stop = CancellationToken::new();
        let mut slices = JoinSet::new();
        loop {
            // One set for both kinds: failing endpoints may use all permits that healthy ones
            // leave.
            self.start_time_slices(&mut slices, HEALTHY_ENDPOINTS_MAX, false, &stop)
                .await;
            self.start_time_slices(
                &mut slices,
                HEALTHY_ENDPOINTS_MAX + FAILING_ENDPOINTS_MAX,
                true,
                &stop,
            )
            .await;
            if slices.join_next().await.is_none() {
                return;
            }
        }
    }

    /// Claims an endpoint for each free permit, and starts its time slice. Returns whether all
    /// permits are in use now.
    async fn start_time_slices(
        &self,
        slices: &mut JoinSet<()>,
        permits: usize,
        failing: bool,
        stop: &CancellationToken,
    ) -> bool {
        while slices.try_join_next().is_some() {}
        let free = u32::try_from(permits.saturating_sub(slices.len())).unwrap_or(0);
        if free == 0 {
            return true;
        }
        let now = self.inner.clock.now();
        let lease = now.plus(self.lease());
        let claims = match self
            .inner
            .storage
            .deliveries()
            .claim_endpoints(now, lease, free, failing)
            .await
        {
            Ok(claims) => claims,
            Err(error) => {
                tracing::warn!(%error, "could not claim due endpoints");
                return false;
            }
        };
        for claim in claims {
            let (webhooks, stop) = (self.clone(), stop.clone());
            slices.spawn(async move { webhooks.run_time_slice(claim, &stop).await });
        }
        slices.len() >= permits
    }

    /// Covers a time slice, its last rebuild and exchange, and a slow database.
    fn lease(&self) -> Duration {
        TIME_SLICE + REBUILD_DEADLINE + self.inner.settings.timeout + DATABASE_MARGIN
    }

    async fn run_time_slice(&self, claim: ClaimedEndpoint, stop: &CancellationToken) {
        let id = claim.endpoint_id;
        let shutdown_grace = async {
            stop.cancelled().await;
            tokio::time::sleep(SHUTDOWN_GRACE).await;
        };
        let served = tokio::select! {
            biased;
            served = self.serve(&claim, stop) => served,
            // Aborts the running attempts. Their deliveries stay due, so those events are sent
            // again.
            () = shutdown_grace => Ok(()),
        };
        match served {
            Ok(()) | Err(ServeError::Disabled) => {
                if let Err(error) = self
                    .inner
                    .storage
                    .deliveries()
                    .release_endpoint(&claim, self.inner.clock.now())
                    .await
                {
                    tracing::warn!(endpoint_id = %id, %error, "could not release endpoint lease; it will expire");
                }
            }
            Err(ServeError::LeaseLost) => {
                tracing::info!(endpoint_id = %id, "endpoint lease lost");
            }
            Err(ServeError::Storage(error)) => {
                tracing::warn!(endpoint_id = %id, %error, "could not finish time slice")
            }
        }
    }

    async fn serve(
        &self,
        claim: &ClaimedEndpoint,
        stop: &CancellationToken,
    ) -> Result<(), ServeError> {
        let started_at = Instant::now();
        let slice_ends_at = started_at + TIME_SLICE;
        let Some(url) = &claim.url else {
            self.inner
                .storage
                .deliveries()
                .end_deliveries(claim, self.inner.clock.now())
                .await?;
            return Ok(());
        };
        let Ok(url) = check_url(url, self.inner.settings.rules) else {
            return self.disable(claim, "address not allowed").await;
        };
        let signer = match self.signer(claim.owner_id, claim.endpoint_id).await {
            Ok(Some(signer)) => Some(signer),
            // It was removed since the claim.
            Ok(None) => return Ok(()),
            // The operator can configure the key again, so this disables nothing. The attempts
            // fail.
            Err(PingError::Storage(StorageError::Sealed(SealError::UnknownKeyId(_)))) => None,
            Err(PingError::Storage(error))
                if !matches!(error, StorageError::Sealed(_) | StorageError::Corrupt(_)) =>
            {
                return Err(error.into());
            }
            Err(_) => return self.disable(claim, "secret broken").await,
        };
        let (cutoff, lease_ends_at) = (slice_ends_at + REBUILD_DEADLINE, started_at + self.lease());
        let slice = Arc::new(TimeSlice {
            claim: claim.clone(),
            signer,
            url,
            cutoff,
            lease_ends_at,
        });
        let mut health = Health::of(claim);
        loop {
            let limit = health.batch_size(BATCH_SIZE);
            let due = self
                .inner
                .storage
                .deliveries()
                .list_due(claim, self.inner.clock.now(), limit)
                .await?;
            let has_more = due.len() >= limit as usize
                || due
                    .iter()
                    .any(|due| due.event.chunk < due.event.total_chunks);
            self.send_all(&slice, due, slice_ends_at, stop, &mut health)
                .await?;
            // Deliveries that became due meanwhile wait for the next time slice.
            let is_over = Instant::now() >= slice_ends_at || health.concurrent_attempts_max() == 0;
            if !has_more || is_over || stop.is_cancelled() {
                return Ok(());
            }
        }
    }

    /// Sends deliveries concurrently until none is left or the time slice is over. Stores finished
    /// results in batches while other attempts run.
    async fn send_all(
        &self,
        slice: &Arc<TimeSlice>,
        due: Vec<DueDelivery>,
        slice_ends_at: Instant,
        stop: &CancellationToken,
        health: &mut Health,
    ) -> Result<(), ServeError> {
        let mut due = due.into_iter();
        let mut attempts = JoinSet::new();
        let mut is_just_listed = true;
        loop {
            let is_over = Instant::now() >= slice_ends_at || stop.is_cancelled();
            let free = health
                .concurrent_attempts_max()
                .saturating_sub(attempts.len());
            let mut next: Vec<DueDelivery> =
                due.by_ref().take(if is_over { 0 } else { free }).collect();
            if !is_just_listed {
                self.retain_due(slice, &mut next).await?;
            }
            is_just_listed = false;
            for delivery in next {
                let (webhooks, slice) = (self.clone(), Arc::clone(slice));
                let span = tracing::error_span!(
                    "delivery",
                    endpoint_id = %slice.claim.endpoint_id,
                    event_id = %delivery.event.id,
                    attempt = delivery.attempts.saturating_add(1)
                );
                attempts.spawn(
                    async move { webhooks.try_attempt(&slice, &delivery).await }.instrument(span),
                );
            }
            let Some(first) = attempts.join_next().await else {
                // If none of them was still due, the rest is checked too.
                if is_over || free == 0 || due.len() == 0 {
                    return Ok(());
                }
                continue;
            };
            if !attempts.is_empty() {
                tokio::time::sleep(RESULTS_DELAY).await;
            }
            let mut finished: Vec<FinishedAttempt> = Vec::new();
            for attempt in
                std::iter::once(first).chain(std::iter::from_fn(|| attempts.try_join_next()))
            {
                // `try_attempt` catches panics, and nothing aborts an attempt but the drop of this
                // set.
                finished.extend(attempt.ok().flatten());
            }
            health.update(&finished);
            if !finished.is_empty() {
                self.record_attempts(slice, &finished, health).await?;
            }
        }
    }

    /// Keeps the deliveries that are still due, if the lease lasts for an exchange. A paused
    /// machine may have lost it.
    async fn retain_due(
        &self,
        slice: &TimeSlice,
        deliveries: &mut Vec<DueDelivery>,
    ) -> Result<(), StorageError> {
        if deliveries.is_empty() {
            return Ok(());
        }
        let now = self.inner.clock.now();
        let lease_after = now.plus(self.inner.settings.timeout);
        // All that one batch listed are still among the first of them, and so are those that are
        // being sent.
        let ids = self
            .inner
            .storage
            .deliveries()
            .list_due_ids(&slice.claim, now, lease_after, 2 * BATCH_SIZE)
            .await?;
        deliveries.retain(|delivery| ids.contains(&delivery.event.id));
        Ok(())
    }

    /// Stores results, again and again while the lease lasts: events whose results are lost are
    /// sent again.
    async fn store_results(
        &self,
        slice: &TimeSlice,
        finished: &[FinishedAttempt],
    ) -> Result<bool, StorageError> {
        let mut delay = STORE_RETRY_DELAY;
        loop {
            match self
                .inner
                .storage
                .deliveries()
                .finish_attempts(&slice.claim, finished, self.inner.clock.now())
                .await
            {
                Err(error) if Instant::now() + delay < slice.lease_ends_at => {
                    let endpoint_id = slice.claim.endpoint_id;
                    tracing::warn!(%endpoint_id, %error, "could not store results of attempts, retry scheduled");
                    tokio::time::sleep(delay).await;
                    delay = STORE_RETRY_DELAY_MAX.min(delay * 2);
                }
                stored => return stored,
            }
        }
    }

    async fn record_attempts(
        &self,
        slice: &TimeSlice,
        finished: &[FinishedAttempt],
        health: &mut Health,
    ) -> Result<(), ServeError> {
        if !self.store_results(slice, finished).await? {
            return Err(ServeError::LeaseLost);
        }
        let now = self.inner.clock.now();
        let (mut gone, mut has_late_failure) = (false, false);
        for attempt in finished {
            let outcome = match attempt.outcome {
                AttemptOutcome::Delivered => "delivered",
                AttemptOutcome::Retry(_) => "failed",
                AttemptOutcome::Failed => "given_up",
            };
            metrics::counter!(ATTEMPTS, "outcome" => outcome).increment(1);
            gone |= attempt.status == Some(410);
            // After days without events, `failing_since` is old. A single failure may then be
            // transient, so only a late attempt counts.
            has_late_failure |= attempt.endpoint_at_fault
                && (attempt.attempt >= LATE_ATTEMPT || attempt.outcome == AttemptOutcome::Failed);
            log_attempt(slice, attempt);
        }
        if gone {
            return self
                .disable(&slice.claim, "gone")
                .await
                .and(Err(ServeError::Disabled));
        }
        if has_late_failure && has_failed_too_long(health.failing_since, now) {
            return self
                .disable(&slice.claim, "failing")
                .await
                .and(Err(ServeError::Disabled));
        }
        Ok(())
    }

    async fn disable(&self, claim: &ClaimedEndpoint, reason: &str) -> Result<(), ServeError> {
        if self
            .inner
            .storage
            .deliveries()
            .disable_endpoint(claim, reason, self.inner.clock.now())
            .await?
        {
            tracing::warn!(endpoint_id = %claim.endpoint_id, reason, "endpoint disabled");
        }
        Ok(())
    }

    /// As [`Self::attempt`]. A panic is a failed attempt, so that it spoils no other delivery and
    /// is not repeated at once.
    async fn try_attempt(
        &self,
        slice: &TimeSlice,
        delivery: &DueDelivery,
    ) -> Option<FinishedAttempt> {
        let started_at = self.inner.clock.now();
        let attempt = AssertUnwindSafe(self.attempt(slice, delivery)).catch_unwind();
        attempt.await.unwrap_or_else(|_| {
            tracing::error!("delivery panicked");
            Some(self.finished_attempt(delivery, started_at, Err(PANICKED)))
        })
    }

    /// Makes one attempt. Sends the body from memory if it is there. Otherwise the body is rebuilt,
    /// after a connection to an endpoint that has failed before.
    ///
    /// Returns `None` if no attempt was made: no time was left, the database failed, or the
    /// connection was removed.
    async fn attempt(&self, slice: &TimeSlice, delivery: &DueDelivery) -> Option<FinishedAttempt> {
        let (inner, event, claim) = (&self.inner, &delivery.event, &slice.claim);
        let started_at = inner.clock.now();
        if claim.plan.unwrap_or(Plan::Saver) < event.event_type.plan_min() {
            return Some(FinishedAttempt {
                outcome: AttemptOutcome::Failed,
                ..self.finished_attempt(delivery, started_at, Err(NOT_IN_PLAN))
            });
        }
        let Some(signer) = &slice.signer else {
            return Some(self.finished_attempt(delivery, started_at, Err(NOT_SIGNED)));
        };
        let held =
            inner
                .event_buffer
                .find_body(event.id, claim.into(), started_at, delivery.is_first);
        let is_rebuilt = held.is_none();
        let body = match held {
            Some(body) => Ok(body),
            None => {
                // The provider is not read for an endpoint that cannot be reached.
                let has_failed = delivery.attempts > 0 || claim.is_unhealthy;
                if has_failed
                    && has_rows(event)
                    && let Err(exchange) = inner
                        .client
                        .connect(&slice.url, connect_time(claim, delivery))
                        .await
                {
                    return Some(self.finished_attempt(delivery, started_at, Ok(exchange)));
                }
                self.rebuild(
                    claim,
                    delivery,
                    slice.cutoff.min(Instant::now() + REBUILD_DEADLINE),
                )
                .await
            }
        };
        let body = match body {
            Ok(body) => body,
            // Without a message, it was no attempt: the delivery stays due.
            Err(error) => {
                return Some(self.finished_attempt(delivery, started_at, Err(error.message()?)));
            }
        };
        if Instant::now() >= slice.cutoff || is_rebuilt && !self.is_still_due(slice, delivery).await
        {
            return None;
        }
        let sent_at = inner.clock.now();
        let timestamp = sent_at.as_second();
        let signature = signer.signature(event.id, timestamp, &body);
        let message = Message {
            id: event.id,
            timestamp,
            signature: &signature,
            endpoint: claim.endpoint_id,
            body,
        };
        let exchange = inner
            .client
            .post(&slice.url, message, connect_time(claim, delivery))
            .await;
        Some(self.finished_attempt(delivery, sent_at, Ok(exchange)))
    }

    /// Whether nothing has changed while the rows were read again.
    async fn is_still_due(&self, slice: &TimeSlice, delivery: &DueDelivery) -> bool {
        let mut deliveries = vec![delivery.clone()];
        self.retain_due(slice, &mut deliveries).await.is_ok() && !deliveries.is_empty()
    }

    /// Builds the result of an attempt, with the time of the next one.
    fn finished_attempt(
        &self,
        delivery: &DueDelivery,
        at: Timestamp,
        exchange: Result<Exchange, &'static str>,
    ) -> FinishedAttempt {
        let event = &delivery.event;
        let attempt = delivery.attempts.saturating_add(1);
        let (status, error, duration, retry_after, at_fault) = match &exchange {
            Ok(exchange) => {
                // A failure of our own name servers is not the endpoint's fault.
                let at_fault = exchange.error != Some(NAME_NOT_RESOLVED);
                (
                    exchange.status,
                    exchange.recorded(event.id),
                    exchange.duration,
                    exchange.retry_after,
                    at_fault,
                )
            }
            Err(error) => (None, Some(*error), Duration::ZERO, None, false),
        };
        let outcome = if exchange.as_ref().is_ok_and(Exchange::is_success) {
            AttemptOutcome::Delivered
        } else if status == Some(410) {
            AttemptOutcome::Failed
        } else {
            let now = self.inner.clock.now();
            let wait = self
                .inner
                .settings
                .schedule
                .after(attempt, retry_after, jitter::random());
            wait.map_or(AttemptOutcome::Failed, |wait| {
                AttemptOutcome::Retry(now.plus(wait))
            })
        };
        FinishedAttempt {
            event_id: event.id,
            sync_run_id: event.sync_run_id,
            chunk: event.chunk,
            total_chunks: event.total_chunks,
            attempt,
            due_at: delivery.due_at,
            at,
            duration_ms: u32::try_from(duration.as_millis()).unwrap_or(u32::MAX),
            status,
            error,
            exchange_failed: exchange.is_ok() && outcome != AttemptOutcome::Delivered,
            endpoint_at_fault: at_fault && outcome != AttemptOutcome::Delivered,
            outcome,
        }
    }
}

/// A dead endpoint must not hold a permit for long, but a slow one has to be reached in the end.
fn connect_time(claim: &ClaimedEndpoint, delivery: &DueDelivery) -> ConnectTime {
    let is_short = claim.is_failing && delivery.attempts.saturating_add(1) < LATE_ATTEMPT;
    if is_short {
        ConnectTime::Short
    } else {
        ConnectTime::Usual
    }
}

/// Logs no URL and no body.
fn log_attempt(slice: &TimeSlice, attempt: &FinishedAttempt) {
    let FinishedAttempt {
        event_id,
        attempt: number,
        status,
        error,
        duration_ms,
        ..
    } = attempt;
    let endpoint_id = slice.claim.endpoint_id;
    match attempt.outcome {
        AttemptOutcome::Delivered => {
            tracing::debug!(%endpoint_id, %event_id, number, status, duration_ms, "webhook event delivered");
        }
        AttemptOutcome::Retry(next) => {
            tracing::debug!(
                %endpoint_id, %event_id, number, status, error, duration_ms, %next,
                "could not deliver webhook event, retry scheduled"
            );
        }
        AttemptOutcome::Failed => {
            tracing::warn!(
                %endpoint_id, %event_id, number, status, error,
                "could not deliver webhook event, giving up"
            );
        }
    }
}
