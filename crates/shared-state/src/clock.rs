//! The present moment, passed in so that tests can set it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

/// Tells the present moment: the system's, or one that a test sets.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    set: Option<Arc<AtomicI64>>,
}

impl Clock {
    /// The system's clock.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands at `now` until [`Clock::set`]. Its copies move together.
    #[must_use]
    pub fn standing(now: Timestamp) -> Self {
        Self { set: Some(Arc::new(AtomicI64::new(now.as_microsecond()))) }
    }

    /// The present moment, to the microsecond.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.set {
            None => Timestamp::now(),
            Some(micros) => Timestamp::from_microsecond(micros.load(Ordering::Relaxed)).unwrap_or(Timestamp::MAX),
        }
    }

    /// Moves a standing clock; the system's does not move.
    pub fn set(&self, now: Timestamp) {
        if let Some(micros) = &self.set {
            micros.store(now.as_microsecond(), Ordering::Relaxed);
        }
    }
}
