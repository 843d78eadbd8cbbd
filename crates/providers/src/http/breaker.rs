//! Leaves a provider alone for a moment when nearly everything fails, so that requests fail fast instead of queueing.
//!
//! Own code: the crates that do this keep their own clock, and this is thirty lines.

use std::time::Duration;

use tokio::time::Instant;

/// Calls are counted over spans of this length.
const SPAN: Duration = Duration::from_secs(10);
/// Fewer failures than this in a span never open it: a few broken calls are the retries' business.
const FAILURES_MIN: u32 = 40;
/// It opens when at least four of five calls fail.
const FAILED_OF_FIVE_MIN: u32 = 4;
/// How long it stays open before one call tries again.
const OPEN_FOR: Duration = Duration::from_secs(1);

/// Closed: counting. Open: refusing until a moment. Trying: one call is out to see.
#[derive(Debug)]
pub(super) enum Breaker {
    Closed { since: Option<Instant>, calls: u32, failures: u32 },
    Open { until: Instant },
    Trying { since: Instant },
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed { since: None, calls: 0, failures: 0 }
    }
}

impl Breaker {
    /// Whether a call may be made now; else how long to wait. A trial call that never reports back (its request was
    /// dropped) is given up after [`SPAN`].
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        match *self {
            Self::Closed { .. } => Ok(()),
            Self::Open { until } if now < until => Err(until - now),
            Self::Trying { since } if now < since + SPAN => Err(OPEN_FOR),
            Self::Open { .. } | Self::Trying { .. } => {
                *self = Self::Trying { since: now };
                Ok(())
            }
        }
    }

    /// Records how a call ended. True when this one opened the breaker.
    pub(super) fn record(&mut self, now: Instant, healthy: bool) -> bool {
        match self {
            Self::Open { .. } => false,
            Self::Trying { .. } if healthy => {
                *self = Self::default();
                false
            }
            Self::Trying { .. } => {
                *self = Self::Open { until: now + OPEN_FOR };
                true
            }
            Self::Closed { since, calls, failures } => {
                if since.is_none_or(|start| now >= start + SPAN) {
                    (*since, *calls, *failures) = (Some(now), 0, 0);
                }
                *calls += 1;
                *failures += u32::from(!healthy);
                let opens = *failures >= FAILURES_MIN && *failures * 5 >= *calls * FAILED_OF_FIVE_MIN;
                if opens {
                    *self = Self::Open { until: now + OPEN_FOR };
                }
                opens
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(breaker: &mut Breaker, now: Instant, times: u32) -> bool {
        (0..times).fold(false, |_, _| breaker.record(now, false))
    }

    #[tokio::test(start_paused = true)]
    async fn opens_tries_once_and_closes() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        assert!(!failing(&mut breaker, start, FAILURES_MIN - 1));
        assert_eq!(breaker.admit(start), Ok(()));
        assert!(failing(&mut breaker, start, 1));
        assert_eq!(breaker.admit(start), Err(OPEN_FOR));

        let later = start + OPEN_FOR;
        assert_eq!(breaker.admit(later), Ok(()), "one call tries");
        assert_eq!(breaker.admit(later), Err(OPEN_FOR), "and only one");
        assert!(breaker.record(later, false), "still broken: open again");
        assert_eq!(breaker.admit(later + OPEN_FOR), Ok(()));
        assert!(!breaker.record(later + OPEN_FOR, true));
        assert_eq!(breaker.admit(later + OPEN_FOR), Ok(()));
        assert!(!failing(&mut breaker, later + OPEN_FOR, FAILURES_MIN - 1), "counting starts anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_mixed_provider_stays_closed() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..200 {
            assert!(!breaker.record(now, true));
            assert!(!failing(&mut breaker, now, 3));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn old_failures_are_forgotten() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        assert!(!failing(&mut breaker, start, FAILURES_MIN - 1));
        assert!(!failing(&mut breaker, start + SPAN, FAILURES_MIN - 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_trial_does_not_keep_it_open() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        failing(&mut breaker, start, FAILURES_MIN);
        assert_eq!(breaker.admit(start + OPEN_FOR), Ok(()));
        assert_eq!(breaker.admit(start + OPEN_FOR + SPAN), Ok(()));
    }
}
