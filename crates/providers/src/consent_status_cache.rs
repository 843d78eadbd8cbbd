//! A cache of consent statuses. Many empty responses or missing accounts in a row then ask the
//! provider only once.

use std::sync::Arc;
use std::time::Duration;

use bellbird_limits::Expiring;
use tokio::sync::OnceCell;

use crate::{CallContext, ConsentStatus, Error};

const CACHE_TTL: Duration = Duration::from_secs(60);
const CACHE_ENTRIES_MAX: u64 = 10_000;

/// Consent statuses by the provider's id of the connection.
pub(crate) struct ConsentStatusCache(Expiring<String, Arc<OnceCell<ConsentStatus>>>);

impl Default for ConsentStatusCache {
    fn default() -> Self {
        Self(Expiring::new(CACHE_TTL, CACHE_ENTRIES_MAX, |_, _| 1))
    }
}

impl ConsentStatusCache {
    /// Returns the cached status or runs `fetch`. Concurrent callers share one `fetch`, for which
    /// each waits until its own deadline. Errors are not cached.
    pub(crate) async fn get_or_fetch(
        &self,
        id: &str,
        context: &CallContext,
        fetch: impl Future<Output = Result<ConsentStatus, Error>> + Send,
    ) -> Result<ConsentStatus, Error> {
        let now = context.wall_clock();
        let status = self.0.get_or_insert_with(&id.to_owned(), now, Arc::default);
        tokio::time::timeout_at(context.deadline, status.get_or_try_init(|| fetch))
            .await
            .map_err(|_| Error::Deadline)?
            .copied()
    }

    pub(crate) fn insert(&self, id: &str, context: &CallContext, status: ConsentStatus) {
        let status = Arc::new(OnceCell::new_with(Some(status)));
        self.0.insert(id.to_owned(), status, context.wall_clock());
    }

    pub(crate) fn evict(&self, id: &str) {
        self.0.remove(&id.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join;
    use jiff::Timestamp;
    use tokio::time::Instant;

    use super::*;
    use crate::Cause;

    #[tokio::test(start_paused = true)]
    async fn caller_waits_for_another_until_its_own_deadline() {
        let (cache, now) = (ConsentStatusCache::default(), Instant::now());
        let context = |seconds| {
            let deadline = now + Duration::from_secs(seconds);
            CallContext::new(deadline, Timestamp::UNIX_EPOCH, Cause::Schedule)
        };
        let (patient, hurried) = (context(40), context(2));
        let active = Ok(ConsentStatus::Active);
        let slow = async {
            tokio::time::sleep_until(now + Duration::from_secs(20)).await;
            active.clone()
        };
        let outcomes = join(
            cache.get_or_fetch("a", &patient, slow),
            cache.get_or_fetch("a", &hurried, std::future::ready(active.clone())),
        );
        assert_eq!(outcomes.await, (active.clone(), Err(Error::Deadline)));
    }
}
