//! When a page that failed is read again, and when its range gives up.

use std::time::Duration;

use bellbird_providers::Error;
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
/// All pages of a range that is retried: 2,000 pages, with a budget of 300 calls a minute, take seven minutes.
pub(super) const RANGE_MAX: Duration = Duration::from_secs(3_600);

/// The attempts and waits that are left for one page.
pub struct RetryBudget {
    failed: u32,
    until: Instant,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { failed: 0, until: Instant::now() + PAGE_MAX }
    }
}

impl RetryBudget {
    /// `range_until` is the end of the whole range. Fails if that has passed.
    pub(super) fn new(range_until: Instant) -> Result<Self, Error> {
        let now = Instant::now();
        if now >= range_until {
            return Err(Error::Deadline);
        }
        Ok(Self { failed: 0, until: range_until.min(now + PAGE_MAX) })
    }

    /// Waits until another attempt may succeed. Returns the error if there is no further attempt. A used-up budget of
    /// calls is waited for and does not count as a failed attempt, because no call was made.
    pub(super) async fn wait(&mut self, error: Error) -> Result<(), Error> {
        if !error.is_transient() {
            return Err(error);
        }
        let is_budget = matches!(error, Error::BudgetUsedUp { .. });
        if self.wait_until_next(is_budget, error.retry_after().unwrap_or(WAIT)).await { Ok(()) } else { Err(error) }
    }

    /// As `wait`, for other reads than ranges.
    pub async fn wait_for_read(&mut self, error: ReadError) -> Result<(), ReadError> {
        let (is_budget, wait) = match error {
            ReadError::BudgetUsedUp { retry_after } => (true, retry_after),
            ReadError::Unavailable { retry_after } => (false, retry_after),
            other => return Err(other),
        };
        if self.wait_until_next(is_budget, wait).await { Ok(()) } else { Err(error) }
    }

    /// Returns whether there is a further attempt.
    async fn wait_until_next(&mut self, is_budget: bool, wait: Duration) -> bool {
        self.failed += u32::from(!is_budget);
        let next_at = Instant::now() + wait.max(WAIT_MIN);
        if self.failed >= ATTEMPTS_MAX || next_at >= self.until {
            return false;
        }
        tokio::time::sleep_until(next_at).await;
        true
    }
}
