//! The calls to a provider that one user's requests may make in a minute: at one instance, or at
//! all that share a store.

use std::fmt::Display;
use std::hash::Hash;
use std::time::Duration;

use jiff::Timestamp;

use crate::gcra::{self, Decision, Limit};
use crate::rate_limit::Buckets;
use crate::store::{Bucket, SharedStore, time_us};

/// The budgets of users at one provider.
///
/// A budget refills evenly over a minute. A request begins only if a call is left. After its first
/// call it may overdraw by a whole budget, because a request that fails halfway has wasted its
/// calls. Later requests wait until that is paid back.
pub struct CallBudgets<K> {
    name: &'static str,
    store: Option<SharedStore>,
    buckets: Buckets<K>,
}

impl<K: Hash + Eq + Clone + Display + Send + Sync + 'static> CallBudgets<K> {
    #[must_use]
    pub fn new(name: &'static str, store: Option<&SharedStore>) -> Self {
        Self {
            name,
            store: store.cloned(),
            buckets: Buckets::default(),
        }
    }

    pub fn store(&self) -> Option<&SharedStore> {
        self.store.as_ref()
    }

    /// Takes a call out of a user's budget of `per_minute`, where 0 is no limit.
    ///
    /// # Errors
    /// The time to wait.
    pub async fn take(
        &self,
        user: &K,
        per_minute: u32,
        is_first: bool,
        now: Timestamp,
    ) -> Result<(), Duration> {
        if per_minute == 0 {
            return Ok(());
        }
        let (limit, now_us) = (limit(per_minute), time_us(self.store(), now));
        if let Some(store) = &self.store {
            let full_at_us = self.buckets.known(user, limit.full_at_most_us(now_us));
            let bucket = Bucket {
                limit,
                kind: "budget",
                full_at_us,
                takes: true,
                is_on_credit: !is_first,
            };
            let key = format!("{} {user}", self.name);
            let admitted = store.admit(&key, Some(bucket), None, now).await;
            if let Some(decision) = admitted.and_then(|admitted| admitted.decision) {
                self.buckets.learn(user, decision);
                return self.outcome(decision, is_first, now);
            }
        }
        let decision = self
            .buckets
            .update(user.clone(), |kept| decide(limit, kept, now_us, is_first));
        self.outcome(decision, is_first, now)
    }

    /// The time to wait for the first call of a request, if this instance knows that the budget is
    /// used up.
    pub fn known_refusal(&self, user: &K, per_minute: u32, now: Timestamp) -> Option<Duration> {
        if per_minute == 0 {
            return None;
        }
        let (limit, now_us) = (limit(per_minute), time_us(self.store(), now));
        let decision = gcra::peek(
            limit,
            self.buckets.known(user, limit.full_at_most_us(now_us)),
            now_us,
        );
        self.outcome(decision, true, now).err()
    }

    fn outcome(&self, decision: Decision, is_first: bool, now: Timestamp) -> Result<(), Duration> {
        if decision.allowed {
            return Ok(());
        }
        // A request that has used up its credit may continue when the budget is full again.
        let until_full_us = decision.full_at_us - time_us(self.store(), now);
        let wait_us = if is_first {
            decision.wait_us
        } else {
            until_full_us
        };
        Err(Duration::from_micros(u64::try_from(wait_us).unwrap_or(0)))
    }
}

fn limit(per_minute: u32) -> Limit {
    Limit {
        credit: per_minute,
        ..Limit::per_minute(per_minute)
    }
}

fn decide(limit: Limit, full_at_us: i64, now_us: i64, is_first: bool) -> Decision {
    let take = if is_first {
        gcra::take
    } else {
        gcra::take_on_credit
    };
    take(limit, full_at_us, now_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const START: Timestamp = Timestamp::UNIX_EPOCH;

    /// A call of one user, so many seconds after the start.
    async fn take(
        budgets: &CallBudgets<&'static str>,
        is_first: bool,
        seconds: u32,
    ) -> Result<(), Duration> {
        let now = START + seconds * SECOND;
        budgets.take(&"a", 30, is_first, now).await
    }

    #[tokio::test]
    async fn budget_is_used_up_by_calls_and_refills() {
        let budgets = CallBudgets::new("test", None);
        for _ in 0..30 {
            assert_eq!(take(&budgets, true, 0).await, Ok(()));
        }
        assert_eq!(take(&budgets, true, 0).await, Err(2 * SECOND));
        let other = budgets.take(&"b", 30, true, START).await;
        assert_eq!(other, Ok(()), "another user has a budget of their own");
        assert_eq!(budgets.take(&"a", 0, true, START).await, Ok(()), "no limit");
        assert_eq!(take(&budgets, true, 1).await, Err(SECOND));
        assert_eq!(take(&budgets, true, 2).await, Ok(()));
    }

    #[tokio::test]
    async fn clock_set_back_empties_a_budget_once() {
        let budgets = CallBudgets::new("test", None);
        assert_eq!(take(&budgets, true, 3_600).await, Ok(()));
        assert_eq!(take(&budgets, true, 0).await, Err(62 * SECOND));
        assert_eq!(take(&budgets, true, 61).await, Err(SECOND));
        assert_eq!(take(&budgets, true, 62).await, Ok(()));
    }

    #[tokio::test]
    async fn request_that_began_may_overdraw_once() {
        let budgets = CallBudgets::new("test", None);
        assert_eq!(take(&budgets, true, 0).await, Ok(()));
        for _ in 1..60 {
            assert_eq!(take(&budgets, false, 0).await, Ok(()));
        }
        let until_full = take(&budgets, false, 0).await;
        assert_eq!(until_full, Err(120 * SECOND), "until the budget is full");
        let until_one = take(&budgets, true, 0).await;
        assert_eq!(until_one, Err(62 * SECOND), "until a call is left");
        assert_eq!(take(&budgets, true, 62).await, Ok(()));
    }
}
