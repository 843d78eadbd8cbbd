//! The source of the current time. The code takes a `Clock` instead of reading the system's, so that tests can set it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

/// The system clock, or a manual clock of a test.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// Microseconds of a manual clock; `None` for the system clock.
    manual: Option<Arc<AtomicI64>>,
}

impl Clock {
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stays at `now` until [`Clock::set`]. Clones share the time.
    #[must_use]
    pub fn manual(now: Timestamp) -> Self {
        Self { manual: Some(Arc::new(AtomicI64::new(now.as_microsecond()))) }
    }

    /// The current time. A manual clock has microsecond precision.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "here the system clock is read")]
    pub fn now(&self) -> Timestamp {
        match &self.manual {
            None => Timestamp::now(),
            Some(micros) => Timestamp::from_microsecond(micros.load(Ordering::Relaxed)).unwrap_or(Timestamp::MAX),
        }
    }

    /// Sets a manual clock. Has no effect on the system clock.
    pub fn set(&self, now: Timestamp) {
        if let Some(micros) = &self.manual {
            micros.store(now.as_microsecond(), Ordering::Relaxed);
        }
    }
}
