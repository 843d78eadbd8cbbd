//! How users and jobs share the calls to one provider, so that one user cannot use up what all need.
//!
//! A user's requests have a budget of calls a minute and a limit of concurrent calls. All requests together leave some
//! concurrent calls to jobs. Where the provider limits the calls of all users together, requests also share what it
//! allows in a minute. Jobs have no budget here: the runner limits how many run at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::UserId;
use bellbird_limits::gcra::{self, Limit};
use bellbird_limits::{Buckets, Expiring};
use jiff::Timestamp;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::Error;

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
/// Tenths of what a provider allows in a minute that only jobs may use.
const JOB_TENTHS: u64 = 3;
const MINUTE: Duration = Duration::from_secs(60);

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
        let Requester { user_id, calls_per_minute } = requester;
        if calls_per_minute == 0 {
            return Ok(());
        }
        let limit = Limit { credit: calls_per_minute, ..Limit::per_minute(calls_per_minute) };
        let now_us = now.as_microsecond();
        let take = if is_first { gcra::take } else { gcra::take_on_credit };
        let decision = self.0.update(user_id, |full_at_us| take(limit, full_at_us, now_us));
        if decision.allowed {
            return Ok(());
        }
        // A request that has used up its credit may continue when the budget is full again.
        let wait_us = if is_first { decision.wait_us } else { decision.full_at_us - now_us };
        Err(Duration::from_micros(wait_us.unsigned_abs()))
    }
}

/// The calls of the last minute to a provider that limits the calls of all users together.
///
/// A user may hold as many of them as are left for requests, so at most half of what the others leave. What one user
/// may hold shrinks as the whole runs out, and some of it stays for a user who comes later, however many are greedy.
/// A request begins only below three quarters of that, because one that fails halfway has wasted its calls.
pub(super) struct CallWindow {
    calls_per_minute: u64,
    /// Soonest to end first.
    calls: VecDeque<WindowCalls>,
}

struct WindowCalls {
    /// When they no longer count.
    end: Instant,
    /// None for jobs, and for calls that only the provider's count shows.
    user_id: Option<UserId>,
    count: u64,
}

impl CallWindow {
    pub(super) fn new(calls_per_minute: u32) -> Self {
        Self { calls_per_minute: calls_per_minute.into(), calls: VecDeque::new() }
    }

    /// Follows the provider's count, which includes the calls of other instances.
    pub(super) fn correct(&mut self, now: Instant, calls_per_minute: u32, remaining: u32, reset: Duration) {
        self.forget(now);
        self.calls_per_minute = calls_per_minute.into();
        let known: u64 = self.calls.iter().map(|calls| calls.count).sum();
        let count = u64::from(calls_per_minute.saturating_sub(remaining)).saturating_sub(known);
        if count > 0 {
            let end = now + reset.min(MINUTE);
            let at = self.calls.partition_point(|calls| calls.end <= end);
            self.calls.insert(at, WindowCalls { end, user_id: None, count });
        }
    }

    /// Counts a call, of a user or of a job.
    pub(super) fn count(&mut self, now: Instant, user_id: Option<UserId>) {
        self.forget(now);
        self.calls.push_back(WindowCalls { end: now + MINUTE, user_id, count: 1 });
    }

    /// Fails if the requester has to wait, with the time until it need not.
    pub(super) fn check(&mut self, now: Instant, requester: Requester, is_first: bool) -> Result<(), Error> {
        self.forget(now);
        let for_requests = self.calls_per_minute - self.calls_per_minute * JOB_TENTHS / 10;
        let of_user = |calls: &WindowCalls| if calls.user_id == Some(requester.user_id) { calls.count } else { 0 };
        let is_free = |all: u64, own: u64| {
            let left = for_requests.saturating_sub(all);
            let has_share = requester.calls_per_minute == 0 || if is_first { own * 4 < left * 3 } else { own < left };
            left > 0 && has_share
        };
        let mut all: u64 = self.calls.iter().map(|calls| calls.count).sum();
        let mut own: u64 = self.calls.iter().map(of_user).sum();
        if is_free(all, own) {
            return Ok(());
        }
        let is_used_up = all >= for_requests;
        let freeing = self.calls.iter().find(|calls| {
            all -= calls.count;
            own -= of_user(calls);
            is_free(all, own)
        });
        let retry_after = freeing.map_or(MINUTE, |calls| calls.end - now);
        Err(if is_used_up {
            Error::RateLimited { retry_after: Some(retry_after) }
        } else {
            Error::BudgetUsedUp { retry_after }
        })
    }

