//! The settable clock of a simulated provider. It runs at normal speed with an offset from the
//! system clock, which tests can change. And arithmetic with its times.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

#[expect(clippy::disallowed_methods, reason = "here the system clock is read")]
fn system_time() -> Timestamp {
    Timestamp::now()
}

#[derive(Debug)]
pub(crate) struct Clock {
    /// Offset from the system clock.
    ahead: Mutex<SignedDuration>,
}

impl Clock {
    /// Starts at `start`, or at the system time.
    pub(crate) fn new(start: Option<Timestamp>) -> Self {
        let clock = Self {
            ahead: Mutex::new(SignedDuration::ZERO),
        };
        if let Some(start) = start {
            clock.set(start);
        }
        clock
    }

    pub(crate) fn now(&self) -> Timestamp {
        after(system_time(), *self.ahead.lock())
    }

    /// Jumps to `to` and runs on from there.
    pub(crate) fn set(&self, to: Timestamp) {
        *self.ahead.lock() = to.duration_since(system_time());
    }

    /// Moves the clock, backwards if negative.
    pub(crate) fn advance(&self, by: SignedDuration) {
        let mut ahead = self.ahead.lock();
        *ahead = ahead.saturating_add(by);
    }
}

/// The time so much later, or the last one that there is.
pub(crate) fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Nanoseconds since the epoch. Instants outside the years 1677 to 2262 are clamped.
pub(crate) fn nanoseconds(at: Timestamp) -> i64 {
    let all = at.as_nanosecond();
    i64::try_from(all).unwrap_or(if all < 0 { i64::MIN } else { i64::MAX })
}
