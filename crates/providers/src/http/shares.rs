//! How users and jobs share the calls to one provider, so that one user cannot use up what all need.
//!
//! A user's requests have a budget of calls a minute and a limit of concurrent calls. All requests together leave some
//! concurrent calls to jobs. Where the provider limits the calls of all users together, requests and syncs also share
//! what it allows in a minute ([`bellbird_limits::CallWindow`]). Other jobs have no budget: the runner limits how many
//! run at once.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::UserId;
use bellbird_limits::gcra::{self, Decision, Limit};
use bellbird_limits::{Buckets, Expiring};
use jiff::Timestamp;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Concurrent calls to one provider. Further calls wait.
const CALLS_AT_ONCE_MAX: usize = 256;
/// Concurrent calls of all requests. The others are for jobs.
const REQUEST_CALLS_AT_ONCE_MAX: usize = CALLS_AT_ONCE_MAX * 7 / 10;
/// Concurrent calls of one user's requests.
const USER_CALLS_AT_ONCE_MAX: usize = 32;
/// Users whose concurrent calls are limited. Beyond it, the least recently used are forgotten.
const USERS_MAX: u64 = 100_000;
/// A user without a new call for this long is forgotten. It is longer than a call takes.
const USER_TTL: Duration = Duration::from_secs(600);

/// The user whose request makes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Requester {
    pub(crate) user_id: UserId,
    /// The budget at each provider. 0 is no limit.
    pub(crate) calls_per_minute: u32,
}

/// The budgets of users at one provider.
#[derive(Default)]
pub(super) struct UserBudgets(Buckets<UserId>);

impl UserBudgets {
    /// Takes a call out of a user's budget, or returns how long to wait.
    ///
    /// A budget refills evenly over a minute. A request begins only if a call is left. After its first call it may
    /// overdraw by a whole budget, because a request that fails halfway has wasted its calls. Later requests wait until
    /// that is paid back.
    pub(super) fn take(&self, now: Timestamp, requester: Requester, is_first: bool) -> Result<(), Duration> {
        self.decide(now, requester, is_first, true)
    }

    /// As [`Self::take`], but takes nothing.
    pub(super) fn check(&self, now: Timestamp, requester: Requester, is_first: bool) -> Result<(), Duration> {
        self.decide(now, requester, is_first, false)
    }

    fn decide(&self, now: Timestamp, requester: Requester, is_first: bool, takes: bool) -> Result<(), Duration> {
        let Requester { user_id, calls_per_minute } = requester;
        if calls_per_minute == 0 {
            return Ok(());
        }
        let limit = Limit { credit: calls_per_minute, ..Limit::per_minute(calls_per_minute) };
        let now_us = now.as_microsecond();
        let take = if is_first { gcra::take } else { gcra::take_on_credit };
        let decision = self.0.update(user_id, |full_at_us| {
            let decision = take(limit, full_at_us, now_us);
            let full_at_us = if takes { decision.full_at_us } else { decision.full_at_us.min(full_at_us) };
            Decision { full_at_us, ..decision }
        });
        if decision.allowed {
            return Ok(());
        }
        // A request that has used up its credit may continue when the budget is full again.
        let wait_us = if is_first { decision.wait_us } else { decision.full_at_us - now_us };
        Err(Duration::from_micros(wait_us.unsigned_abs()))
    }
}

/// The concurrent calls to one provider.
pub(super) struct CallPermits {
    all: Semaphore,
    requests: Semaphore,
    users: Expiring<UserId, Arc<Semaphore>>,
}

impl Default for CallPermits {
    fn default() -> Self {
        Self {
            all: Semaphore::new(CALLS_AT_ONCE_MAX),
            requests: Semaphore::new(REQUEST_CALLS_AT_ONCE_MAX),
            users: Expiring::new(USER_TTL, USERS_MAX, |_, _| 1),
        }
    }
}

/// The right to make a call. Dropping it releases it.
pub(super) struct CallPermit<'p> {
    _of_request: Option<(OwnedSemaphorePermit, SemaphorePermit<'p>)>,
    _of_all: SemaphorePermit<'p>,
}

impl CallPermits {
    /// Waits for a permit. `requester` is absent for jobs.
    pub(super) async fn acquire(
        &self,
        requester: Option<UserId>,
        now: Timestamp,
    ) -> Result<CallPermit<'_>, AcquireError> {
        let of_request = match requester {
            Some(user_id) => {
                let fresh = || Arc::new(Semaphore::new(USER_CALLS_AT_ONCE_MAX));
                // The user's own permit first: who waits for it must not hold one of all.
                let of_user = self.users.renew_or_insert_with(&user_id, now, fresh).acquire_owned().await?;
                Some((of_user, self.requests.acquire().await?))
            }
            None => None,
        };
        Ok(CallPermit { _of_request: of_request, _of_all: self.all.acquire().await? })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const START: Timestamp = Timestamp::UNIX_EPOCH;

    fn requester(calls_per_minute: u32) -> Requester {
        Requester { user_id: UserId::new(), calls_per_minute }
    }

    #[test]
    fn budget_is_used_up_by_calls_and_refills() {
        let (budgets, user, start) = (UserBudgets::default(), requester(30), START);
        for _ in 0..30 {
            assert_eq!(budgets.take(start, user, true), Ok(()));
        }
        assert_eq!(budgets.take(start, user, true), Err(2 * SECOND));
        assert_eq!(budgets.take(start, requester(30), true), Ok(()), "another user has a budget of their own");
        assert_eq!(budgets.take(start + SECOND, user, true), Err(SECOND));
        assert_eq!(budgets.take(start + 2 * SECOND, user, true), Ok(()));
    }

    #[test]
    fn request_that_began_may_overdraw_once() {
        let (budgets, user, start) = (UserBudgets::default(), requester(30), START);
        assert_eq!(budgets.take(start, user, true), Ok(()));
        for _ in 1..60 {
            assert_eq!(budgets.take(start, user, false), Ok(()));
        }
        assert_eq!(budgets.take(start, user, false), Err(120 * SECOND), "until the budget is full");
        assert_eq!(budgets.take(start, user, true), Err(62 * SECOND), "until a call is left");
        assert_eq!(budgets.take(start + 62 * SECOND, user, true), Ok(()));
    }

    #[test]
    fn users_and_requests_leave_permits_to_others() {
        let (permits, greedy) = (CallPermits::default(), UserId::new());
        let acquire = |requester| permits.acquire(requester, START).now_or_never();
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
}
