//! How users and jobs share the calls to one provider, so that one user cannot use up what all need.
//!
//! A user's requests have a budget of calls a minute and a limit of concurrent calls. All requests together leave some
//! concurrent calls to jobs. Jobs have no budget here: the runner limits how many run at once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bellbird_domain::UserId;
use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Concurrent calls to one provider. Further calls wait.
const CALLS_AT_ONCE_MAX: usize = 256;
/// Concurrent calls of all requests. The others are for jobs.
const REQUEST_CALLS_AT_ONCE_MAX: usize = CALLS_AT_ONCE_MAX * 7 / 10;
/// Concurrent calls of one user's requests.
const USER_CALLS_AT_ONCE_MAX: usize = 32;
/// Entries of a map at which unused ones are evicted for the first time.
const EVICT_FROM: usize = 1_024;

/// The user whose request makes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Requester {
    pub(crate) user_id: UserId,
    /// The budget at each provider. 0 is no limit.
    pub(crate) calls_per_minute: u32,
}

/// The budgets of users at one provider.
#[derive(Default)]
pub(super) struct UserBudgets {
    /// When the budget of a user will be full again. Absent if it is full.
    full_at: EvictingMap<Instant>,
}

impl UserBudgets {
    /// Takes a call out of a user's budget, or returns how long to wait.
    ///
    /// A budget refills evenly over a minute. A request begins only if a call is left. After its first call it may
    /// overdraw by a whole budget, because a request that fails halfway has wasted its calls. Later requests wait until
    /// that is paid back.
    pub(super) fn take(
        &mut self,
        now: Instant,
        user_id: UserId,
        calls_per_minute: u32,
        is_first: bool,
    ) -> Result<(), Duration> {
        const PERIOD: Duration = Duration::from_secs(60);
        let interval = PERIOD / calls_per_minute.max(1);
        let full_at = self.full_at.get_or_insert_with(user_id, |full_at| *full_at > now, || now);
        let used = full_at.saturating_duration_since(now);
        if is_first && used + interval > PERIOD {
            return Err(used + interval - PERIOD);
        }
        if used + interval > 2 * PERIOD {
            return Err(used);
        }
        *full_at = now + used + interval;
        Ok(())
    }
}

/// The concurrent calls to one provider.
pub(super) struct CallPermits {
    all: Semaphore,
    requests: Semaphore,
    users: Mutex<EvictingMap<Weak<Semaphore>>>,
}

impl Default for CallPermits {
    fn default() -> Self {
        Self {
            all: Semaphore::new(CALLS_AT_ONCE_MAX),
            requests: Semaphore::new(REQUEST_CALLS_AT_ONCE_MAX),
            users: Mutex::default(),
        }
    }
}

/// The right to make a call. Dropping it releases it.
pub(super) struct CallPermit<'p> {
    _of_request: Option<(Arc<Semaphore>, OwnedSemaphorePermit, SemaphorePermit<'p>)>,
    _of_all: SemaphorePermit<'p>,
}

impl CallPermits {
    /// Waits for a permit. `requester` is absent for jobs.
    pub(super) async fn acquire(&self, requester: Option<UserId>) -> Result<CallPermit<'_>, AcquireError> {
        let of_request = match requester {
            Some(user_id) => {
                let own = self.of_user(user_id);
                // The user's own permit first: who waits for it must not hold one of all.
                let of_user = Arc::clone(&own).acquire_owned().await?;
                Some((own, of_user, self.requests.acquire().await?))
            }
            None => None,
        };
        Ok(CallPermit { _of_request: of_request, _of_all: self.all.acquire().await? })
    }

    fn of_user(&self, user_id: UserId) -> Arc<Semaphore> {
        let mut users = self.users.lock();
        let semaphore = users.get_or_insert_with(user_id, |semaphore| semaphore.strong_count() > 0, Weak::new);
        semaphore.upgrade().unwrap_or_else(|| {
            let fresh = Arc::new(Semaphore::new(USER_CALLS_AT_ONCE_MAX));
            *semaphore = Arc::downgrade(&fresh);
            fresh
        })
    }
}