    fn forget(&mut self, now: Instant) {
        let ended = self.calls.partition_point(|calls| calls.end <= now);
        self.calls.drain(..ended);
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

    /// Makes calls until one is refused. Returns how many were made.
    fn use_up(window: &mut CallWindow, requester: Requester, is_first: bool) -> usize {
        let call = || {
            window
                .check(Instant::now(), requester, is_first)
                .map(|()| window.count(Instant::now(), Some(requester.user_id)))
        };
        std::iter::repeat_with(call).take_while(Result::is_ok).count()
    }

    #[tokio::test(start_paused = true)]
    async fn share_of_a_user_shrinks_as_the_minute_runs_out() {
        let mut window = CallWindow::new(250);
        let greedy: Vec<Requester> = std::iter::repeat_with(|| requester(300)).take(4).collect();
        assert_eq!(use_up(&mut window, greedy[0], true), 75, "a request may begin");
        assert_eq!(use_up(&mut window, greedy[0], false), 13, "one that has begun may continue");
        let held: Vec<usize> = greedy[1..].iter().map(|requester| use_up(&mut window, *requester, false)).collect();
        assert_eq!(held, [44, 22, 11], "half of what the others leave");
        let unlimited = requester(0);
        assert_eq!(use_up(&mut window, unlimited, true), 10, "up to the part of jobs");
        let refused = window.check(Instant::now(), requester(300), true);
        assert_eq!(refused, Err(Error::RateLimited { retry_after: Some(MINUTE) }));
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_says_when_the_share_is_enough_again() {
        let (mut window, greedy) = (CallWindow::new(250), requester(300));
        for _ in 0..60 {
            window.count(Instant::now(), Some(greedy.user_id));
            tokio::time::advance(SECOND / 4).await;
        }
        assert_eq!(use_up(&mut window, greedy, true), 15);
        let refused = window.check(Instant::now(), greedy, true);
        assert_eq!(refused, Err(Error::BudgetUsedUp { retry_after: 45 * SECOND }));
        tokio::time::advance(45 * SECOND).await;
        assert_eq!(use_up(&mut window, greedy, true), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn window_follows_the_count_of_the_provider() {
        let (mut window, user) = (CallWindow::new(250), requester(300));
        window.count(Instant::now(), None);
        let wait = |window: &mut CallWindow| {
            window.check(Instant::now(), user, true).err().map(|error| error.retry_after().unwrap())
        };
        window.correct(Instant::now(), 250, 249, 5 * SECOND);
        assert_eq!(wait(&mut window), None, "it has counted the same call");
        window.correct(Instant::now(), 250, 75, 5 * SECOND);
        assert_eq!(wait(&mut window), Some(5 * SECOND), "others have used it up");
        window.correct(Instant::now(), 300, 76, 3600 * SECOND);
        assert_eq!(wait(&mut window), Some(5 * SECOND), "49 more are no reason to wait longer");
        window.correct(Instant::now(), u32::MAX, 0, 3600 * SECOND);
        assert_eq!(wait(&mut window), Some(MINUTE), "no reset is later");
        tokio::time::advance(MINUTE).await;
        window.correct(Instant::now(), 1, 1, SECOND);
        assert_eq!(wait(&mut window), None, "the smallest limit leaves a call to requests");
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
