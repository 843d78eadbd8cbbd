//! What a kind of job is, and how a claimed job runs: with a lease that is renewed, a span, and
//! retries after failures.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{ConnectionId, TimestampExt as _};
use bellbird_limits::jitter;
use bellbird_providers::Error;
use bellbird_storage::{ClaimedJob, JobKey, StorageError};
use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::ConnectionsError;
use crate::schedule::{self, Failure};
use crate::state::State;

const INTERRUPTED: Failure = Failure::Transient(None);
/// How long a run may still return its result after its lease is gone.
const FINISH_GRACE: Duration = Duration::from_secs(2);
/// How often a caller tries to claim a job that another task is running.
const CLAIM_INTERVAL: Duration = Duration::from_millis(250);

/// Counts runs of jobs. Labels: `kind` and `outcome`.
pub const JOB_RUNS_METRIC: &str = "bellbird_job_runs_total";

pub(crate) type Work<'a> = Pin<Box<dyn Future<Output = Result<(), ConnectionsError>> + Send + 'a>>;

pub(crate) struct JobKind {
    /// The word in the database, in logs and in metrics.
    pub(crate) name: &'static str,
    /// Whether there is one job for the whole service. The runner adds it, and the work finishes it
    /// with the next time.
    pub(crate) is_periodic: bool,
    /// Whether each job is about one provider. Otherwise the limit below is for all of them.
    pub(crate) has_provider: bool,
    pub(crate) has_connection: bool,
    /// How long a job of a killed process waits. A quarter of it is the time between renewals.
    pub(crate) lease: Duration,
    /// Jobs of this provider that one instance runs at the same time.
    pub(crate) concurrency_max: fn(&State, &str) -> usize,
    pub(crate) is_enabled: fn(&State) -> bool,
    /// Whether due jobs wait while the provider says so
    /// ([`bellbird_providers::Provider::syncs_wait`]).
    pub(crate) yields_when_limited: bool,
    /// Does the work. The last write of a success finishes or deletes the job:
    /// [`State::finish_job`], or a statement of the storage that checks the claim in its
    /// transaction. An error is retried, with backoff.
    pub(crate) run: for<'a> fn(&'a Arc<State>, &'a ClaimedJob) -> Work<'a>,
}

impl JobKind {
    /// A kind whose jobs are about one provider each, eight of them at the same time.
    pub(crate) const fn new(
        name: &'static str,
        lease: Duration,
        run: for<'a> fn(&'a Arc<State>, &'a ClaimedJob) -> Work<'a>,
    ) -> Self {
        Self {
            name,
            is_periodic: false,
            has_provider: true,
            has_connection: false,
            lease,
            concurrency_max: |_, _| 8,
            is_enabled: |_| true,
            yields_when_limited: false,
            run,
        }
    }

    pub(crate) fn count(&self, outcome: &'static str) {
        metrics::counter!(JOB_RUNS_METRIC, "kind" => self.name, "outcome" => outcome).increment(1);
    }
}

/// A run without success.
#[derive(Debug)]
pub(crate) struct FailedRun {
    pub(crate) error: ConnectionsError,
    /// None: interrupted. The job runs again when its lease ends, or another task runs it already.
    pub(crate) retry_at: Option<Timestamp>,
}

impl State {
    /// Runs a claimed job while renewing its lease. If it fails, plans the next attempt.
    pub(crate) async fn run_claimed<T>(
        &self,
        kind: &JobKind,
        claim: &ClaimedJob,
        work: impl Future<Output = Result<T, ConnectionsError>>,
    ) -> Result<T, FailedRun> {
        let attempt = claim.attempts.saturating_add(1);
        let span = tracing::error_span!(
            "job",
            kind = kind.name,
            job_id = claim.run_id(),
            connection_id = kind
                .has_connection
                .then(|| claim.subject_id::<ConnectionId>().to_string()),
            attempt
        );
        let run = async {
            let result = tokio::select! {
                biased;
                result = AssertUnwindSafe(work).catch_unwind() => result.unwrap_or_else(|_| {
                    kind.count("panicked");
                    tracing::error!("job panicked");
                    Err(ConnectionsError::Panicked)
                }),
                error = self.renew_lease(kind, claim) => Err(error),
            };
            match result {
                Ok(value) => {
                    kind.count("done");
                    Ok(value)
                }
                Err(error) => Err(self.record_failure(kind, claim, error).await),
            }
        };
        run.instrument(span).await
    }

