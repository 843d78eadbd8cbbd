//! Entries that are forgotten after a time, bounded in bytes.

use std::hash::Hash;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use moka::ops::compute::{CompResult, Op};
use moka::policy::EvictionPolicy;

/// A value, and when it was put in.
#[derive(Clone)]
struct Entry<V> {
    value: V,
    at: Timestamp,
}

/// A bounded map whose entries live for one fixed time.
///
/// Age goes by the caller's clock; the memory is also freed by the machine's, whichever comes first.
pub struct Expiring<K, V> {
    entries: moka::sync::Cache<K, Entry<V>>,
    life: SignedDuration,
}

impl<K, V> Expiring<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// A map for entries that live for `life`; zero switches it off. At most about `bytes_max` are held, each entry
    /// counted by `bytes_of`. When it is full, an entry that nobody asked for yet may not get in.
    pub fn new(life: Duration, bytes_max: u64, bytes_of: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        Self::with(EvictionPolicy::tiny_lfu(), life, bytes_max, bytes_of)
    }

    /// The same, where a new entry always gets in: those go that were put in or asked for longest ago.
    pub fn latest(life: Duration, bytes_max: u64, bytes_of: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        Self::with(EvictionPolicy::lru(), life, bytes_max, bytes_of)
    }

    fn with(
        policy: EvictionPolicy,
        life: Duration,
        bytes_max: u64,
        bytes_of: impl Fn(&K, &V) -> usize + Send + Sync + 'static,
    ) -> Self {
        let entries = moka::sync::Cache::builder()
            .max_capacity(bytes_max)
            .eviction_policy(policy)
            .weigher(move |key, entry: &Entry<V>| u32::try_from(bytes_of(key, &entry.value)).unwrap_or(u32::MAX))
            .time_to_live(life.max(Duration::from_secs(1)))
            .build();
        Self { entries, life: SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX) }
    }

    /// The value and its age, unless it is too old at `now`.
    pub fn get(&self, key: &K, now: Timestamp) -> Option<(V, SignedDuration)> {
        let entry = self.entries.get(key)?;
        let age = now.duration_since(entry.at).max(SignedDuration::ZERO);
        (age < self.life).then_some((entry.value, age))
    }

    /// The value, unless it is too old at `now`; its life begins anew.
    pub fn renew(&self, key: &K, now: Timestamp) -> Option<V>
    where
        K: Clone,
    {
        // Computed in place, so that a newer value is never put back by an older one.
        let renewed = self.entries.entry_by_ref(key).and_compute_with(|entry| match entry {
            Some(entry) if now.duration_since(entry.value().at) < self.life => {
                Op::Put(Entry { value: entry.into_value().value, at: now })
            }
            _ => Op::Nop,
        });
        match renewed {
            CompResult::ReplacedWith(entry) => Some(entry.into_value().value),
            _ => None,
        }
    }

    /// Takes an entry out.
    pub fn remove(&self, key: &K) {
        self.entries.invalidate(key);
    }

    /// Takes out every entry whose key is one of these. Looks at all of them: for what happens seldom.
    pub fn remove_where(&self, is_one: impl Fn(&K) -> bool) {
        for (key, _) in self.entries.iter().filter(|(key, _)| is_one(key)) {
            self.entries.invalidate(&*key);
        }
    }

    /// Puts a value in, born at `now`.
    pub fn insert(&self, key: K, value: V, now: Timestamp) {
        if !self.life.is_zero() {
            self.entries.insert(key, Entry { value, at: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn ages_and_ends() {
        let map = Expiring::new(Duration::from_secs(300), 1_000, |_: &u8, _: &&str| 1);
        map.insert(1, "one", at(1_000));
        assert_eq!(map.get(&1, at(1_000)), Some(("one", SignedDuration::ZERO)));
        assert_eq!(map.get(&1, at(1_299)), Some(("one", SignedDuration::from_secs(299))));
        assert_eq!(map.get(&1, at(1_300)), None);
        assert_eq!(map.get(&1, at(999)), Some(("one", SignedDuration::ZERO)), "a clock that went back");
        assert_eq!(map.renew(&1, at(1_299)), Some("one"));
        assert_eq!(map.get(&1, at(1_598)), Some(("one", SignedDuration::from_secs(299))));
        assert_eq!(map.renew(&1, at(1_599)), None, "too late");
        assert_eq!(map.renew(&2, at(1_000)), None);
    }

    #[test]
    fn zero_switches_it_off() {
        let map = Expiring::new(Duration::ZERO, 1_000, |_: &u8, _: &&str| 1);
        map.insert(1, "one", at(1));
        assert_eq!(map.get(&1, at(1)), None);
    }

    #[test]
    fn is_bounded() {
        let map = Expiring::new(Duration::from_secs(300), 1_000, |_: &u32, value: &Vec<u8>| value.len());
        for key in 0..100 {
            map.insert(key, vec![0; 100], at(1));
        }
        map.entries.run_pending_tasks();
        assert!(map.entries.weighted_size() <= 1_000);
    }

    #[test]
    fn the_latest_get_in() {
        let map = Expiring::latest(Duration::from_secs(300), 1_000, |_: &u32, value: &Vec<u8>| value.len());
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
    fn entries_are_taken_out_by_their_keys() {
        let map: Expiring<u32, u32> = Expiring::new(Duration::from_secs(60), 1_000, |_, _| 1);
        for key in 0..10 {
            map.insert(key, key, at(0));
        }
        map.remove_where(|key| key.is_multiple_of(2));
        let left: Vec<u32> = (0..10).filter(|key| map.get(key, at(1)).is_some()).collect();
        assert_eq!(left, [1, 3, 5, 7, 9]);
    }
}
