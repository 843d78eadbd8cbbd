//! Records what came of attempts, and disables an endpoint that is gone.

use std::time::Duration;

use bellbird_domain::TimestampExt as _;
use bellbird_limits::jitter;
use bellbird_storage::{
    AttemptOutcome, ClaimedEndpoint, DueDelivery, FinishedAttempt, StorageError,
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::claim::{ServeError, TimeSlice};
use super::health::Health;
use super::schedule::{LATE_ATTEMPT, has_failed_too_long};
use super::send::Exchange;
use super::send::delivery_error::NAME_NOT_RESOLVED;
use crate::Webhooks;

/// Metric: attempts by outcome.
pub const ATTEMPTS: &str = "bellbird_webhook_attempts_total";

/// Delay before results that could not be stored are stored again. It doubles up to the maximum.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(100);
const STORE_RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

impl Webhooks {
    /// Builds the result of an attempt, with the time of the next one.
    pub(super) fn finished_attempt(
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

    /// Stores finished attempts and counts them. An endpoint that says that it is gone, or that has
    /// failed for days, is disabled.
    pub(super) async fn record(
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
        let reason = if gone {
            "gone"
        } else if has_late_failure && has_failed_too_long(health.failing_since, now) {
            "failing"
        } else {
            return Ok(());
        };
        self.disable(&slice.claim, reason).await?;
        Err(ServeError::Disabled)
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

    pub(super) async fn disable(
        &self,
        claim: &ClaimedEndpoint,
        reason: &str,
    ) -> Result<(), ServeError> {
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
