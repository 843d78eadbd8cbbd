//! The time as a sandbox sees it: the system's, moved by what a test asked for. It always runs on.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// A clock that can be set.
#[derive(Debug)]
pub(crate) struct Clock {
    /// How far ahead of the system's clock this one is.
    ahead: Mutex<SignedDuration>,
}

impl Clock {
    /// Starts at `start`, or with the system's clock.
    pub(crate) fn new(start: Option<Timestamp>) -> Self {
        let clock = Self { ahead: Mutex::new(SignedDuration::ZERO) };
        if let Some(start) = start {
            clock.set(start);
        }
        clock
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now().saturating_add(*self.ahead.lock()).expect("a signed duration never overflows when saturating")
    }

    /// From here on it is `to`, and the clock runs on.
    pub(crate) fn set(&self, to: Timestamp) {
        *self.ahead.lock() = to.duration_since(Timestamp::now());
    }

    /// Moves by whole seconds, backwards when negative.
    pub(crate) fn advance(&self, seconds: i64) {
        let mut ahead = self.ahead.lock();
        *ahead = ahead.saturating_add(SignedDuration::from_secs(seconds));
    }
}