    /// Delays a claimed job whose process was killed twice or more, as a failed one: it may be the
    /// reason. Returns whether it did. The first time, it runs at once, so that a restart of the
    /// service costs nothing.
    pub(crate) async fn defers_interrupted(
        &self,
        kind: &JobKind,
        claim: &ClaimedJob,
    ) -> Result<bool, StorageError> {
        if !claim.was_interrupted || claim.attempts < 2 {
            return Ok(false);
        }
        let retry_at = self.clock.now().plus(schedule::backoff(
            claim.attempts,
            INTERRUPTED,
            jitter::random(),
        ));
        self.storage.jobs().defer(claim, retry_at).await?;
        let connection_id = kind
            .has_connection
            .then(|| claim.subject_id::<ConnectionId>().to_string());
        let attempts = claim.attempts;
        tracing::warn!(kind = kind.name, connection_id, attempts, %retry_at, "job was interrupted again, delayed");
        Ok(true)
    }

    async fn record_failure(
        &self,
        kind: &JobKind,
        claim: &ClaimedJob,
        error: ConnectionsError,
    ) -> FailedRun {
        let retry_at = match error.failure() {
            None => Ok(None),
            Some(failure) => {
                let delay =
                    schedule::backoff(claim.attempts.saturating_add(1), failure, jitter::random());
                let retry_at = self.clock.now().plus(delay);
                let failed = match &error {
                    // Refused at its first call. It did not fail.
                    ConnectionsError::Provider(Error::BudgetUsedUp { .. }) => {
                        self.storage.jobs().defer(claim, retry_at).await
                    }
                    _ => {
                        self.storage
                            .jobs()
                            .fail(claim, &error.last_error(), retry_at)
                            .await
                    }
                };
                failed.map(|held| held.then_some(retry_at))
            }
        };
        match retry_at {
            Ok(Some(retry_at)) => {
                kind.count("failed");
                tracing::warn!(%retry_at, %error, "could not run job");
                FailedRun {
                    error,
                    retry_at: Some(retry_at),
                }
            }
            // The lease was lost, or ends soon: the job runs again.
            Ok(None) => {
                kind.count("interrupted");
                tracing::info!(%error, "job interrupted");
                FailedRun {
                    error,
                    retry_at: None,
                }
            }
            Err(unavailable) => {
                kind.count("interrupted");
                tracing::warn!(%error, "job interrupted");
                FailedRun {
                    error: unavailable.into(),
                    retry_at: None,
                }
            }
        }
    }

    /// Renews the lease of a running job. Returns only when the lease is lost or cannot be renewed
    /// in time.
    async fn renew_lease(&self, kind: &JobKind, claim: &ClaimedJob) -> ConnectionsError {
        let interval = kind.lease / 4;
        let mut renewed_at = Instant::now();
        loop {
            tokio::time::sleep(interval).await;
            let (_, lease) = self.lease(kind.lease);
            match self.storage.jobs().renew(claim, lease).await {
                Ok(true) => renewed_at = Instant::now(),
                Ok(false) => {
                    // The run itself may have finished and released the lease a moment ago.
                    tokio::time::sleep(FINISH_GRACE).await;
                    return ConnectionsError::Busy;
                }
                Err(_) if renewed_at.elapsed() + interval < kind.lease => {}
                Err(error) => return error.into(),
            }
        }
    }

    /// The places of a lane, for which jobs and requests wait in the order in which they came.
    pub(crate) fn places(&self, kind: &JobKind, provider: &str) -> Arc<Semaphore> {
        self.lanes
            .places(kind.name, provider, (kind.concurrency_max)(self, provider))
    }

    /// Wakes the lane of this process.
    pub(crate) fn wake(&self, kind: &JobKind, provider: &str) {
        self.lanes.wake(kind.name, provider);
    }

    /// Claims a job now. None if another task runs it, or if there is none.
    pub(crate) async fn claim(
        &self,
        kind: &JobKind,
        key: &JobKey,
    ) -> Result<Option<ClaimedJob>, ConnectionsError> {
        let (now, lease) = self.lease(kind.lease);
        Ok(self.storage.jobs().claim(key, now, lease).await?)
    }

    /// Finishes a job after a success. Fails with [`ConnectionsError::Busy`] if the lease was lost.
    pub(crate) async fn finish_job(
        &self,
        claim: &ClaimedJob,
        next: Option<Timestamp>,
    ) -> Result<(), ConnectionsError> {
        require_lease(self.storage.jobs().finish(claim, next).await?)
    }
}

/// What a write of a claim holder returned, as an error if the lease was lost.
pub(crate) fn require_lease(held: bool) -> Result<(), ConnectionsError> {
    if held {
        Ok(())
    } else {
        Err(ConnectionsError::Busy)
    }
}

/// Repeats `claim` until it returns a value. None after the deadline.
pub(crate) async fn claim_or_wait<T, F>(
    deadline: Instant,
    claim: impl Fn() -> F,
) -> Result<Option<T>, ConnectionsError>
where
    F: Future<Output = Result<Option<T>, ConnectionsError>>,
{
    loop {
        let claimed = claim().await?;
        if claimed.is_some() || Instant::now() >= deadline {
            return Ok(claimed);
        }
        tokio::time::sleep(CLAIM_INTERVAL).await;
    }
}
