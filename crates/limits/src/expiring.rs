//! A map whose entries expire after a fixed time, with a limit on its total size in bytes.

use std::hash::{Hash, RandomState};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use quick_cache::sync::{Cache, DefaultLifecycle, EntryAction, EntryResult};
use quick_cache::{OptionsBuilder, Weighter};

/// How many evicted keys are known, so that one that comes back stays longer.
const EVICTED_KEYS: usize = 1_000;

#[derive(Clone)]
struct Entry<V> {
    value: V,
    inserted_at: Timestamp,
    /// By the system's clock.
    kept_since: Instant,
    /// A value may grow later, but the map needs one size for it.
    bytes: u64,
}

type BytesOf<K, V> = dyn Fn(&K, &V) -> usize + Send + Sync;

#[derive(Clone)]
struct ByBytes;

impl<K, V> Weighter<K, Entry<V>> for ByBytes {
    fn weight(&self, _: &K, entry: &Entry<V>) -> u64 {
        entry.bytes
    }
}

/// A map with a time to live and a limit in bytes. A full map evicts old entries that are used
/// least.
///
/// The caller's clock decides whether an entry has expired. The system clock also evicts entries,
/// to free their memory.
pub struct Expiring<K, V> {
    entries: Cache<K, Entry<V>, ByBytes, RandomState>,
    ttl: SignedDuration,
    bytes_of: Box<BytesOf<K, V>>,
}

