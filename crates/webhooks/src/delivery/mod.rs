//! Delivers webhook events, in five steps, each in the file of its name: claim a queue, make the
//! body of each event that is due, sign it, send it, and record what came of it.
//!
//! A queue has the deliveries of one user's events to one endpoint. An instance claims it with a
//! lease and serves it for a time slice of ten seconds. No other instance serves it meanwhile. Each
//! queue has its own time slice, so a slow or dead endpoint delays only itself. The number of
//! concurrent time slices is limited, separately for queues that have been failing for a minute, so
//! those cannot crowd out the others. If exchanges with an endpoint of the installation have failed
//! for a minute for one user, and it has accepted nothing since, the queues of its other users join
//! them. Such a queue gets one event in each time slice, until the endpoint accepts one
//! (`health.rs`).
//!
//! A time slice ends long before the lease. So no two instances send the same event, except for
//! attempts that were running when a process was killed. Deliveries that were loaded a while ago
//! are checked again right before they are sent: the lease may be lost, the connection removed, the
//! event redelivered, or the endpoint or the user's plan changed. The next time slice goes on with
//! what has changed.

mod body;
mod claim;
pub mod cleanup;
mod health;
pub(crate) mod ping;
pub(crate) mod rebuild;
pub(crate) mod record;
pub mod schedule;
pub mod send;
pub mod sign;
#[cfg(feature = "test-support")]
mod test_support;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::Plan;
use bellbird_storage::{
    AttemptOutcome, ClaimedEndpoint, DueDelivery, FinishedAttempt, LastFailure,
};
use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::Webhooks;
use body::NoBody;
use claim::{BATCH_SIZE, ServeError, TimeSlice};
use health::Health;
use send::delivery_error::{NOT_IN_PLAN, NOT_SIGNED, PANICKED};

/// Maximum number of queues that one instance serves concurrently.
const HEALTHY_QUEUES_MAX: usize = 32;
/// The same for queues that have been failing for a minute. They are served in addition to the
/// others.
const FAILING_QUEUES_MAX: usize = 32;
/// How often the loop polls. It finds retries, and deliveries created by other instances.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before queues are claimed, so that one claim covers several events and one time slice all
/// events of a queue.
const CLAIM_DELAY: Duration = Duration::from_millis(100);
/// Delay before results are stored, so that one write covers several.
const RESULTS_DELAY: Duration = Duration::from_millis(5);

impl Webhooks {
    /// Runs due deliveries until `stop`, then waits for the running attempts.
    pub async fn deliver(&self, stop: CancellationToken) {
        let (mut healthy, mut failing) = (JoinSet::new(), JoinSet::new());
        let mut failures = [LastFailure::default(), LastFailure::default()];
        while !stop.is_cancelled() {
            self.inner.event_buffer.purge_expired();
            let started = [
                self.start_time_slices(&mut healthy, HEALTHY_QUEUES_MAX, false, &stop)
                    .await,
                self.start_time_slices(&mut failing, FAILING_QUEUES_MAX, true, &stop)
                    .await,
            ];
            for (failure, started) in failures.iter_mut().zip(&started) {
                if let Some(error) = failure.news(started) {
                    tracing::warn!(error, "could not claim due endpoints");
                }
            }
            let is_full = matches!(started[0], Ok(true));
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                Some(_) = healthy.join_next() => {}
                Some(_) = failing.join_next() => {}
                () = self.inner.event_buffer.new_events.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            // If all permits are in use, queues may be waiting, so the next free permit is used
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

    async fn serve(
        &self,
        claim: &ClaimedEndpoint,
        stop: &CancellationToken,
    ) -> Result<(), ServeError> {
        let Some(slice) = self.open_slice(claim).await? else {
            return Ok(());
        };
        let mut health = Health::of(claim);
        loop {
            let (deliveries, now) = (self.inner.storage.deliveries(), self.inner.clock.now());
            let limit = health.batch_size(BATCH_SIZE);
            let due = deliveries.list_due(claim, now, limit).await?;
            let has_more = due.len() >= limit as usize
                || due
                    .iter()
                    .any(|due| due.event.chunk < due.event.total_chunks);
            self.send_all(&slice, due, stop, &mut health).await?;
            // Deliveries that became due meanwhile wait for the next time slice.
            let is_over = Instant::now() >= slice.ends_at || health.concurrent_attempts_max() == 0;
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
        stop: &CancellationToken,
        health: &mut Health,
    ) -> Result<(), ServeError> {
        let mut due = due.into_iter();
        let mut attempts = JoinSet::new();
        let mut is_just_listed = true;
        loop {
            let is_over = Instant::now() >= slice.ends_at || stop.is_cancelled();
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
                self.record(slice, &finished, health).await?;
            }
        }
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

    /// Makes one attempt. `None` if none was made, so that the delivery stays due.
    async fn attempt(&self, slice: &TimeSlice, delivery: &DueDelivery) -> Option<FinishedAttempt> {
        let (inner, event, claim) = (&self.inner, &delivery.event, &slice.claim);
        let started_at = inner.clock.now();
        let failed = |error| self.finished_attempt(delivery, started_at, Err(error));
        if claim.plan.unwrap_or(Plan::Saver) < event.event_type.plan_min() {
            return Some(FinishedAttempt {
                outcome: AttemptOutcome::Failed,
                ..failed(NOT_IN_PLAN)
            });
        }
        let Some(signer) = &slice.signer else {
            return Some(failed(NOT_SIGNED));
        };
        let body = match self.body(slice, delivery).await {
            Ok(body) => body,
            Err(NoBody::NotNow) => return None,
            Err(NoBody::Failed(error)) => return Some(failed(error)),
            Err(NoBody::NotReached(exchange)) => {
                return Some(self.finished_attempt(delivery, started_at, Ok(exchange)));
            }
        };
        let sent_at = inner.clock.now();
        let message = signer.sign(event.id, claim.endpoint_id, sent_at, body);
        let connect_time = slice.connect_time(delivery);
        let exchange = inner.client.send(&slice.url, message, connect_time).await;
        Some(self.finished_attempt(delivery, sent_at, Ok(exchange)))
    }
}
