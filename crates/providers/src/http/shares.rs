//! How users and the schedule share the calls to one provider, so that one user cannot use up what
//! all need.
//!
//! What a user's requests cause has a budget of calls a minute ([`bellbird_limits::CallBudgets`])
//! and a limit of concurrent calls ([`crate::Cause`]). All of it together leaves some concurrent
//! calls to the schedule. Where the provider limits the calls of all users together, requests and
//! syncs also share what it allows in a minute ([`bellbird_limits::CallWindow`]). The schedule has
//! no budget: the runner limits how many jobs run at once.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::UserId;
use bellbird_limits::Expiring;
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
    /// Waits for a permit. `payer` is absent for the schedule.
    pub(super) async fn acquire(
        &self,
        payer: Option<UserId>,
        now: Timestamp,
    ) -> Result<CallPermit<'_>, AcquireError> {
        let of_request = match payer {
            Some(user_id) => {
                let fresh = || Arc::new(Semaphore::new(USER_CALLS_AT_ONCE_MAX));
                // The user's own permit first: who waits for it must not hold one of all.
                let of_user = self
                    .users
                    .renew_or_insert_with(&user_id, now, fresh)
                    .acquire_owned()
                    .await?;
                Some((of_user, self.requests.acquire().await?))
            }
            None => None,
        };
        Ok(CallPermit {
            _of_request: of_request,
            _of_all: self.all.acquire().await?,
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const START: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn users_and_requests_leave_permits_to_others() {
        let (permits, greedy) = (CallPermits::default(), UserId::new());
        let acquire = |requester| permits.acquire(requester, START).now_or_never();
        let held: Vec<_> = (0..USER_CALLS_AT_ONCE_MAX)
            .map(|_| acquire(Some(greedy)).unwrap().unwrap())
            .collect();
        assert!(acquire(Some(greedy)).is_none());
        assert!(acquire(Some(UserId::new())).is_some(), "another user");
        let others: Vec<_> = (USER_CALLS_AT_ONCE_MAX..REQUEST_CALLS_AT_ONCE_MAX)
            .map(|_| acquire(Some(UserId::new())).unwrap().unwrap())
            .collect();
        assert!(
            acquire(Some(UserId::new())).is_none(),
            "requests leave the rest to jobs"
        );
        let jobs: Vec<_> = (REQUEST_CALLS_AT_ONCE_MAX..CALLS_AT_ONCE_MAX)
            .map(|_| acquire(None).unwrap().unwrap())
            .collect();
        assert!(acquire(None).is_none());
        drop((held, others, jobs));
        assert!(acquire(Some(greedy)).is_some(), "permits are released");
    }
}
