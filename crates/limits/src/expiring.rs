//! A map whose entries expire after a fixed time, with a limit on its total size in bytes.

use std::hash::Hash;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use moka::ops::compute::{CompResult, Op};
use moka::policy::EvictionPolicy;

#[derive(Clone)]
struct Entry<V> {
    value: V,
    inserted_at: Timestamp,
}

/// A map with a time to live and a limit in bytes.
///
/// The caller's clock decides whether an entry has expired. The system clock also evicts entries, to free their memory.
pub struct Expiring<K, V> {
    entries: moka::sync::Cache<K, Entry<V>>,
    ttl: SignedDuration,
}

impl<K, V> Expiring<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Creates a map whose entries expire after `ttl`. Zero turns caching off.
    ///
    /// `bytes_of` measures an entry; all entries together take about `bytes_max` at most. A full map may reject a new
    /// entry in favour of entries that are used more often (TinyLFU).
    pub fn new(ttl: Duration, bytes_max: u64, bytes_of: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        Self::with(EvictionPolicy::tiny_lfu(), ttl, bytes_max, bytes_of)
    }

    /// Like [`Self::new`], but a full map always accepts a new entry and evicts the least recently used ones.
    pub fn with_lru(ttl: Duration, bytes_max: u64, bytes_of: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        Self::with(EvictionPolicy::lru(), ttl, bytes_max, bytes_of)
    }

    fn with(
        policy: EvictionPolicy,
        ttl: Duration,
        bytes_max: u64,
        bytes_of: impl Fn(&K, &V) -> usize + Send + Sync + 'static,
    ) -> Self {
        let entries = moka::sync::Cache::builder()
            .max_capacity(bytes_max)
            .eviction_policy(policy)
            .weigher(move |key, entry: &Entry<V>| u32::try_from(bytes_of(key, &entry.value)).unwrap_or(u32::MAX))
            .time_to_live(ttl.max(Duration::from_secs(1)))
            .build();
        Self { entries, ttl: SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX) }
    }

    /// Returns the value and its age, unless it has expired at `now`.
    pub fn get(&self, key: &K, now: Timestamp) -> Option<(V, SignedDuration)> {
        let entry = self.entries.get(key)?;
        let age = now.duration_since(entry.inserted_at).max(SignedDuration::ZERO);
        (age < self.ttl).then_some((entry.value, age))
    }

    /// Returns the value, unless it has expired at `now`, and restarts its time to live.
    pub fn renew(&self, key: &K, now: Timestamp) -> Option<V>
    where
        K: Clone,
    {
        // Updates in place, so that a value inserted concurrently is never replaced by this older one.
        let renewed = self.entries.entry_by_ref(key).and_compute_with(|entry| match entry {
            Some(entry) if now.duration_since(entry.value().inserted_at) < self.ttl => {
                Op::Put(Entry { value: entry.into_value().value, inserted_at: now })
            }
            _ => Op::Nop,
        });
        match renewed {
            CompResult::ReplacedWith(entry) => Some(entry.into_value().value),
            _ => None,
        }
    }

    /// As [`Self::renew`], but inserts a value if there is none.
    pub fn renew_or_insert_with(&self, key: K, now: Timestamp, value: impl FnOnce() -> V) -> V {
        self.compute(key, now, value, |entry| Op::Put(Entry { inserted_at: now, ..entry }))
    }

    /// Returns the value as [`Self::get`] does, or inserts one. Callers at the same time share it.
    pub fn get_or_insert_with(&self, key: K, now: Timestamp, value: impl FnOnce() -> V) -> V {
        self.compute(key, now, value, |_| Op::Nop)
    }

    /// `known` decides about an entry that has not expired.
    fn compute(
        &self,
        key: K,
        now: Timestamp,
        value: impl FnOnce() -> V,
        known: impl FnOnce(Entry<V>) -> Op<Entry<V>>,
    ) -> V {
        let renewed = self.entries.entry(key).and_compute_with(|entry| match entry {
            Some(entry) if now.duration_since(entry.value().inserted_at) < self.ttl => known(entry.into_value()),
            _ => Op::Put(Entry { value: value(), inserted_at: now }),
        });
        match renewed {
            CompResult::Inserted(entry) | CompResult::ReplacedWith(entry) | CompResult::Unchanged(entry) => {
                entry.into_value().value
            }
            CompResult::Removed(_) | CompResult::StillNone(_) => unreachable!("the closure puts or leaves a value"),
        }
    }

    /// All values, whether or not they have expired.
    pub fn values(&self) -> impl Iterator<Item = V> {
        self.entries.iter().map(|(_, entry)| entry.value)
    }

    /// Frees the memory of entries that have expired by the system clock. Otherwise this happens only when the map is
    /// used.
    pub fn purge_expired(&self) {
        self.entries.run_pending_tasks();
    }

    /// The measured size of all entries.
    pub fn bytes(&self) -> u64 {
        self.entries.run_pending_tasks();
        self.entries.weighted_size()
    }

    pub fn remove(&self, key: &K) {
        self.entries.invalidate(key);
    }

    /// Removes every entry with a matching key. Scans the whole map, so call it for rare events only.
    pub fn remove_where(&self, matches: impl Fn(&K) -> bool) {
        for (key, _) in self.entries.iter().filter(|(key, _)| matches(key)) {
            self.entries.invalidate(&*key);
        }
    }

    /// Returns false if caching is off.
    pub fn insert(&self, key: K, value: V, now: Timestamp) -> bool {
        let is_on = !self.ttl.is_zero();
        if is_on {
            self.entries.insert(key, Entry { value, inserted_at: now });
        }
        is_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn entries_age_and_expire() {
        let map = Expiring::new(Duration::from_secs(300), 1_000, |_: &u8, _: &&str| 1);
        map.insert(1, "one", at(1_000));
        assert_eq!(map.get(&1, at(1_000)), Some(("one", SignedDuration::ZERO)));
        assert_eq!(map.get(&1, at(1_299)), Some(("one", SignedDuration::from_secs(299))));
        assert_eq!(map.get(&1, at(1_300)), None);
        assert_eq!(map.get(&1, at(999)), Some(("one", SignedDuration::ZERO)), "the clock was set back");
        assert_eq!(map.renew(&1, at(1_299)), Some("one"));
        assert_eq!(map.get(&1, at(1_598)), Some(("one", SignedDuration::from_secs(299))));
        assert_eq!(map.renew(&1, at(1_599)), None, "expired");
        assert_eq!(map.renew(&2, at(1_000)), None);
        assert_eq!(map.renew_or_insert_with(1, at(1_599), || "two"), "two", "expired");
        assert_eq!(map.renew_or_insert_with(1, at(1_898), || "three"), "two");
        assert_eq!(map.get(&1, at(2_197)), Some(("two", SignedDuration::from_secs(299))));
        assert_eq!(map.values().collect::<Vec<_>>(), ["two"]);
        assert_eq!(map.get_or_insert_with(1, at(2_197), || "four"), "two");
        assert_eq!(map.get_or_insert_with(1, at(2_198), || "four"), "four", "expired: not renewed");
    }

    #[test]
    fn zero_ttl_turns_caching_off() {
        let map = Expiring::new(Duration::ZERO, 1_000, |_: &u8, _: &&str| 1);
        map.insert(1, "one", at(1));
        assert_eq!(map.get(&1, at(1)), None);
    }

    #[test]
    fn size_is_bounded() {
        let map = Expiring::new(Duration::from_secs(300), 1_000, |_: &u32, value: &Vec<u8>| value.len());
        for key in 0..100 {
            map.insert(key, vec![0; 100], at(1));
        }
        assert!(map.bytes() <= 1_000);
    }

    #[test]
    fn lru_admits_new_entries() {
        let map = Expiring::with_lru(Duration::from_secs(300), 1_000, |_: &u32, value: &Vec<u8>| value.len());
        for key in 0..100 {
            map.insert(key, vec![0; 100], at(1));
            assert!(map.get(&key, at(1)).is_some(), "{key}");
            map.entries.run_pending_tasks();
        }
        let left: Vec<u32> = (0..100).filter(|key| map.get(key, at(1)).is_some()).collect();
        assert_eq!(left, (90..100).collect::<Vec<_>>());
        map.remove(&99);
        assert_eq!(map.get(&99, at(1)), None);
    }

    #[test]
    fn remove_where_removes_by_key() {
        let map: Expiring<u32, u32> = Expiring::new(Duration::from_secs(60), 1_000, |_, _| 1);
        for key in 0..10 {
            map.insert(key, key, at(0));
        }
        map.remove_where(|key| key.is_multiple_of(2));
        let left: Vec<u32> = (0..10).filter(|key| map.get(key, at(1)).is_some()).collect();
        assert_eq!(left, [1, 3, 5, 7, 9]);
    }
}
