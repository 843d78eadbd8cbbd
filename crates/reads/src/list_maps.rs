//! The page maps and trades maps of all lists that clients page through, by API key.
//!
//! Each API key has a few maps of its own and a share of the memory. So a client that asks for many lists pushes out
//! its own maps before those of others: a list whose map is lost begins anew.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{AccountId, ConnectionId, DateFilter, KeyId};
use bellbird_limits::Expiring;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// Time to live of a map after its last use.
const TTL: Duration = Duration::from_secs(600);
/// Maximum size in bytes of all maps of one kind (transactions or trades).
pub(crate) const BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Maps of one API key. Further ones replace the least recently used.
const KEY_MAPS_MAX: usize = 32;
/// Maximum size in bytes of the maps of one API key. Its last used map is kept, whatever its size.
const KEY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A list that a client pages through: the API key, the connection and the filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListKey {
    pub key_id: KeyId,
    pub connection_id: ConnectionId,
    /// `None` for all accounts.
    pub account_id: Option<AccountId>,
    pub span: DateFilter,
}

/// A map whose size is known.
pub(crate) trait ListMap {
    /// Approximate size in memory.
    fn bytes(&self) -> usize;
}

struct Entry<M> {
    list: ListKey,
    map: Arc<Mutex<M>>,
    used_at: Timestamp,
    /// As last measured.
    bytes: usize,
}

/// The maps of one API key, the most recently used last.
struct KeyMaps<M>(Vec<Entry<M>>);

impl<M: ListMap> KeyMaps<M> {
    fn bytes(&self) -> usize {
        self.0.iter().map(|entry| entry.bytes + size_of::<Entry<M>>()).sum()
    }

    fn take(&mut self, list: &ListKey) -> Option<Entry<M>> {
        let at = self.0.iter().position(|entry| entry.list == *list)?;
        Some(self.0.remove(at))
    }

    fn push(&mut self, entry: Entry<M>) {
        self.0.push(entry);
        while self.0.len() > KEY_MAPS_MAX || (self.0.len() > 1 && self.bytes() > KEY_BYTES_MAX) {
            self.0.remove(0);
        }
    }
}

pub(crate) struct ListMaps<M>(Expiring<KeyId, Arc<Mutex<KeyMaps<M>>>>);

impl<M: ListMap + Send + 'static> ListMaps<M> {
    pub(crate) fn new() -> Self {
        let bytes_of = |_: &KeyId, maps: &Arc<Mutex<KeyMaps<M>>>| maps.lock().bytes();
        Self(Expiring::with_lru(TTL, BYTES_MAX, bytes_of))
    }

    /// The map of a list, if it was used lately.
    pub(crate) fn find(&self, list: &ListKey, now: Timestamp) -> Option<Arc<Mutex<M>>> {
        let maps = self.0.renew(&list.key_id, now)?;
        let mut maps = maps.lock();
        let entry = maps.take(list)?;
        if now.duration_since(entry.used_at) >= SignedDuration::try_from(TTL).unwrap_or(SignedDuration::MAX) {
            return None;
        }
        let map = Arc::clone(&entry.map);
        maps.push(Entry { used_at: now, ..entry });
        Some(map)
    }

    /// Replaces the map of a list.
    pub(crate) fn insert(&self, list: ListKey, map: M, now: Timestamp) -> Arc<Mutex<M>> {
        let bytes = map.bytes();
        let map = Arc::new(Mutex::new(map));
        let maps = self.0.renew_or_insert_with(list.key_id, now, || Arc::new(Mutex::new(KeyMaps(Vec::new()))));
        let mut maps = maps.lock();
        maps.take(&list);
        maps.push(Entry { list, map: Arc::clone(&map), used_at: now, bytes });
        map
    }

    /// Measures the map of a list again: it has grown since [`Self::find`] or [`Self::insert`].
    pub(crate) fn measure(&self, list: &ListKey, now: Timestamp) {
        let Some((maps, _)) = self.0.get(&list.key_id, now) else { return };
        {
            let mut maps = maps.lock();
            let Some(entry) = maps.take(list) else { return };
            let bytes = entry.map.lock().bytes();
            maps.push(Entry { bytes, ..entry });
        }
        // Weighs the maps of the key.
        self.0.renew(&list.key_id, now);
    }

    pub(crate) fn remove_connection(&self, connection_id: ConnectionId) {
        for maps in self.0.values() {
            maps.lock().0.retain(|entry| entry.list.connection_id != connection_id);
        }
    }

    pub(crate) fn purge_expired(&self) {
        self.0.purge_expired();
    }

    /// The size of all maps, as last measured.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::Bound;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// A map of so many bytes.
    struct Sized(usize);

    impl ListMap for Sized {
        fn bytes(&self) -> usize {
            self.0
        }
    }

    fn list(key_id: KeyId, number: i64) -> ListKey {
        let to = Some(Bound::Instant(Timestamp::from_second(number).unwrap()));
        ListKey { key_id, connection_id: ConnectionId::new(), account_id: None, span: DateFilter { from: None, to } }
    }

    #[test]
    fn many_lists_of_one_key_leave_the_maps_of_others() {
        let maps = ListMaps::new();
        let mine = list(KeyId::new(), 0);
        maps.insert(mine, Sized(1_000), NOW);
        let other = KeyId::new();
        let lists: Vec<ListKey> = (0..10_000).map(|number| list(other, number)).collect();
        for list in &lists {
            maps.insert(*list, Sized(1_000), NOW).lock().0 = 100_000;
            maps.measure(list, NOW);
        }
        assert!(maps.find(&mine, NOW).is_some());
        let left: Vec<&ListKey> = lists.iter().filter(|list| maps.find(list, NOW).is_some()).collect();
        assert_eq!(left, lists[9_980..].iter().collect::<Vec<_>>(), "20 of 100 kB are 2 MB");
    }

    #[test]
    fn size_is_bounded_after_maps_have_grown() {
        let maps = ListMaps::new();
        for number in 0..200 {
            let list = list(KeyId::new(), number);
            maps.insert(list, Sized(300), NOW).lock().0 = 1024 * 1024;
            maps.measure(&list, NOW);
        }
        let bytes = maps.bytes();
        assert!((BYTES_MAX / 2..=BYTES_MAX).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_map_expires_after_its_last_use() {
        let maps = ListMaps::new();
        let key_id = KeyId::new();
        let (one, two) = (list(key_id, 1), list(key_id, 2));
        maps.insert(one, Sized(1), NOW);
        let at = |second| Timestamp::from_second(second).unwrap();
        maps.insert(two, Sized(2), at(599));
        assert!(maps.find(&one, at(599)).is_some());
        assert!(maps.find(&one, at(1_198)).is_some());
        assert!(maps.find(&two, at(1_199)).is_none(), "the key was used since, the list was not");
        maps.remove_connection(one.connection_id);
        assert!(maps.find(&one, at(1_199)).is_none());
    }
}
