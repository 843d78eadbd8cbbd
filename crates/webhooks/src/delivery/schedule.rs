//! The retry schedule of deliveries, and the rule that disables a failing endpoint. Pure.

use std::time::Duration;

use bellbird_limits::jitter::jittered;
use jiff::{SignedDuration, Timestamp};

/// Only failures from this attempt on can disable an endpoint. It comes at least half an hour after
/// the first attempt. From this attempt on, even a failing endpoint has the usual time to accept a
/// connection.
pub(super) const LATE_ATTEMPT: u32 = 5;
/// An endpoint that only fails for this many days is disabled.
const FAILING_DAYS_MAX: i64 = 5;

/// Delays before each attempt, in seconds: ten attempts over about 28 hours
/// (docs/contract.md#webhook-retries).
const DELAYS_SECONDS: [u64; 10] = [0, 5, 60, 300, 1_800, 3_600, 7_200, 18_000, 28_800, 39_600];

/// The delay of each attempt after the previous one. The first counts from the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(Vec<Duration>);

impl Schedule {
    /// One attempt for each delay.
    pub fn new(delays: Vec<Duration>) -> Self {
        Self(delays)
    }

    /// Returns the delay before the next attempt after `attempts` failed ones, or `None` after the
    /// last.
    ///
    /// The delay is never shorter than `retry_after`, which the caller must have capped. `jitter`
    /// is any random number. It adds up to one fifth, so that deliveries that failed together are
    /// not retried together.
    pub fn after(
        &self,
        attempts: u32,
        retry_after: Option<Duration>,
        jitter: u64,
    ) -> Option<Duration> {
        let delay = *self.0.get(usize::try_from(attempts).ok()?)?;
        let wait = delay.max(retry_after.unwrap_or_default());
        Some(jittered(wait, wait / 5, jitter))
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self::new(DELAYS_SECONDS.map(Duration::from_secs).to_vec())
    }
}

/// Whether an endpoint has failed for five days or more. `failing_since` is its first failure after
/// its last success.
pub fn has_failed_too_long(failing_since: Option<Timestamp>, now: Timestamp) -> bool {
    failing_since.is_some_and(|since| {
        now.duration_since(since) >= SignedDuration::from_hours(24 * FAILING_DAYS_MAX)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ten_attempts_over_about_28_hours() {
        let schedule = Schedule::default();
        assert_eq!(schedule.after(0, None, 0), Some(Duration::ZERO));
        let waits: Vec<u64> = (1..)
            .map_while(|made| schedule.after(made, None, 0))
            .map(|wait| wait.as_secs())
            .collect();
        assert_eq!(
            waits,
            [5, 60, 300, 1_800, 3_600, 7_200, 18_000, 28_800, 39_600]
        );
        let hours = waits.iter().sum::<u64>() / 3_600;
        assert!((27..29).contains(&hours), "{hours} hours");
        let last = schedule.after(10, Some(Duration::from_secs(60)), 0);
        assert_eq!(
            last, None,
            "the last attempt is the last, even with Retry-After"
        );
        assert_eq!(schedule.after(u32::MAX, None, 0), None);
    }

    #[test]
    fn schedule_has_one_attempt_per_delay() {
        let schedule = Schedule::new([3, 7].map(Duration::from_secs).to_vec());
        assert_eq!(schedule.after(0, None, 0), Some(Duration::from_secs(3)));
        assert_eq!(schedule.after(1, None, 0), Some(Duration::from_secs(7)));
        assert_eq!(schedule.after(2, None, 0), None);
        let none = Schedule::new(Vec::new());
        assert_eq!(none.after(0, None, 0), None);
        assert_eq!(none.after(1, None, 0), None);
    }

    #[test]
    fn endpoint_is_disabled_after_five_days() {
        let since: Timestamp = "2026-11-16T00:00:00Z".parse().unwrap();
        for (now, expected) in [
            ("2026-11-15T00:00:00Z", false),
            ("2026-11-16T00:00:00Z", false),
            ("2026-11-20T23:59:59Z", false),
            ("2026-11-21T00:00:00Z", true),
            ("2027-11-21T00:00:00Z", true),
        ] {
            let has_failed = has_failed_too_long(Some(since), now.parse().unwrap());
            assert_eq!(has_failed, expected, "{now}");
        }
        assert!(!has_failed_too_long(None, since));
    }

    proptest! {
        #[test]
        fn jitter_adds_at_most_one_fifth(
            attempts in 0_u32..12,
            retry_after in prop::option::of(0_u64..100_000),
            jitter in any::<u64>(),
        ) {
            let schedule = Schedule::default();
            let retry_after = retry_after.map(Duration::from_secs);
            let least = schedule.after(attempts, retry_after, 0);
            prop_assert_eq!(least.is_some(), attempts < 10);
            if let (Some(least), Some(wait)) = (least, schedule.after(attempts, retry_after, jitter)) {
                prop_assert!(least >= retry_after.unwrap_or_default());
                prop_assert!(least >= schedule.after(attempts, None, 0).unwrap());
                prop_assert!(least <= wait && wait <= least + least / 5);
            }
        }

        #[test]
        fn never_panics(delay in any::<Duration>(), retry_after in any::<Option<Duration>>(), jitter in any::<u64>()) {
            let schedule = Schedule::new(vec![Duration::ZERO, delay]);
            prop_assert!(schedule.after(1, retry_after, jitter).is_some_and(|wait| wait >= delay));
        }
    }

    #[test]
    fn delays_are_jittered() {
        let schedule = Schedule::default();
        let longest = schedule.after(2, None, 2_000);
        assert_eq!(longest, Some(Duration::from_secs(72)));
        assert_ne!(schedule.after(2, None, 1), schedule.after(2, None, 2));
    }
}
