//! Rate limits, with one in-memory bucket for each key.

use std::convert::Infallible;
use std::hash::{Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter};

use crate::gcra::{self, Decision, Limit};

/// Maximum number of buckets. Beyond it the least used are evicted, which gives their callers a full bucket.
const BUCKETS_MAX: usize = 100_000;

/// The buckets of many keys. Others choose the keys, so the hash is one that they cannot predict.
pub struct Buckets<K>(Cache<K, Arc<AtomicI64>, UnitWeighter, RandomState>);

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Default for Buckets<K> {
    fn default() -> Self {
        let options =
            OptionsBuilder::new().weight_capacity(BUCKETS_MAX as u64).estimated_items_capacity(BUCKETS_MAX).build();
        let options = options.expect("both capacities are set");
        Self(Cache::with_options(options, UnitWeighter, RandomState::new(), DefaultLifecycle::default()))
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Buckets<K> {
    /// Replaces the state of a bucket by that of a decision, which `decide` makes from the state.
    pub fn update(&self, key: K, decide: impl Fn(i64) -> Decision) -> Decision {
        let Ok(bucket) = self.0.get_or_insert_with(&key, || Ok::<_, Infallible>(Arc::default()));
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

impl<K: Hash + Eq + Clone + Send + Sync + 'static> RateLimiter<K> {
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
