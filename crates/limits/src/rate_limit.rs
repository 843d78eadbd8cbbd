//! Rate limits, with one in-memory bucket for each key.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use crate::gcra::{self, Decision, Limit};

/// Maximum number of buckets. Beyond it the least used are evicted, which gives their callers a full bucket.
const BUCKETS_MAX: u64 = 100_000;
/// A bucket that was not used for two minutes is full again, also if its credit was used up, so it can be evicted.
const IDLE_MAX: Duration = Duration::from_secs(121);

/// The buckets of many keys.
pub struct Buckets<K>(moka::sync::Cache<K, Arc<AtomicI64>>);

impl<K: Hash + Eq + Send + Sync + 'static> Default for Buckets<K> {
    fn default() -> Self {
        Self(moka::sync::Cache::builder().max_capacity(BUCKETS_MAX).time_to_idle(IDLE_MAX).build())
    }
}

impl<K: Hash + Eq + Send + Sync + 'static> Buckets<K> {
    /// Replaces the state of a bucket by that of a decision, which `decide` makes from the state.
    pub fn update(&self, key: K, decide: impl Fn(i64) -> Decision) -> Decision {
        let bucket = self.0.get_with(key, Arc::default);
        let mut kept = bucket.load(Ordering::Relaxed);
        loop {
            let decision = decide(kept);
            match bucket.compare_exchange_weak(kept, decision.full_at_us, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return decision,
                Err(newer) => kept = newer,
            }
        }
    }
}

/// One limit for many keys, each with its own bucket.
pub struct RateLimiter<K> {
    limit: Limit,
    buckets: Buckets<K>,
}

impl<K: Hash + Eq + Send + Sync + 'static> RateLimiter<K> {
    /// Returns `None` if `calls_per_minute` is 0, which means no limit.
    #[must_use]
    pub fn per_minute(calls_per_minute: u32) -> Option<Self> {
        (calls_per_minute > 0).then(|| Self { limit: Limit::per_minute(calls_per_minute), buckets: Buckets::default() })
    }

    /// Calls in a full bucket.
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.limit.calls
    }

    pub fn take(&self, key: K, now: Timestamp) -> Decision {
        self.buckets.update(key, |kept| gcra::take(self.limit, kept, now.as_microsecond()))
    }

    /// Returns the decision for a call without taking it.
    pub fn peek(&self, key: &K, now: Timestamp) -> Decision {
        let kept = self.buckets.0.get(key).map_or(0, |bucket| bucket.load(Ordering::Relaxed));
        gcra::peek(self.limit, kept, now.as_microsecond())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_share_a_bucket() {
        let limiter = RateLimiter::per_minute(2).unwrap();
        let now = Timestamp::from_second(1_000).unwrap();
        assert!(limiter.take("a", now).allowed);
        assert_eq!(limiter.peek(&"a", now).remaining, 1);
        assert!(limiter.take("a", now).allowed);
        assert!(!limiter.take("a", now).allowed);
        assert!(limiter.take("b", now).allowed);
        assert!(limiter.take("a", now + jiff::SignedDuration::from_secs(30)).allowed);
        assert!(RateLimiter::<u8>::per_minute(0).is_none());
    }
}
