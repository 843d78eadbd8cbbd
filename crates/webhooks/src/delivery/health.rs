//! How many attempts an endpoint gets at once, by what its last attempts returned. Pure.

use bellbird_storage::{AttemptOutcome, ClaimedEndpoint, FinishedAttempt};
use jiff::Timestamp;

const CONCURRENT_ATTEMPTS_MAX: usize = 16;

/// What a time slice knows about its endpoint.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Health {
    /// The first failure since the last success that was the endpoint's fault.
    pub(crate) failing_since: Option<Timestamp>,
    is_unhealthy: bool,
    /// Whether exchanges have failed for a minute or longer.
    is_failing: bool,
    /// Whether an attempt of this time slice was no success, although the endpoint was failing
    /// already.
    has_failed_again: bool,
}

impl Health {
    pub(crate) fn of(claim: &ClaimedEndpoint) -> Self {
        let ClaimedEndpoint {
            failing_since,
            is_unhealthy,
            is_failing,
            ..
        } = *claim;
        Self {
            failing_since,
            is_unhealthy,
            is_failing,
            has_failed_again: false,
        }
    }

    /// Zero: the rest of its deliveries waits for another time slice, so that other failing
    /// endpoints get the permit.
    pub(crate) fn concurrent_attempts_max(&self) -> usize {
        if self.has_failed_again {
            0
        } else if self.is_unhealthy || self.is_failing {
            1
        } else {
            CONCURRENT_ATTEMPTS_MAX
        }
    }

    /// Number of deliveries to load, at most `max`. A failing endpoint gets one before it has
    /// accepted it.
    pub(crate) fn batch_size(&self, max: u32) -> u32 {
        if self.is_failing { 1 } else { max }
    }

    /// Learns from attempts that ended. Empty: they ended before an exchange and without a result
    /// to store.
    pub(crate) fn update(&mut self, finished: &[FinishedAttempt]) {
        if finished
            .iter()
            .any(|attempt| attempt.outcome == AttemptOutcome::Delivered)
        {
            *self = Self::default();
            return;
        }
        let first_fault = finished
            .iter()
            .filter(|attempt| attempt.endpoint_at_fault)
            .map(|attempt| attempt.at)
            .min();
        self.failing_since = self.failing_since.or(first_fault);
        self.is_unhealthy |= finished.iter().any(|attempt| attempt.exchange_failed);
        self.has_failed_again = self.is_failing;
    }
}
