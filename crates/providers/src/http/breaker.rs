//! The circuit breaker of a provider. It opens for a moment when nearly all calls fail, or when
//! none gets a response any more, so that requests fail fast instead of queueing.
//!
//! It uses no crate: the existing ones keep a clock of their own, and this code is short.

use std::time::Duration;

use tokio::time::Instant;

/// Calls are counted per span of this length.
const SPAN: Duration = Duration::from_secs(10);
/// Fewer failures than this in a span never open the breaker. Retries deal with a few failed calls.
const FAILURES_MIN: u32 = 40;
/// The breaker opens if at least four of five calls in a span fail.
const FAILED_OF_FIVE_MIN: u32 = 4;
/// The breaker opens after this many calls in a row without a response. A provider that hangs never
/// has many failures in a span, because each takes as long as the timeout.
const UNANSWERED_MAX: u32 = 8;
/// How long the breaker stays open before it admits one trial call.
const OPEN_FOR: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With any response but a server error.
    Answered,
    /// At once: a connection error or a server error.
    Failed,
    /// Without a response within the timeout.
    Unanswered,
}

#[derive(Debug)]
pub(super) enum Breaker {
    /// Admits and counts all calls. `since` is the start of the current span. `unanswered` counts
    /// across spans, since the last response.
    Closed {
        since: Option<Instant>,
        calls: u32,
        failures: u32,
        unanswered: u32,
    },
    /// Rejects all calls until the instant.
    Open { until: Instant },
    /// One trial call is running. Its outcome opens or closes the breaker.
    Trying { since: Instant },
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed {
            since: None,
            calls: 0,
            failures: 0,
            unanswered: 0,
        }
    }
}

impl Breaker {
    /// Whether [`Self::admit`] would admit a call now, else how long to wait. It starts no trial.
    pub(super) fn check(&self, now: Instant) -> Result<(), Duration> {
        match *self {
            Self::Open { until } if now < until => Err(until - now),
            Self::Trying { since } if now < since + SPAN => Err(OPEN_FOR),
            Self::Closed { .. } | Self::Open { .. } | Self::Trying { .. } => Ok(()),
        }
    }

    /// Admits a call or returns how long to wait. A trial call without an outcome, because its
    /// request was dropped, counts as lost after [`SPAN`].
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        self.check(now)?;
        if !matches!(self, Self::Closed { .. }) {
            *self = Self::Trying { since: now };
        }
        Ok(())
    }

    /// Records the outcome of a call. Returns true if it opened the breaker.
    pub(super) fn record(&mut self, now: Instant, outcome: Outcome) -> bool {
        match self {
            Self::Open { .. } => false,
            Self::Trying { .. } if outcome == Outcome::Answered => {
                *self = Self::default();
                false
            }
            Self::Trying { .. } => {
                *self = Self::Open {
                    until: now + OPEN_FOR,
                };
                true
            }
            Self::Closed {
                since,
                calls,
                failures,
                unanswered,
            } => {
                if since.is_none_or(|start| now >= start + SPAN) {
                    (*since, *calls, *failures) = (Some(now), 0, 0);
                }
                *calls += 1;
                *failures += u32::from(outcome != Outcome::Answered);
                *unanswered = if outcome == Outcome::Unanswered {
                    *unanswered + 1
                } else {
                    0
                };
                let nearly_all_fail =
                    *failures >= FAILURES_MIN && *failures * 5 >= *calls * FAILED_OF_FIVE_MIN;
                let opens = nearly_all_fail || *unanswered >= UNANSWERED_MAX;
                if opens {
                    *self = Self::Open {
                        until: now + OPEN_FOR,
                    };
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
        (0..times).fold(false, |_, _| breaker.record(now, Outcome::Failed))
    }

    #[tokio::test(start_paused = true)]
    async fn breaker_opens_tries_once_and_closes() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        assert!(!failing(&mut breaker, start, FAILURES_MIN - 1));
        assert_eq!(breaker.admit(start), Ok(()));
        assert!(failing(&mut breaker, start, 1));
        assert_eq!(breaker.admit(start), Err(OPEN_FOR));

        let later = start + OPEN_FOR;
        assert_eq!(breaker.admit(later), Ok(()), "one trial call");
        assert_eq!(breaker.admit(later), Err(OPEN_FOR), "and only one");
        assert!(
            breaker.record(later, Outcome::Failed),
            "a failed trial opens it again"
        );
        assert_eq!(breaker.admit(later + OPEN_FOR), Ok(()));
        assert!(!breaker.record(later + OPEN_FOR, Outcome::Answered));
        assert_eq!(breaker.admit(later + OPEN_FOR), Ok(()));
        assert!(
            !failing(&mut breaker, later + OPEN_FOR, FAILURES_MIN - 1),
            "counting starts again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn breaker_stays_closed_on_mixed_outcomes() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..200 {
            assert!(!breaker.record(now, Outcome::Answered));
            assert!(!failing(&mut breaker, now, 3));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_an_earlier_span_are_not_counted() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        assert!(!failing(&mut breaker, start, FAILURES_MIN - 1));
        assert!(!failing(&mut breaker, start + SPAN, FAILURES_MIN - 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_trial_does_not_keep_the_breaker_open() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        failing(&mut breaker, start, FAILURES_MIN);
        assert_eq!(breaker.admit(start + OPEN_FOR), Ok(()));
        assert_eq!(breaker.admit(start + OPEN_FOR + SPAN), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_without_an_answer_open_the_breaker() {
        let (mut breaker, mut now) = (Breaker::default(), Instant::now());
        let mut hang = |breaker: &mut Breaker| {
            now += 2 * SPAN;
            (breaker.record(now, Outcome::Unanswered), now)
        };
        for _ in 1..UNANSWERED_MAX {
            assert!(!hang(&mut breaker).0);
        }
        breaker.record(Instant::now(), Outcome::Answered);
        for _ in 1..UNANSWERED_MAX {
            assert!(!hang(&mut breaker).0, "a response starts the count again");
        }
        let (opened, now) = hang(&mut breaker);
        assert!(opened);
        assert_eq!(breaker.check(now), Err(OPEN_FOR));
        let later = now + OPEN_FOR;
        assert_eq!(
            (breaker.check(later), breaker.check(later)),
            (Ok(()), Ok(())),
            "checking is no trial"
        );
        assert_eq!(breaker.admit(later), Ok(()));
        assert!(!breaker.record(later, Outcome::Answered));
        assert_eq!(breaker.admit(later), Ok(()));
    }
}
