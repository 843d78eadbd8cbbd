//! Rate limits, with one bucket for each key: in memory, and in the store that instances share, if
//! there is one.

use std::convert::Infallible;
use std::fmt::Display;
use std::hash::{Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter};

use crate::gcra::{self, Decision, Limit};
use crate::store::{Bucket, SharedStore, time_us};

/// Maximum number of buckets. Beyond it the least used are evicted, which gives their callers a
/// full bucket.
const BUCKETS_MAX: usize = 100_000;

/// The buckets of many keys. Others choose the keys, so the hash is one that they cannot predict.
pub(crate) struct Buckets<K>(Cache<K, Arc<AtomicI64>, UnitWeighter, RandomState>);

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Default for Buckets<K> {
    fn default() -> Self {
        let options = OptionsBuilder::new()
            .weight_capacity(BUCKETS_MAX as u64)
            .estimated_items_capacity(BUCKETS_MAX)
            .build();
        let options = options.expect("both capacities are set");
        Self(Cache::with_options(
            options,
            UnitWeighter,
            RandomState::new(),
            DefaultLifecycle::default(),
        ))
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Buckets<K> {
    /// Replaces the state of a bucket by that of a decision, which `decide` makes from the state.
    pub(crate) fn update(&self, key: K, decide: impl Fn(i64) -> Decision) -> Decision {
        let Ok(bucket) = self
            .0
            .get_or_insert_with(&key, || Ok::<_, Infallible>(Arc::default()));
        let mut kept = bucket.load(Ordering::Relaxed);
        loop {
            let decision = decide(kept);
            match bucket.compare_exchange_weak(
                kept,
                decision.full_at_us,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return decision,
                Err(newer) => kept = newer,
            }
        }
    }

    /// When the bucket of a key is full, as far as this instance knows. A time beyond `most_us` is
    /// from before a clock was set back. It is lowered for good, or the bucket would not refill
    /// until the clock has caught up.
    pub(crate) fn known(&self, key: &K, most_us: i64) -> i64 {
        self.0.get(key).map_or(0, |bucket| {
            bucket.fetch_min(most_us, Ordering::Relaxed).min(most_us)
        })
    }

    /// Keeps what the store decided, for the next calls and for when the store is down.
    pub(crate) fn learn(&self, key: &K, decision: Decision) {
        self.update(key.clone(), |kept| Decision {
            full_at_us: decision.full_at_us.max(kept),
            ..decision
        });
    }
}

/// One limit for many keys, each with its own bucket.
pub struct RateLimiter<K> {
    limit: Limit,
    buckets: Buckets<K>,
    /// Where all instances count, with the name of this limit there.
    shared: Option<(SharedStore, &'static str)>,
}

impl<K: Hash + Eq + Clone + Display + Send + Sync + 'static> RateLimiter<K> {
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Self {
            limit,
            buckets: Buckets::default(),
            shared: None,
        }
    }

    /// Returns `None` if `calls_per_minute` is 0, which means no limit.
    #[must_use]
    pub fn per_minute(calls_per_minute: u32) -> Option<Self> {
        (calls_per_minute > 0).then(|| Self::new(Limit::per_minute(calls_per_minute)))
    }

    /// Shares the limit with other instances, under a name of its own. Without a store, nothing
    /// changes.
    #[must_use]
    pub fn shared(self, store: Option<&SharedStore>, name: &'static str) -> Self {
        Self {
            shared: store.cloned().map(|store| (store, name)),
            ..self
        }
    }

    /// Calls in a full bucket.
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.limit.calls
    }

    pub async fn take(&self, key: K, now: Timestamp) -> Decision {
        if let Some((store, _)) = &self.shared {
            if let Some(refused) = self.known_refusal(&key, now) {
                return refused;
            }
            if let Some(decision) = self.ask(store, &key, true, now).await {
                return decision;
            }
        }
        self.take_alone(key, now)
    }

    /// Returns the decision for a call without taking it.
    pub async fn peek(&self, key: &K, now: Timestamp) -> Decision {
        if let Some((store, _)) = &self.shared
            && let Some(decision) = self.ask(store, key, false, now).await
        {
            return decision;
        }
        self.peek_alone(key, now)
    }

    async fn ask(
        &self,
        store: &SharedStore,
        key: &K,
        takes: bool,
        now: Timestamp,
    ) -> Option<Decision> {
        let admitted = store
            .admit(
                &key.to_string(),
                Some(self.bucket(key, takes, now)),
                None,
                now,
            )
            .await?;
        let decision = admitted.decision?;
        self.learn(key, decision);
        Some(decision)
    }

    pub(crate) fn store(&self) -> Option<&SharedStore> {
        self.shared.as_ref().map(|(store, _)| store)
    }

    pub(crate) fn bucket(&self, key: &K, takes: bool, now: Timestamp) -> Bucket<'_> {
        let kind = self.shared.as_ref().map_or("", |(_, name)| name);
        Bucket {
            limit: self.limit,
            kind,
            full_at_us: self.known(key, now),
            takes,
            is_on_credit: false,
        }
    }

    fn known(&self, key: &K, now: Timestamp) -> i64 {
        self.buckets
            .known(key, self.limit.full_at_most_us(self.time_us(now)))
    }

    /// See [`Buckets::learn`].
    pub(crate) fn learn(&self, key: &K, decision: Decision) {
        self.buckets.learn(key, decision);
    }

    /// A refusal that needs no store: what is known of a bucket never is more than what has been
    /// taken.
    pub(crate) fn known_refusal(&self, key: &K, now: Timestamp) -> Option<Decision> {
        Some(self.peek_alone(key, now)).filter(|decision| !decision.allowed)
    }

    /// As [`Self::take`], from what this instance knows.
    pub(crate) fn take_alone(&self, key: K, now: Timestamp) -> Decision {
        self.buckets
            .update(key, |kept| gcra::take(self.limit, kept, self.time_us(now)))
    }

    /// As [`Self::peek`], from what this instance knows.
    pub(crate) fn peek_alone(&self, key: &K, now: Timestamp) -> Decision {
        gcra::peek(self.limit, self.known(key, now), self.time_us(now))
    }

    fn time_us(&self, now: Timestamp) -> i64 {
        time_us(self.store(), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_was_lowered_stays_lowered() {
        let buckets = Buckets::default();
        let decision = gcra::take(Limit::per_minute(60), 3_600_000_000, 3_600_000_000);
        buckets.learn(&"a", decision);
        assert_eq!(
            (
                buckets.known(&"a", 60),
                buckets.known(&"a", 100),
                buckets.known(&"b", 100)
            ),
            (60, 60, 0)
        );
    }

    #[tokio::test]
    async fn keys_do_not_share_a_bucket() {
        let limiter = RateLimiter::per_minute(2).unwrap();
        let now = Timestamp::from_second(1_000).unwrap();
        assert!(limiter.take("a", now).await.allowed);
        assert_eq!(limiter.peek(&"a", now).await.remaining, 1);
        assert!(limiter.take("a", now).await.allowed);
        assert!(!limiter.take("a", now).await.allowed);
        assert!(limiter.take("b", now).await.allowed);
        assert!(
            limiter
                .take("a", now + jiff::SignedDuration::from_secs(30))
                .await
                .allowed
        );
        assert!(RateLimiter::<u8>::per_minute(0).is_none());
    }
}
