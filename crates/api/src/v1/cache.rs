//! The response caches: what was read is a response for minutes, at every instance if they share a
//! store.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use bellbird_domain::{AccountId, ConnectionId, KeyId};
use bellbird_limits::{Expiring, SharedStore};
use bytes::Bytes;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::http::Problem;
use crate::v1::live::{CacheStatus, JsonText, LiveBody, LiveOutcome};

/// Limit of each cache, in bytes.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

pub(crate) struct ResponseCache<K, V> {
    local: Expiring<K, V>,
    ttl: Duration,
    /// Where other instances find the responses, under this kind.
    shared: Option<(SharedStore, &'static str)>,
}

impl<K, V> ResponseCache<K, V>
where
    K: Hash + Eq + Clone + Serialize + Send + Sync + 'static,
    V: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// A `ttl` of zero turns caching off. `bytes_of` measures an entry.
    pub(crate) fn new(
        kind: &'static str,
        ttl: Duration,
        store: Option<&SharedStore>,
        bytes_of: impl Fn(&K, &V) -> usize + Send + Sync + 'static,
    ) -> Self {
        let shared = store
            .filter(|_| !ttl.is_zero())
            .map(|store| (store.clone(), kind));
        Self {
            local: Expiring::new(ttl, BYTES_MAX, bytes_of),
            ttl,
            shared,
        }
    }

    /// A response that this or another instance has read, and its age.
    pub(crate) async fn get(&self, key: &K, now: Timestamp) -> Option<(V, SignedDuration)> {
        if let Some(found) = self.local.get(key, now) {
            return Some(found);
        }
        let (store, kind) = self.shared.as_ref()?;
        let (_, value) = store.get(kind, &serde_json::to_vec(key).ok()?).await?;
        let (read_at, value) = serde_json::from_slice(&value).ok()?;
        self.local.insert(key.clone(), value, read_at);
        self.local.get(key, now)
    }

    /// Caches what was read now, unless caching is off or there is nothing to cache.
    pub(crate) async fn store(&self, key: K, value: Option<V>, now: Timestamp) -> CacheStatus {
        let Some(value) = value else {
            return CacheStatus::Bypass;
        };
        if let Some((store, kind)) = &self.shared
            && let (Ok(name), Ok(value)) =
                (serde_json::to_vec(&key), serde_json::to_vec(&(now, &value)))
        {
            store
                .put(kind, &name, (Default::default(), true), &value, self.ttl)
                .await;
        }
        if self.local.insert(key, value, now) {
            CacheStatus::Miss
        } else {
            CacheStatus::Bypass
        }
    }

    /// Caches the body of a read that is complete. Part of the read, so that a response is cached
    /// once, and also if nobody waits for it any more.
    pub(crate) async fn store_read(
        &self,
        key: K,
        (outcome, calls): LiveOutcome,
        now: Timestamp,
        value: impl FnOnce(LiveBody) -> V,
    ) -> LiveOutcome<(LiveBody, CacheStatus)> {
        let body = match outcome {
            Ok(body) => body,
            Err(problem) => return (Err(problem), calls),
        };
        let value = body.complete.then(|| value(body.clone()));
        let status = self.store(key, value, now).await;
        (Ok((body, status)), calls)
    }

    pub(crate) fn purge_expired(&self) {
        self.local.purge_expired();
    }

    pub(crate) fn remove_where(&self, matches: impl Fn(&K) -> bool) {
        self.local.remove_where(matches);
    }
}

/// A set of accounts requested with one API key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct BalancesKey {
    pub key_id: KeyId,
    /// Sorted and unique.
    pub account_ids: Arc<[AccountId]>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct CachedBalances {
    pub body: LiveBody,
    /// The user's revision at which the accounts were last verified to belong to the user.
    pub revision: Arc<AtomicI64>,
}

/// The holdings of one connection, as read with one API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct HoldingsKey {
    pub key_id: KeyId,
    pub connection_id: ConnectionId,
}

/// The holdings of each account as JSON objects separated by commas, or the reason for which the
/// read failed.
pub(crate) type AccountHoldings = Arc<[(AccountId, Result<Bytes, Problem>)]>;

/// The holdings of each account, all of which were read.
pub(crate) type CachedHoldings = Arc<[(AccountId, JsonText)]>;

/// A finished response, and the timezone and accounts for which it is valid. Its dates depend on
/// the timezone.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct CachedTrades {
    pub body: LiveBody,
    #[serde(with = "jiff::fmt::serde::tz::required")]
    pub zone: TimeZone,
    pub account_ids: Vec<AccountId>,
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::v1::live::LiveFlights;

    #[tokio::test]
    async fn read_is_cached_also_if_nobody_waits_for_it() {
        let (tasks, now) = (TaskTracker::new(), Timestamp::UNIX_EPOCH);
        let cache: ResponseCache<u8, LiveBody> =
            ResponseCache::new("kind", Duration::from_secs(60), None, |_, _| 1);
        let cache = Arc::new(cache);
        let reading = Arc::clone(&cache);
        let read = async move {
            tokio::task::yield_now().await;
            let body = LiveBody {
                json: b"{}".to_vec().into(),
                truncated: false,
                complete: true,
            };
            let read = (Ok(body), 1);
            reading.store_read(1, read, now, |body| body).await
        };
        let reads: LiveFlights<u8, (LiveBody, CacheStatus)> = LiveFlights::new(&tasks);
        assert!(reads.join(1, 1, read).now_or_never().is_none());
        tasks.close();
        tasks.wait().await;
        assert!(cache.get(&1, now).await.is_some());
    }
}
