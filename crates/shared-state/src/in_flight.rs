//! How many requests of a key are under way.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counts requests under way, by key, up to a bound.
pub struct InFlight<K> {
    max: u32,
    counts: Arc<Mutex<HashMap<K, u32>>>,
}

/// A place among the requests under way; given back when dropped.
pub struct Place<K: Hash + Eq> {
    key: Option<K>,
    counts: Arc<Mutex<HashMap<K, u32>>>,
}

impl<K: Hash + Eq + Clone> InFlight<K> {
    /// At most `max` at once for each key; 0 is no bound.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { max, counts: Arc::default() }
    }

    /// A place, or none when all are taken.
    pub fn enter(&self, key: K) -> Option<Place<K>> {
        if self.max == 0 {
            return Some(Place { key: None, counts: Arc::clone(&self.counts) });
        }
        let mut counts = self.counts.lock();
        let count = counts.entry(key.clone()).or_insert(0);
        if *count >= self.max {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Place { key: Some(key), counts: Arc::clone(&self.counts) })
    }
}

impl<K: Hash + Eq> Drop for Place<K> {
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
    fn places_are_given_back() {
        let in_flight = InFlight::new(2);
        let first = in_flight.enter("a");
        let second = in_flight.enter("a");
        assert!(first.is_some() && second.is_some());
        assert!(in_flight.enter("a").is_none());
        assert!(in_flight.enter("b").is_some(), "another key has its own");
        drop(first);
        assert!(in_flight.enter("a").is_some());
        drop(second);
        assert!(in_flight.counts.lock().is_empty(), "nothing is remembered of idle keys");
    }

    #[test]
    fn zero_is_no_bound() {
        let in_flight = InFlight::new(0);
        let places: Vec<_> = (0..100).map(|_| in_flight.enter("a")).collect();
        assert!(places.iter().all(Option::is_some));
    }
}
