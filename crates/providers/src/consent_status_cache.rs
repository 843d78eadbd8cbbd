//! A cache of consent statuses. Many empty answers or missing accounts in a row then ask the provider only once.
//! All callers have deadlines, so moka's own waiting is enough.

use std::time::Duration;

use moka::future::Cache;

use crate::{ConsentStatus, Error};

const CACHE_TTL: Duration = Duration::from_secs(60);
const CACHE_ENTRIES_MAX: u64 = 10_000;

/// Consent statuses by the provider's id of the connection.
pub(crate) struct ConsentStatusCache(Cache<String, ConsentStatus>);

impl Default for ConsentStatusCache {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(CACHE_ENTRIES_MAX).time_to_live(CACHE_TTL).build())
    }
}

impl ConsentStatusCache {
    /// Returns the cached status or runs `fetch`. Concurrent callers share one `fetch`. Errors are not cached.
    pub(crate) async fn get_or_fetch(
        &self,
        id: &str,
        fetch: impl Future<Output = Result<ConsentStatus, Error>> + Send,
    ) -> Result<ConsentStatus, Error> {
        self.0.try_get_with_by_ref(id, fetch).await.map_err(|error| (*error).clone())
    }

    pub(crate) async fn insert(&self, id: &str, consent_status: ConsentStatus) {
        self.0.insert(id.to_owned(), consent_status).await;
    }

    pub(crate) async fn evict(&self, id: &str) {
        self.0.invalidate(id).await;
    }
}
