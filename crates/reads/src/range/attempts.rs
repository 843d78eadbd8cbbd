//! When a read that failed is attempted again, and when a long read gives up.

use std::time::Duration;

use bellbird_providers::CallContext;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::ReadError;

/// Attempts of one page that may fail, each with the attempts of its provider calls.
const ATTEMPTS_MAX: u32 = 3;
/// The wait before another attempt, if the provider does not say how long.
const WAIT: Duration = Duration::from_secs(2);
/// No wait is shorter: a provider may say 0.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// All attempts and waits of one page. A used-up budget of calls refills within a minute.
const PAGE_MAX: Duration = Duration::from_secs(120);
/// All pages of a list: 2,000 pages, with a budget of 300 calls a minute, take seven minutes.
const LIST_MAX: Duration = Duration::from_secs(3_600);

/// Makes the call context of an attempt.
pub type NewCall<'c> = dyn Fn() -> CallContext + Sync + 'c;

/// The attempts to read a page, each with its own call context, within the retry budget above.
pub struct Attempts<'c> {
    new_call: &'c NewCall<'c>,
    give_up_at: Option<Instant>,
    calls: u32,
}

impl<'c> Attempts<'c> {
    /// Without `give_up_at`, there is one attempt. With it, as for long reads, another follows a
    /// transient failure and a wait for the user's budget of provider calls, until three attempts
    /// have failed, two minutes have passed for one page, or it is `give_up_at`. A used-up budget
    /// is not a failed attempt, because no call was made.
    pub fn new(give_up_at: Option<Instant>, new_call: &'c NewCall<'c>) -> Self {
        Self {
            new_call,
            give_up_at,
            calls: 0,
        }
    }

    /// When a list that is read from now on gives up.
    pub fn end_of_list() -> Instant {
        Instant::now() + LIST_MAX
    }

    /// The number of provider calls of all attempts.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// Reads until an attempt succeeds or none is left. `read` borrows all it needs from `state`,
    /// because the compiler cannot tell yet that the future of an async closure is `Send`.
    pub async fn run<S, T>(
        &mut self,
        mut state: S,
        mut read: impl for<'a> FnMut(&'a mut S, &'a CallContext) -> BoxFuture<'a, Result<T, ReadError>>,
    ) -> Result<T, ReadError> {
        let started = Instant::now();
        if self
            .give_up_at
            .is_some_and(|give_up_at| started >= give_up_at)
        {
            return Err(ReadError::Unavailable {
                retry_after: None,
                is_transient: false,
            });
        }
        let until = self
            .give_up_at
            .map(|give_up_at| give_up_at.min(started + PAGE_MAX));
        let mut failed = 0;
        loop {
            let call = (self.new_call)();
            let outcome = read(&mut state, &call).await;
            self.calls += call.calls();
            let (Err(error), Some(until)) = (&outcome, until) else {
                return outcome;
            };
            let wait = match error {
                ReadError::BudgetUsedUp { retry_after } => *retry_after,
                ReadError::Unavailable {
                    retry_after,
                    is_transient: true,
                } => {
                    failed += 1;
                    retry_after.unwrap_or(WAIT)
                }
                _ => return outcome,
            };
            let next_at = Instant::now() + wait.max(WAIT_MIN);
            if failed >= ATTEMPTS_MAX || next_at >= until {
                return outcome;
            }
            tokio::time::sleep_until(next_at).await;
        }
    }
}
