//! Sums up the jobs of all users for the operator.

use jiff::Timestamp;

use crate::Jobs;
use crate::db::{from_row, params, statements};
use crate::error::Result;

statements! {
    COUNT = "SELECT kind,
            COUNT(CASE WHEN COALESCE(lease_until, run_at) <= $1 THEN 1 END),
            COUNT(CASE WHEN lease_until > $1 THEN 1 END),
            COUNT(last_error),
            COUNT(CASE WHEN lease_until IS NULL AND run_at > $1 THEN 1 END),
            MIN(COALESCE(lease_until, run_at))
        FROM jobs GROUP BY kind ORDER BY kind";

    LIST_FAILING = "SELECT kind, provider, subject, attempts, last_error, run_at FROM jobs WHERE last_error IS NOT NULL
        ORDER BY attempts DESC, kind, subject LIMIT $1";
}

/// The jobs of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCounts {
    pub kind: String,
    /// Jobs that are due and not running.
    pub due: u64,
    pub running: u64,
    /// Jobs whose last run failed.
    pub failing: u64,
    /// Jobs that become due later.
    pub waiting: u64,
    /// When the longest due job became due, or else when the next job becomes due.
    pub next: Option<Timestamp>,
}

/// A job whose last run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingJob {
    pub kind: String,
    pub provider: String,
    pub subject: String,
    /// Runs since the last success.
    pub attempts: u32,
    /// Why the last run failed.
    pub last_error: String,
    pub next_attempt_at: Option<Timestamp>,
}

impl Jobs<'_> {
    /// Counts the jobs of each kind that has any. Reads the whole table.
    pub async fn count(self, now: Timestamp) -> Result<Vec<JobCounts>> {
        self.db.all(COUNT, params![now], counts).await
    }

    /// Lists jobs whose last run failed, most failures first.
    pub async fn list_failing(self, limit: u32) -> Result<Vec<FailingJob>> {
        self.db.all(LIST_FAILING, params![limit], failing).await
    }
}

from_row! {
    fn counts(row) -> JobCounts {
        kind, due, running, failing, waiting, next,
    }
}

from_row! {
    fn failing(row) -> FailingJob {
        kind, provider, subject, attempts: "a number of attempts", last_error, next_attempt_at,
    }
}
