//! The generic cell rate algorithm (GCRA) as pure functions.
//!
//! The whole state of a bucket is one number: the time at which it will be full again.

/// A bucket of `calls` calls that refills evenly over `period_us` microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Calls in a full bucket. At least 1.
    pub calls: u32,
    /// Time from empty to full, in microseconds.
    pub period_us: i64,
    /// Calls that may be taken out of an empty bucket. They are paid back before any other call.
    pub credit: u32,
}

impl Limit {
    #[must_use]
    pub fn per_minute(calls: u32) -> Self {
        Self {
            calls,
            period_us: 60_000_000,
            credit: 0,
        }
    }

    /// The refill time of one call, rounded up so that the rate never exceeds the limit.
    fn interval_us(self) -> i64 {
        let calls = i64::from(self.calls.max(1));
        (self.period_us + calls - 1) / calls
    }

    /// The refill times of one call, of what may be taken at most, and of an empty bucket whose
    /// credit is used up.
    pub(crate) fn refill_us(self, is_on_credit: bool) -> (i64, i64, i64) {
        let (burst, with_credit) = self.full_us();
        (
            self.interval_us(),
            if is_on_credit { with_credit } else { burst },
            with_credit,
        )
    }

    /// When a bucket is full at the latest.
    pub(crate) fn full_at_most_us(self, now_us: i64) -> i64 {
        now_us + self.full_us().1
    }

    /// The refill time of an empty bucket, and of one whose credit is used up.
    fn full_us(self) -> (i64, i64) {
        let burst = self.interval_us() * i64::from(self.calls.max(1));
        (burst, burst + self.interval_us() * i64::from(self.credit))
    }
}

/// What a bucket decides about one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    /// Calls remaining before throttling.
    pub remaining: u32,
    /// Microseconds until the next call is allowed. 0 while `remaining` is above 0.
    pub wait_us: i64,
    /// The new state of the bucket, to pass to the next call.
    pub full_at_us: i64,
}

impl Decision {
    /// After how many seconds the next call is allowed. None: this one is.
    #[must_use]
    pub fn seconds_to_wait(&self) -> Option<u64> {
        (!self.allowed).then(|| whole_seconds(self.wait_us))
    }
}

/// Takes one call out of the bucket at `now_us`. `full_at_us` comes from the previous decision; any
/// time in the past, such as 0, means a full bucket. A rejected call costs nothing.
#[must_use]
pub fn take(limit: Limit, full_at_us: i64, now_us: i64) -> Decision {
    decide(limit, full_at_us, now_us, true, false)
}

/// As [`take`], but uses the credit of the limit once the bucket is empty.
#[must_use]
pub fn take_on_credit(limit: Limit, full_at_us: i64, now_us: i64) -> Decision {
    decide(limit, full_at_us, now_us, true, true)
}

/// Returns the decision for a call at `now_us` without taking it.
#[must_use]
pub fn peek(limit: Limit, full_at_us: i64, now_us: i64) -> Decision {
    decide(limit, full_at_us, now_us, false, false)
}

fn decide(limit: Limit, full_at_us: i64, now_us: i64, take: bool, on_credit: bool) -> Decision {
    let (interval, (burst, with_credit)) = (limit.interval_us(), limit.full_us());
    let most = if on_credit { with_credit } else { burst };
    // A clock that is set back must not lock a caller out for longer than one full refill.
    let full_at = full_at_us.clamp(now_us, limit.full_at_most_us(now_us));
    let after = full_at + interval;
    let allowed = after - now_us <= most;
    let kept = if allowed && take { after } else { full_at };
    let free = now_us + most - kept;
    let remaining = u32::try_from(free / interval).unwrap_or(0);
    let wait_us = if remaining > 0 { 0 } else { interval - free };
    Decision {
        allowed,
        remaining,
        wait_us,
        full_at_us: kept,
    }
}

/// Converts microseconds to seconds, rounded up.
#[must_use]
pub fn whole_seconds(us: i64) -> u64 {
    u64::try_from(us).unwrap_or(0).div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn burst_is_followed_by_an_even_rate() {
        let limit = Limit::per_minute(30);
        let mut full_at = 0;
        for left in (0..30).rev() {
            let decision = take(limit, full_at, 1_000_000);
            assert!(decision.allowed);
            assert_eq!(decision.remaining, left);
            full_at = decision.full_at_us;
        }
        let rejected = take(limit, full_at, 1_000_000);
        assert!(!rejected.allowed);
        assert_eq!(rejected.remaining, 0);
        assert_eq!(rejected.wait_us, 2_000_000);
        assert_eq!(
            rejected.full_at_us, full_at,
            "a rejected call costs nothing"
        );
        assert!(!take(limit, full_at, 2_999_999).allowed);
        assert!(take(limit, full_at, 3_000_000).allowed);
        assert_eq!(take(limit, full_at, 61_000_000).remaining, 29);
    }

    #[test]
    fn uneven_limit_still_allows_its_burst() {
        let limit = Limit::per_minute(7);
        let mut full_at = 0;
        for _ in 0..7 {
            let decision = take(limit, full_at, 0);
            assert!(decision.allowed);
            full_at = decision.full_at_us;
        }
        assert!(!take(limit, full_at, 0).allowed);
    }

    #[test]
    fn credit_is_paid_back_first() {
        let limit = Limit {
            credit: 30,
            ..Limit::per_minute(30)
        };
        let mut full_at = take(limit, 0, 0).full_at_us;
        for _ in 1..60 {
            let decision = take_on_credit(limit, full_at, 0);
            assert!(decision.allowed);
            full_at = decision.full_at_us;
        }
        assert!(!take_on_credit(limit, full_at, 0).allowed);
        let rejected = take(limit, full_at, 0);
        let decided = (rejected.allowed, rejected.remaining, rejected.wait_us);
        assert_eq!(decided, (false, 0, 62_000_000));
        assert!(take(limit, full_at, 62_000_000).allowed);
    }

    #[test]
    fn clock_set_back_does_not_lock_callers_out() {
        let limit = Limit::per_minute(60);
        let decision = take(limit, 3_600_000_000, 0);
        assert!(!decision.allowed);
        assert_eq!(decision.wait_us, 1_000_000);
    }

    proptest! {
        /// Model: within any period, the allowed calls are at most one full bucket plus the refill
        /// of that period.
        #[test]
        fn never_above_the_rate(calls in 1_u32..100, steps in prop::collection::vec(0_i64..3_000_000, 1..200)) {
            let limit = Limit::per_minute(calls);
            let (mut now, mut full_at) = (0, 0);
            let mut allowed_at = Vec::new();
            for step in steps {
                now += step;
                let decision = take(limit, full_at, now);
                full_at = decision.full_at_us;
                if decision.allowed { allowed_at.push(now); }
                prop_assert_eq!(decision.wait_us > 0, decision.remaining == 0);
                let later = take(limit, full_at, now + decision.wait_us);
                prop_assert!(later.allowed, "the call after `wait_us` is allowed");
            }
            for (first, start) in allowed_at.iter().enumerate() {
                for (last, end) in allowed_at.iter().enumerate().skip(first) {
                    let inflow = (end - start) / limit.interval_us();
                    prop_assert!((last - first + 1) as i64 <= i64::from(calls) + inflow + 1);
                }
            }
        }
    }
}
