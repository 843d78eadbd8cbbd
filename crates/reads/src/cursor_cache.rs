//! The cursor indexes of all queries that clients page through, by API key.
//!
//! Each API key has a few indexes of its own and a share of the memory, so that a client that makes
//! many queries pushes out its own indexes before those of others. A query whose index is lost is
//! read from its first row again.
//!
//! Instances that share a store continue each other's indexes. A window at offset 0 begins a new
//! generation of its query's index, and what each request learned is there for the next one.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{AccountId, ConnectionId, DateFilter, KeyId, Page};
use bellbird_limits::Expiring;
use bellbird_limits::store::{Generation, SharedStore};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

/// Time to live of an index after its last use.
const TTL: Duration = Duration::from_secs(600);
/// Maximum size in bytes of all indexes of one kind (transactions or trades).
pub(crate) const BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Indexes of one API key. Further ones replace the least recently used.
const KEY_INDEXES_MAX: usize = 32;
/// Maximum size in bytes of the indexes of one API key. Its last used index is kept, whatever its
/// size.
const KEY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A query that a client pages through: the API key, the connection and the filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct QueryKey {
    pub key_id: KeyId,
    pub connection_id: ConnectionId,
    /// `None` for all accounts.
    pub account_id: Option<AccountId>,
    pub dates: DateFilter,
}

/// The rows of a query that a client sees at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct WindowKey {
    pub query: QueryKey,
    pub page: Page,
}

/// An index whose size is known.
pub(crate) trait CachedIndex {
    fn bytes(&self) -> usize;

    /// Adds what another instance has learned in the same generation.
    fn absorb(&mut self, other: Self);
}

/// What the windows of a query have learned since the last one at offset 0.
pub(crate) struct QueryIndex<I> {
    generation: Generation,
    pub(crate) index: Mutex<I>,
}

struct Entry<I> {
    query: QueryKey,
    cached: Arc<QueryIndex<I>>,
    used_at: Timestamp,
    /// As last measured.
    bytes: usize,
}

/// The indexes of one API key, the most recently used last.
struct KeyIndexes<I>(Vec<Entry<I>>);

impl<I: CachedIndex> KeyIndexes<I> {
    fn bytes(&self) -> usize {
        self.0
            .iter()
            .map(|entry| entry.bytes + size_of::<Entry<I>>())
            .sum()
    }

    fn take(&mut self, query: &QueryKey) -> Option<Entry<I>> {
        let at = self.0.iter().position(|entry| entry.query == *query)?;
        Some(self.0.remove(at))
    }

    fn push(&mut self, entry: Entry<I>) {
        self.0.push(entry);
        while self.0.len() > KEY_INDEXES_MAX || (self.0.len() > 1 && self.bytes() > KEY_BYTES_MAX) {
            self.0.remove(0);
        }
    }
}

pub(crate) struct CursorCache<I> {
    indexes: Expiring<KeyId, Arc<Mutex<KeyIndexes<I>>>>,
    /// Where other instances find the indexes, under this kind.
    shared: Option<(SharedStore, &'static str)>,
}

impl<I: CachedIndex + Serialize + DeserializeOwned + Send + 'static> CursorCache<I> {
    pub(crate) fn new(store: Option<&SharedStore>, kind: &'static str) -> Self {
        let bytes_of = |_: &KeyId, indexes: &Arc<Mutex<KeyIndexes<I>>>| indexes.lock().bytes();
        Self {
            indexes: Expiring::new(TTL, BYTES_MAX, bytes_of),
            shared: store.map(|store| (store.clone(), kind)),
        }
    }

    /// The index that the window continues, from here or from another instance. A new one for a
    /// window at offset 0, and if there is none that `serves`.
    pub(crate) async fn find_or_insert(
        &self,
        WindowKey { query, page }: WindowKey,
        now: Timestamp,
        serves: impl Fn(&I) -> bool,
        new: impl FnOnce() -> I,
    ) -> Arc<QueryIndex<I>> {
        if page.offset > 0 {
            let shared = self
                .find_shared(&query)
                .await
                .filter(|(_, index)| serves(index));
            let local = self
                .find(&query, now)
                .filter(|cached| serves(&cached.index.lock()));
            match (local, shared) {
                (Some(cached), Some((generation, index))) if cached.generation == generation => {
                    cached.index.lock().absorb(index);
                    return cached;
                }
                // Another instance has begun the latest generation.
                (_, Some((generation, index))) => {
                    return self.insert(query, generation, index, now);
                }
                (Some(cached), None) => return cached,
                (None, None) => {}
            }
        }
        self.insert(query, *Uuid::new_v4().as_bytes(), new(), now)
    }

    /// Stores what a request has learned: measures the index again, and shares it.
    pub(crate) async fn store(
        &self,
        WindowKey { query, page }: WindowKey,
        cached: &QueryIndex<I>,
        now: Timestamp,
    ) {
        self.measure(&query, now);
        let Some((store, kind)) = &self.shared else {
            return;
        };
        let value = serde_json::to_vec(&*cached.index.lock());
        if let (Ok(name), Ok(value)) = (serde_json::to_vec(&query), value) {
            store
                .put(
                    kind,
                    &name,
                    (cached.generation, page.offset == 0),
                    &value,
                    TTL,
                )
                .await;
        }
    }

