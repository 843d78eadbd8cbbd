//! The generic cell rate algorithm on one whole number: the moment at which the bucket will be full again. Pure.

/// A bucket of `calls` calls that refills evenly over `period_us` microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Calls in a full bucket, at least 1.
    pub calls: u32,
    /// The time from empty to full, in microseconds.
    pub period_us: i64,
}

impl Limit {
    /// So many calls a minute.
    #[must_use]
    pub fn per_minute(calls: u32) -> Self {
        Self { calls, period_us: 60_000_000 }
    }

    /// The time that one call takes out of the bucket: rounded up, so that the rate is never above the limit.
    fn interval_us(self) -> i64 {
        let calls = i64::from(self.calls.max(1));
        (self.period_us + calls - 1) / calls
    }

    fn burst_us(self) -> i64 {
        self.interval_us() * i64::from(self.calls.max(1))
    }
}

/// What the bucket says to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Whether the call may be made.
    pub allowed: bool,
    /// Calls that could follow at once.
    pub remaining: u32,
    /// Microseconds until the next call is free: 0 while there is one.
    pub wait_us: i64,
    /// The number to keep: when the bucket will be full again.
    pub full_at_us: i64,
}

/// Asks for one call at `now_us`. `full_at_us` is the number kept from the last decision; anything in the past (0)
/// stands for a full bucket. A refused call takes nothing out.
#[must_use]
pub fn take(limit: Limit, full_at_us: i64, now_us: i64) -> Decision {
    decide(limit, full_at_us, now_us, true)
}

/// What a call at `now_us` would be told, without taking it.
#[must_use]
pub fn look(limit: Limit, full_at_us: i64, now_us: i64) -> Decision {
    decide(limit, full_at_us, now_us, false)
}

fn decide(limit: Limit, full_at_us: i64, now_us: i64, take: bool) -> Decision {
    let (interval, burst) = (limit.interval_us(), limit.burst_us());
    // A clock that was set back must not lock a caller out for longer than a full bucket takes.
    let full_at = full_at_us.clamp(now_us, now_us + burst);
    let after = full_at + interval;
    let allowed = after - now_us <= burst;
    let kept = if allowed && take { after } else { full_at };
    let free = now_us + burst - kept;
    let remaining = u32::try_from(free / interval).unwrap_or(0);
    let wait_us = if remaining > 0 { 0 } else { interval - free };
    Decision { allowed, remaining, wait_us, full_at_us: kept }
}

/// Microseconds as whole seconds, rounded up.
#[must_use]
pub fn whole_seconds(us: i64) -> u64 {
    u64::try_from(us).unwrap_or(0).div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_then_an_even_rate() {
        let limit = Limit::per_minute(30);
        let mut full_at = 0;
        for left in (0..30).rev() {
            let decision = take(limit, full_at, 1_000_000);
            assert!(decision.allowed);
            assert_eq!(decision.remaining, left);
            full_at = decision.full_at_us;
        }
        let refused = take(limit, full_at, 1_000_000);
        assert_eq!((refused.allowed, refused.remaining, refused.wait_us), (false, 0, 2_000_000));
        assert_eq!(refused.full_at_us, full_at, "a refused call takes nothing");
        assert!(!take(limit, full_at, 2_999_999).allowed);
        assert!(take(limit, full_at, 3_000_000).allowed);
        assert_eq!(take(limit, full_at, 61_000_000).remaining, 29);
    }

    #[test]
    fn a_limit_that_does_not_divide_the_minute_still_gives_its_burst() {
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
    fn a_clock_set_back_locks_nobody_out() {
        let limit = Limit::per_minute(60);
        let decision = take(limit, 3_600_000_000, 0);
        assert!(!decision.allowed);
        assert_eq!(decision.wait_us, 1_000_000);
    }

    proptest! {
        /// The model: in any run of calls, the allowed ones in any span are at most a bucket and what flows in.
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
                prop_assert!(later.allowed, "waiting as told is enough");
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