/// A value for each user. Whenever it has doubled, it evicts what is not in use, so its size follows the users that are
/// active at the same time.
struct EvictingMap<V> {
    values: HashMap<UserId, V>,
    evict_at: usize,
}

impl<V> Default for EvictingMap<V> {
    fn default() -> Self {
        Self { values: HashMap::new(), evict_at: EVICT_FROM }
    }
}

impl<V> EvictingMap<V> {
    fn get_or_insert_with(
        &mut self,
        user_id: UserId,
        is_used: impl Fn(&V) -> bool,
        value: impl FnOnce() -> V,
    ) -> &mut V {
        if self.values.len() >= self.evict_at {
            self.values.retain(|_, value| is_used(value));
            self.evict_at = (2 * self.values.len()).max(EVICT_FROM);
        }
        self.values.entry(user_id).or_insert_with(value)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn budget_is_used_up_by_calls_and_refills() {
        let (mut budgets, user, start) = (UserBudgets::default(), UserId::new(), Instant::now());
        for _ in 0..30 {
            assert_eq!(budgets.take(start, user, 30, true), Ok(()));
        }
        assert_eq!(budgets.take(start, user, 30, true), Err(2 * SECOND));
        assert_eq!(budgets.take(start, UserId::new(), 30, true), Ok(()), "another user has a budget of their own");
        assert_eq!(budgets.take(start + SECOND, user, 30, true), Err(SECOND));
        assert_eq!(budgets.take(start + 2 * SECOND, user, 30, true), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_began_may_overdraw_once() {
        let (mut budgets, user, start) = (UserBudgets::default(), UserId::new(), Instant::now());
        assert_eq!(budgets.take(start, user, 30, true), Ok(()));
        for _ in 1..60 {
            assert_eq!(budgets.take(start, user, 30, false), Ok(()));
        }
        assert_eq!(budgets.take(start, user, 30, false), Err(120 * SECOND), "until the budget is full");
        assert_eq!(budgets.take(start, user, 30, true), Err(62 * SECOND), "until a call is left");
        assert_eq!(budgets.take(start + 62 * SECOND, user, 30, true), Ok(()));
    }

    #[test]
    fn users_and_requests_leave_permits_to_others() {
        let (permits, greedy) = (CallPermits::default(), UserId::new());
        let acquire = |requester| permits.acquire(requester).now_or_never();
        let held: Vec<_> = (0..USER_CALLS_AT_ONCE_MAX).map(|_| acquire(Some(greedy)).unwrap().unwrap()).collect();
        assert!(acquire(Some(greedy)).is_none());
        assert!(acquire(Some(UserId::new())).is_some(), "another user");
        let others: Vec<_> = (USER_CALLS_AT_ONCE_MAX..REQUEST_CALLS_AT_ONCE_MAX)
            .map(|_| acquire(Some(UserId::new())).unwrap().unwrap())
            .collect();
        assert!(acquire(Some(UserId::new())).is_none(), "requests leave the rest to jobs");
        let jobs: Vec<_> =
            (REQUEST_CALLS_AT_ONCE_MAX..CALLS_AT_ONCE_MAX).map(|_| acquire(None).unwrap().unwrap()).collect();
        assert!(acquire(None).is_none());
        drop((held, others, jobs));
        assert!(acquire(Some(greedy)).is_some(), "permits are released");
    }

    #[tokio::test]
    async fn idle_users_are_evicted() {
        let permits = CallPermits::default();
        let _busy = permits.acquire(Some(UserId::new())).await.unwrap();
        for _ in 0..2 * EVICT_FROM {
            drop(permits.acquire(Some(UserId::new())).await.unwrap());
        }
        assert!(permits.users.lock().values.len() <= EVICT_FROM);
    }
}
