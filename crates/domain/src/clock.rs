//! The source of the current time. The code takes a `Clock` instead of reading the system's, so
//! that tests can set it, and so that a system clock that jumps does not take a running service
//! with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

/// More than two clocks drift apart within hours.
const STEP_BACK_MIN: SignedDuration = SignedDuration::from_millis(500);

/// A clock that goes on by itself from the time it was given last, or a manual clock of a test. Has
/// microseconds. Clones share the time.
#[derive(Debug, Clone)]
pub struct Clock {
    /// Microseconds at `since`.
    micros: Arc<AtomicI64>,
    /// None for a manual clock, which stands still.
    since: Option<Instant>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl Clock {
    /// A clock that has the system's time now. What the system's clock does later is no matter
    /// until [`Self::follow`].
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "here the system clock is read")]
    pub fn system() -> Self {
        Self {
            since: Some(Instant::now()),
            ..Self::manual(Timestamp::now())
        }
    }

    /// A clock that stays at `now` until [`Clock::set`]. In a simulation, it goes on with the
    /// simulated time.
    #[must_use]
    pub fn manual(now: Timestamp) -> Self {
        Self {
            micros: Arc::new(AtomicI64::new(now.as_microsecond())),
            since: None,
        }
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        let micros = self
            .micros
            .load(Ordering::Relaxed)
            .saturating_add(self.elapsed());
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
    }

    /// Sets a manual clock. Has no effect on the others.
    pub fn set(&self, now: Timestamp) {
        if self.since.is_none() {
            self.micros.store(now.as_microsecond(), Ordering::Relaxed);
        }
    }

    /// Sets a clock that goes on by itself to a time that another clock had up to `age_max` ago. It
    /// goes forward to it, so of many readings the quickest one counts, and instances agree. It
    /// goes back only if it is ahead by more than `STEP_BACK_MIN`, because a later change must not
    /// get an earlier time. Has no effect on a manual one.
    pub fn follow(&self, reading: Timestamp, age_max: SignedDuration) {
        let ahead = self.ahead_of(reading);
        if self.since.is_some()
            && (ahead.is_negative() || ahead > age_max.saturating_add(STEP_BACK_MIN))
        {
            self.micros.store(
                reading.as_microsecond().saturating_sub(self.elapsed()),
                Ordering::Relaxed,
            );
        }
    }

    /// By how much a clock that goes on by itself would go back to follow this time. Zero for a
    /// manual one.
    #[must_use]
    pub fn ahead_of(&self, now: Timestamp) -> SignedDuration {
        if self.since.is_some() {
            self.now().duration_since(now)
        } else {
            SignedDuration::ZERO
        }
    }

    fn elapsed(&self) -> i64 {
        #[cfg(feature = "test-support")]
        if self.since.is_none() {
            return crate::random::simulation::elapsed();
        }
        self.since.map_or(0, |since| {
            i64::try_from(since.elapsed().as_micros()).unwrap_or(i64::MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn running_clock_goes_on_from_what_it_follows() {
        let clock = Clock::system();
        let shared = clock.clone();
        clock.set(at(5));
        assert!(clock.now() > at(1_700_000_000), "not a manual clock");
        clock.follow(at(1_000), SignedDuration::ZERO);
        let first = shared.now();
        assert!((at(1_000)..at(1_060)).contains(&first));
        assert!(
            (SignedDuration::from_secs(400)..SignedDuration::from_secs(460))
                .contains(&shared.ahead_of(at(600)))
        );
        while clock.now() == first {}
        assert!(clock.now() > first);
    }

    #[test]
    fn running_clock_does_not_go_back_for_a_slow_answer() {
        let clock = Clock::system();
        clock.follow(at(1_000), SignedDuration::ZERO);
        for (reading, age_max) in [
            (at(999), SignedDuration::from_secs(60)),
            (at(600), SignedDuration::from_secs(460)),
        ] {
            let before = clock.now();
            clock.follow(reading, age_max);
            assert!(clock.now() >= before, "it may be the present time");
        }
        clock.follow(at(600), SignedDuration::from_secs(1));
        assert!(clock.now() < at(999), "it is certainly ahead");
        clock.follow(at(2_000), SignedDuration::from_secs(60));
        assert!(
            clock.now() >= at(2_000),
            "the other clock is at least there"
        );
    }

    #[test]
    fn manual_clock_stands_still() {
        let clock = Clock::manual(at(5));
        clock.follow(at(9), SignedDuration::ZERO);
        assert_eq!(
            (clock.now(), clock.ahead_of(at(1))),
            (at(5), SignedDuration::ZERO)
        );
        clock.clone().set(at(7));
        assert_eq!(clock.now(), at(7));
    }
}
