//! Whether this instance can serve requests. Its own renewals find out every few seconds, so that a request that asks
//! costs no query, however many do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// An instance whose renewals no longer end is not ready: three of them are due in this time.
const AGE_MAX: Duration = Duration::from_secs(15);

/// Cheap to clone. Clones share what was found last. Nothing found yet is not ready.
#[derive(Clone, Default)]
pub struct Readiness(Arc<Mutex<Option<Instant>>>);

impl Readiness {
    /// Stores whether a renewal has just found that the instance can serve.
    pub fn set(&self, is_ready: bool) {
        *self.0.lock() = is_ready.then(Instant::now);
    }

    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready_at(Instant::now())
    }

    fn is_ready_at(&self, now: Instant) -> bool {
        self.0.lock().is_some_and(|found| now.saturating_duration_since(found) <= AGE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_is_valid_until_three_renewals_are_missing() {
        let readiness = Readiness::default();
        assert!(!readiness.is_ready());
        readiness.set(true);
        let found = readiness.0.lock().unwrap();
        assert!(readiness.is_ready_at(found) && readiness.is_ready_at(found + AGE_MAX));
        assert!(!readiness.is_ready_at(found + AGE_MAX + Duration::from_millis(1)));
        readiness.set(false);
        assert!(!readiness.is_ready_at(found));
    }
}
