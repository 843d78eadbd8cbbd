//! Limits the number of concurrent requests of each API key, at one instance or at all that share a
//! store.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::store::{SharedPermit, SharedStore};

/// Hands out permits, up to a maximum for each key.
pub struct InFlight<K> {
    max: u32,
    store: Option<SharedStore>,
    counts: Arc<Mutex<HashMap<K, u32>>>,
}

/// The right to run one request. Dropping it releases it.
pub struct Permit<K: Hash + Eq> {
    key: Option<K>,
    counts: Arc<Mutex<HashMap<K, u32>>>,
    /// Of all instances together, if the store gave it.
    shared: Option<SharedPermit>,
}

impl<K: Hash + Eq + Clone> InFlight<K> {
    /// `max` is the limit for each key; 0 means no limit.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self {
            max,
            store: None,
            counts: Arc::default(),
        }
    }

    /// Shares the permits with other instances. Without a store, nothing changes.
    #[must_use]
    pub fn shared(self, store: Option<&SharedStore>) -> Self {
        Self {
            store: store.cloned(),
            ..self
        }
    }

    pub(crate) fn store(&self) -> Option<&SharedStore> {
        self.store.as_ref()
    }

    pub(crate) fn max(&self) -> u32 {
        self.max
    }

    /// Returns `None` if the key already holds `max` permits of this instance.
    pub fn try_acquire(&self, key: K) -> Option<Permit<K>> {
        let is_limited = self.max > 0;
        if is_limited {
            let mut counts = self.counts.lock();
            let count = counts.entry(key.clone()).or_insert(0);
            if *count >= self.max {
                return None;
            }
            *count += 1;
        }
        Some(Permit {
            key: is_limited.then_some(key),
            counts: Arc::clone(&self.counts),
            shared: None,
        })
    }
}

impl<K: Hash + Eq> Permit<K> {
    pub(crate) fn with_shared(mut self, shared: Option<SharedPermit>) -> Self {
        self.shared = shared;
        self
    }

    /// Lets other instances count it for another minute. Without this, they count it for one minute
    /// only, which is enough for a request that has a deadline. This instance always counts it.
    pub async fn renew(&self, now: Timestamp) {
        if let Some(shared) = &self.shared {
            shared.renew(now).await;
        }
    }
}

impl<K: Hash + Eq> Drop for Permit<K> {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let mut counts = self.counts.lock();
        match counts.get_mut(&key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                counts.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_released() {
        let in_flight = InFlight::new(2);
        let first = in_flight.try_acquire("a");
        let second = in_flight.try_acquire("a");
        assert!(first.is_some() && second.is_some());
        assert!(in_flight.try_acquire("a").is_none());
        assert!(
            in_flight.try_acquire("b").is_some(),
            "another key has its own permits"
        );
        drop(first);
        assert!(in_flight.try_acquire("a").is_some());
        drop(second);
        assert!(
            in_flight.counts.lock().is_empty(),
            "idle keys take no memory"
        );
    }

    #[test]
    fn zero_means_no_limit() {
        let in_flight = InFlight::new(0);
        let permits: Vec<_> = (0..100).map(|_| in_flight.try_acquire("a")).collect();
        assert!(permits.iter().all(Option::is_some));
    }
}
