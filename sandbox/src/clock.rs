//! The settable clock of a simulated provider. It runs at normal speed with an offset from the
//! system clock, which tests can change.

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
        system_time()
            .saturating_add(*self.ahead.lock())
            .expect("a signed duration never overflows when saturating")
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