impl<K, V> Expiring<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Creates a map whose entries expire after `ttl`. Zero turns caching off.
    ///
    /// `bytes_of` measures an entry when it is inserted or renewed. All entries together take at
    /// most `bytes_max`, and each at most a quarter of it.
    pub fn new(
        ttl: Duration,
        bytes_max: u64,
        bytes_of: impl Fn(&K, &V) -> usize + Send + Sync + 'static,
    ) -> Self {
        // One shard, so that an entry may be large. Of a full map, this part is for entries that
        // were used. The rest is for new ones, the oldest of which go first. No entry is larger
        // than this part.
        let options = OptionsBuilder::new()
            .shards(1)
            .weight_capacity(bytes_max)
            .estimated_items_capacity(EVICTED_KEYS)
            .hot_allocation(0.25)
            .build();
        Self {
            entries: Cache::with_options(
                options.expect("both capacities are set"),
                ByBytes,
                RandomState::new(),
                DefaultLifecycle::default(),
            ),
            ttl: SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX),
            bytes_of: Box::new(bytes_of),
        }
    }

    fn entry(&self, key: &K, value: V, now: Timestamp) -> Entry<V> {
        let bytes = (self.bytes_of)(key, &value).max(1) as u64;
        Entry {
            value,
            inserted_at: now,
            kept_since: Instant::now(),
            bytes,
        }
    }

    /// The age of an entry that has not expired.
    fn age(&self, entry: &Entry<V>, now: Timestamp) -> Option<SignedDuration> {
        let age = now
            .duration_since(entry.inserted_at)
            .max(SignedDuration::ZERO);
        (age < self.ttl).then_some(age)
    }

    /// Returns the value and its age, unless it has expired at `now`.
    pub fn get(&self, key: &K, now: Timestamp) -> Option<(V, SignedDuration)> {
        let entry = self.entries.get(key)?;
        let age = self.age(&entry, now)?;
        Some((entry.value, age))
    }

    /// Returns the value, unless it has expired at `now`, and restarts its time to live.
    pub fn renew(&self, key: &K, now: Timestamp) -> Option<V> {
        // In place, so that a value inserted concurrently is never replaced by this older one.
        let found = self.entries.entry(key, None, |key, entry| {
            EntryAction::Retain(self.renew_entry(key, entry, now))
        });
        let renewed = if let EntryResult::Retained(value) = found {
            value
        } else {
            None
        };
        self.evict_excess();
        renewed
    }

    fn renew_entry(&self, key: &K, entry: &mut Entry<V>, now: Timestamp) -> Option<V> {
        self.age(entry, now)?;
        *entry = self.entry(key, entry.value.clone(), now);
        Some(entry.value.clone())
    }

    /// As [`Self::renew`], but inserts a value if there is none.
    pub fn renew_or_insert_with(&self, key: &K, now: Timestamp, value: impl FnOnce() -> V) -> V {
        let value = self.get_or_insert(key, now, value, |entry| self.renew_entry(key, entry, now));
        self.evict_excess();
        value
    }

    /// An entry may have grown when it was renewed. Setting the same capacity again evicts what is
    /// beyond it.
    fn evict_excess(&self) {
        let bytes_max = self.entries.capacity();
        if self.entries.weight() > bytes_max {
            self.entries.set_capacity(bytes_max);
        }
    }

    /// Returns the value as [`Self::get`] does, or inserts one. Callers at the same time share it.
    pub fn get_or_insert_with(&self, key: &K, now: Timestamp, value: impl FnOnce() -> V) -> V {
        self.get_or_insert(key, now, value, |entry| {
            self.age(entry, now).map(|_| entry.value.clone())
        })
    }

    /// `known` returns the value of an entry that has not expired.
    fn get_or_insert(
        &self,
        key: &K,
        now: Timestamp,
        value: impl FnOnce() -> V,
        known: impl FnOnce(&mut Entry<V>) -> Option<V>,
    ) -> V {
        let found = self
            .entries
            .entry(key, None, |_, entry| match known(entry) {
                Some(value) => EntryAction::Retain(value),
                None => EntryAction::ReplaceWithGuard,
            });
        match found {
            EntryResult::Retained(value) => value,
            EntryResult::Vacant(place) | EntryResult::Replaced(place, _) => {
                let value = value();
                // An entry that is too large is not kept.
                let _ = place.insert(self.entry(key, value.clone(), now));
                value
            }
            EntryResult::Removed(..) | EntryResult::Timeout => {
                unreachable!("nothing is removed, and no time is set")
            }
        }
    }

    /// All values, whether or not they have expired.
    pub fn values(&self) -> impl Iterator<Item = V> {
        self.entries.iter().map(|(_, entry)| entry.value)
    }

    /// Frees the memory of entries that have expired by the system clock.
    pub fn purge_expired(&self) {
        let ttl = self.ttl.unsigned_abs().max(Duration::from_secs(1));
        self.entries
            .retain(|_, entry| entry.kept_since.elapsed() < ttl);
    }

    pub fn bytes(&self) -> u64 {
        self.entries.weight()
    }

    pub fn remove(&self, key: &K) {
        self.entries.remove(key);
    }

    /// Removes every entry with a matching key. Scans the whole map, so call it for rare events
    /// only.
    pub fn remove_where(&self, matches: impl Fn(&K) -> bool) {
        self.entries.retain(|key, _| !matches(key));
    }

    /// Returns false if caching is off.
    pub fn insert(&self, key: K, value: V, now: Timestamp) -> bool {
        let is_on = !self.ttl.is_zero();
        if is_on {
            let entry = self.entry(&key, value, now);
            self.entries.insert(key, entry);
        }
        is_on
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn entries_age_and_expire() {
        let map = Expiring::new(Duration::from_secs(300), 1_000, |_: &u8, _: &&str| 1);
        let aged = |value, seconds| Some((value, SignedDuration::from_secs(seconds)));
        map.insert(1, "one", at(1_000));
        assert_eq!(map.get(&1, at(1_000)), aged("one", 0));
        assert_eq!(map.get(&1, at(1_299)), aged("one", 299));
        assert_eq!(map.get(&1, at(1_300)), None);
        let set_back = map.get(&1, at(999));
        assert_eq!(set_back, aged("one", 0), "the clock was set back");
        assert_eq!(map.renew(&1, at(1_299)), Some("one"));
        assert_eq!(map.get(&1, at(1_598)), aged("one", 299));
        assert_eq!(map.renew(&1, at(1_599)), None, "expired");
        assert_eq!(map.renew(&2, at(1_000)), None);
        let inserted = map.renew_or_insert_with(&1, at(1_599), || "two");
        assert_eq!(inserted, "two", "expired");
        assert_eq!(map.renew_or_insert_with(&1, at(1_898), || "three"), "two");
        assert_eq!(map.get(&1, at(2_197)), aged("two", 299));
        assert_eq!(map.values().collect::<Vec<_>>(), ["two"]);
        assert_eq!(map.get_or_insert_with(&1, at(2_197), || "four"), "two");
        let inserted = map.get_or_insert_with(&1, at(2_198), || "four");
        assert_eq!(inserted, "four", "expired: not renewed");
    }

    #[test]
    fn zero_ttl_turns_caching_off() {
        let map = Expiring::new(Duration::ZERO, 1_000, |_: &u8, _: &&str| 1);
        map.insert(1, "one", at(1));
        assert_eq!(map.get(&1, at(1)), None);
    }

    /// A map of 1,000 bytes.
    fn of_bytes() -> Expiring<u32, Vec<u8>> {
        Expiring::new(
            Duration::from_secs(300),
            1_000,
            |_: &u32, value: &Vec<u8>| value.len(),
        )
    }

    #[test]
    fn full_map_takes_new_entries_and_keeps_used_ones() {
        let map = of_bytes();
        for key in 0..100 {
            map.insert(key, vec![0; 100], at(1));
            assert!(map.get(&key, at(1)).is_some(), "{key}");
            assert!(map.get(&0, at(1)).is_some(), "used all the time");
        }
        assert!(map.bytes() <= 1_000);
        map.remove(&99);
        assert_eq!(map.get(&99, at(1)), None);
        map.insert(1_000, vec![0; 251], at(1));
        assert_eq!(map.get(&1_000, at(1)), None, "larger than a quarter");
        map.insert(1_001, vec![0; 250], at(1));
        assert!(map.get(&1_001, at(1)).is_some(), "a quarter");
    }

    #[test]
    fn new_entries_have_time_to_be_used() {
        let map = of_bytes();
        for key in 0..10 {
            map.insert(key, vec![0; 100], at(1));
            assert!(map.get(&key, at(1)).is_some(), "used");
        }
        for key in 10..15 {
            map.insert(key, vec![0; 100], at(1));
        }
        assert!((10..15).all(|key| map.get(&key, at(1)).is_some()));
    }

    /// A shared value may grow while it is in the map.
    #[test]
    fn growing_values_keep_the_map_bounded() {
        let map = Expiring::new(
            Duration::from_secs(300),
            1_000,
            |_: &u32, value: &Arc<Mutex<Vec<u8>>>| value.lock().unwrap().len(),
        );
        for key in 0..1_000 {
            let value =
                map.renew_or_insert_with(&(key % 20), at(1), || Arc::new(Mutex::new(vec![0; 50])));
            value.lock().unwrap().extend_from_slice(&[0; 10]);
            assert!(map.bytes() <= 1_000);
        }
    }

    #[test]
    fn expired_entries_are_freed() {
        let map = Expiring::new(Duration::from_secs(300), 1_000, |_: &u32, _: &Arc<()>| 1);
        let value = Arc::new(());
        for (key, seconds) in [(1, 290), (2, 301)] {
            let entry = map.entry(&key, Arc::clone(&value), at(1));
            let kept_since = entry
                .kept_since
                .checked_sub(Duration::from_secs(seconds))
                .unwrap();
            map.entries.insert(
                key,
                Entry {
                    kept_since,
                    ..entry
                },
            );
        }
        assert_eq!(Arc::strong_count(&value), 3);
        map.purge_expired();
        assert_eq!(Arc::strong_count(&value), 2);
        assert!(map.get(&1, at(1)).is_some());
    }

    #[test]
    fn remove_where_removes_by_key() {
        let map: Expiring<u32, u32> = Expiring::new(Duration::from_secs(60), 1_000, |_, _| 1);
        for key in 0..10 {
            map.insert(key, key, at(0));
        }
        map.remove_where(|key| key.is_multiple_of(2));
        let left: Vec<u32> = (0..10)
            .filter(|key| map.get(key, at(1)).is_some())
            .collect();
        assert_eq!(left, [1, 3, 5, 7, 9]);
    }
}