    async fn find_shared(&self, query: &QueryKey) -> Option<(Generation, I)> {
        let (store, kind) = self.shared.as_ref()?;
        let (generation, value) = store.get(kind, &serde_json::to_vec(query).ok()?).await?;
        Some((generation, serde_json::from_slice(&value).ok()?))
    }

    /// The index of a query, if it was used recently.
    fn find(&self, query: &QueryKey, now: Timestamp) -> Option<Arc<QueryIndex<I>>> {
        let indexes = self.indexes.renew(&query.key_id, now)?;
        let mut indexes = indexes.lock();
        let entry = indexes.take(query)?;
        if now.duration_since(entry.used_at)
            >= SignedDuration::try_from(TTL).unwrap_or(SignedDuration::MAX)
        {
            return None;
        }
        let cached = Arc::clone(&entry.cached);
        indexes.push(Entry {
            used_at: now,
            ..entry
        });
        Some(cached)
    }

    /// Replaces the index of a query.
    fn insert(
        &self,
        query: QueryKey,
        generation: Generation,
        index: I,
        now: Timestamp,
    ) -> Arc<QueryIndex<I>> {
        let bytes = index.bytes();
        let cached = Arc::new(QueryIndex {
            generation,
            index: Mutex::new(index),
        });
        let new = || Arc::new(Mutex::new(KeyIndexes(Vec::new())));
        let indexes = self.indexes.renew_or_insert_with(&query.key_id, now, new);
        let mut indexes = indexes.lock();
        indexes.take(&query);
        indexes.push(Entry {
            query,
            cached: Arc::clone(&cached),
            used_at: now,
            bytes,
        });
        cached
    }

    /// Measures the index of a query again, which has grown.
    fn measure(&self, query: &QueryKey, now: Timestamp) {
        let Some((indexes, _)) = self.indexes.get(&query.key_id, now) else {
            return;
        };
        {
            let mut indexes = indexes.lock();
            let Some(entry) = indexes.take(query) else {
                return;
            };
            let bytes = entry.cached.index.lock().bytes();
            indexes.push(Entry { bytes, ..entry });
        }
        // Weighs the indexes of the key.
        self.indexes.renew(&query.key_id, now);
    }

    pub(crate) fn remove_connection(&self, connection_id: ConnectionId) {
        for indexes in self.indexes.values() {
            indexes
                .lock()
                .0
                .retain(|entry| entry.query.connection_id != connection_id);
        }
    }

    pub(crate) fn purge_expired(&self) {
        self.indexes.purge_expired();
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.indexes.bytes()
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::Bound;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const GENERATION: Generation = [1; 16];

    /// An index of so many bytes.
    #[derive(Serialize, serde::Deserialize)]
    struct Sized(usize);

    impl CachedIndex for Sized {
        fn bytes(&self) -> usize {
            self.0
        }

        fn absorb(&mut self, other: Self) {
            self.0 += other.0;
        }
    }

    fn query(key_id: KeyId, number: i64) -> QueryKey {
        let to = Some(Bound::Instant(Timestamp::from_second(number).unwrap()));
        QueryKey {
            key_id,
            connection_id: ConnectionId::new(),
            account_id: None,
            dates: DateFilter { from: None, to },
        }
    }

    #[test]
    fn many_queries_of_one_key_leave_the_indexes_of_others() {
        let indexes = CursorCache::new(None, "sized");
        let mine = query(KeyId::new(), 0);
        indexes.insert(mine, GENERATION, Sized(1_000), NOW);
        let other = KeyId::new();
        let queries: Vec<QueryKey> = (0..10_000).map(|number| query(other, number)).collect();
        for query in &queries {
            indexes
                .insert(*query, GENERATION, Sized(1_000), NOW)
                .index
                .lock()
                .0 = 100_000;
            indexes.measure(query, NOW);
        }
        assert!(indexes.find(&mine, NOW).is_some());
        let left: Vec<&QueryKey> = queries
            .iter()
            .filter(|query| indexes.find(query, NOW).is_some())
            .collect();
        assert_eq!(
            left,
            queries[9_980..].iter().collect::<Vec<_>>(),
            "20 of 100 kB are 2 MB"
        );
    }

    #[test]
    fn size_is_bounded_after_indexes_have_grown() {
        let indexes = CursorCache::new(None, "sized");
        for number in 0..200 {
            let query = query(KeyId::new(), number);
            indexes
                .insert(query, GENERATION, Sized(300), NOW)
                .index
                .lock()
                .0 = 1024 * 1024;
            indexes.measure(&query, NOW);
        }
        let bytes = indexes.bytes();
        assert!((BYTES_MAX / 2..=BYTES_MAX).contains(&bytes), "{bytes}");
    }

    #[test]
    fn an_index_expires_after_its_last_use() {
        let indexes = CursorCache::new(None, "sized");
        let key_id = KeyId::new();
        let (one, two) = (query(key_id, 1), query(key_id, 2));
        indexes.insert(one, GENERATION, Sized(1), NOW);
        let at = |second| Timestamp::from_second(second).unwrap();
        indexes.insert(two, GENERATION, Sized(2), at(599));
        assert!(indexes.find(&one, at(599)).is_some());
        assert!(indexes.find(&one, at(1_198)).is_some());
        assert!(
            indexes.find(&two, at(1_199)).is_none(),
            "the key was used since, the query was not"
        );
        indexes.remove_connection(one.connection_id);
        assert!(indexes.find(&one, at(1_199)).is_none());
    }
}
