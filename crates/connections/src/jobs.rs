//! Runs jobs: claims what is due, renews leases, retries failures, and counts and logs the results.
//!
//! Each kind of job is a [`JobKind`] in a file of its own, listed in [`KINDS`]. Each kind and provider has a lane, with
//! its own limit of running jobs, so a slow provider never delays jobs of another provider or kind.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use bellbird_domain::ConnectionId;
use bellbird_providers::registry::PROVIDERS;
use bellbird_storage::{ClaimedJob, StorageError};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::{Connections, ConnectionsError, refresh, removal, schedule, sync};

/// Every kind of job.
pub(crate) static KINDS: [&JobKind; 3] = [&refresh::KIND, &sync::KIND, &removal::KIND];

/// How often a lane with free capacity claims without a signal, before jitter. It costs one indexed read.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How long a run may still return its result after its lease is gone.
const FINISH_GRACE: Duration = Duration::from_secs(2);
/// How often a caller tries to claim a job that another task is running.
const CLAIM_INTERVAL: Duration = Duration::from_millis(250);

/// Counts runs of jobs. Labels: `kind` and `outcome`.
pub const JOB_RUNS_METRIC: &str = "bellbird_job_runs_total";

pub(crate) type Work<'a> = Pin<Box<dyn Future<Output = Result<(), ConnectionsError>> + Send + 'a>>;

/// A kind of job.
pub(crate) struct JobKind {
    /// The word in the database, in logs and in metrics.
    pub(crate) name: &'static str,
    /// Whether jobs belong to a provider. Otherwise there is one lane for all.
    pub(crate) has_provider: bool,
    /// Whether the subject is a connection.
    pub(crate) has_connection: bool,
    /// How long a job of a killed process waits. A quarter of it is the time between renewals.
    pub(crate) lease: Duration,
    /// Jobs of one provider that one instance runs at the same time.
    pub(crate) concurrency_max: usize,
    pub(crate) is_enabled: fn(&Connections) -> bool,
    /// Does the work. The last write of a success finishes or deletes the job: [`Connections::finish_job`], or a
    /// statement of the storage that checks the claim in its transaction. An error is retried, with backoff.
    pub(crate) run: for<'a> fn(&'a Connections, &'a ClaimedJob) -> Work<'a>,
}

impl JobKind {
    fn lanes(&self) -> Vec<&'static str> {
        if self.has_provider { PROVIDERS.iter().map(|provider| provider.name.as_str()).collect() } else { vec![""] }
    }

    fn count(&self, outcome: &'static str) {
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

/// Wakes the lanes of this process before their next poll.
pub(crate) struct Signals(HashMap<(&'static str, &'static str), Notify>);

impl Default for Signals {
    fn default() -> Self {
        let lanes = KINDS.iter().flat_map(|kind| kind.lanes().into_iter().map(|lane| (kind.name, lane)));
        Self(lanes.map(|lane| (lane, Notify::new())).collect())
    }
}

/// The names of all kinds of jobs.
pub fn job_kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

impl Connections {
    /// Runs due jobs of all kinds until `stop`. Then waits for the running ones.
    ///
    /// Every instance runs this.
    pub async fn run_jobs(&self, stop: CancellationToken) {
        let mut lanes = JoinSet::new();
        for kind in KINDS.iter().copied().filter(|kind| (kind.is_enabled)(self)) {
            for lane in kind.lanes() {
                let (connections, stop) = (self.clone(), stop.clone());
                lanes.spawn(async move { connections.run_lane(kind, lane, stop).await });
            }
        }
        while lanes.join_next().await.is_some() {}
    }

    async fn run_lane(&self, kind: &'static JobKind, provider: &'static str, stop: CancellationToken) {
        let mut running = JoinSet::new();
        while !stop.is_cancelled() {
            if let Err(error) = self.start_due(kind, provider, &mut running).await {
                tracing::warn!(kind = kind.name, provider, %error, "could not claim job");
            }
            let has_room = running.len() < kind.concurrency_max;
            tokio::select! {
                () = stop.cancelled() => {}
                Some(ended) = running.join_next() => report_panic(kind, ended.as_ref().err()),
                () = self.requested(kind, provider), if has_room => {}
                () = tokio::time::sleep(poll_interval()), if has_room => {}
            }
        }
        while let Some(ended) = running.join_next().await {
            report_panic(kind, ended.as_ref().err());
        }
    }

    /// Runs every due job of a kind, and returns when none is due.
    ///
    /// On a database error, the claimed jobs run again when their leases end.
    pub async fn run_due_jobs(&self, kind: &str) -> Result<(), ConnectionsError> {
        for kind in KINDS.iter().copied().filter(|known| known.name == kind) {
            for provider in kind.lanes() {
                loop {
                    let mut running = JoinSet::new();
                    self.start_due(kind, provider, &mut running).await?;
                    if running.is_empty() {
                        break;
                    }
                    while let Some(ended) = running.join_next().await {
                        report_panic(kind, ended.as_ref().err());
                        if let Ok(Err(error @ ConnectionsError::Storage(StorageError::Unavailable(_)))) = ended {
                            return Err(error);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Claims due jobs until the limit is reached or none is due, and starts each in a task.
    async fn start_due(
        &self,
        kind: &'static JobKind,
        provider: &str,
        running: &mut JoinSet<Result<(), ConnectionsError>>,
    ) -> Result<(), StorageError> {
        while running.len() < kind.concurrency_max {
            let (now, lease) = self.lease(kind.lease);
            let Some(claim) = self.storage.claim_due_job(kind.name, provider, now, lease).await? else { break };
            let connections = self.clone();
            running.spawn(async move {
                let work = (kind.run)(&connections, &claim);
                connections.run_claimed(kind, &claim, work).await.map_err(|failed| failed.error)
            });
        }
        Ok(())
    }

    /// Runs a claimed job while renewing its lease. If it fails, plans the next attempt.
    pub(crate) async fn run_claimed<T>(
        &self,
        kind: &JobKind,
        claim: &ClaimedJob,
        work: impl Future<Output = Result<T, ConnectionsError>>,
    ) -> Result<T, FailedRun> {
        let attempt = claim.attempts.saturating_add(1);
        let span = tracing::info_span!(
            "job",
            kind = kind.name,
            job_id = claim.run_id(),
            connection_id = kind.has_connection.then(|| claim.subject_id::<ConnectionId>().to_string()),
            attempt
        );
        let run = async {
            let result = tokio::select! {
                biased;
                result = work => result,
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

    async fn record_failure(&self, kind: &JobKind, claim: &ClaimedJob, error: ConnectionsError) -> FailedRun {
        let retry_at = match error.failure() {
            None => Ok(None),
            Some(failure) => {
                let now = self.clock.now();
                let delay = schedule::backoff(claim.attempts.saturating_add(1), failure, jitter());
                let retry_at = now.saturating_add(delay).unwrap_or(now);
                let failed = self.storage.fail_job(claim, &error.last_error(), retry_at).await;
                failed.map(|held| held.then_some(retry_at))
            }
        };
        match retry_at {
            Ok(Some(retry_at)) => {
                kind.count("failed");
                tracing::warn!(%retry_at, %error, "could not run job");
                FailedRun { error, retry_at: Some(retry_at) }
            }
            // The lease was lost, or ends soon: the job runs again.
            Ok(None) => {
                kind.count("interrupted");
                tracing::info!(%error, "job interrupted");
                FailedRun { error, retry_at: None }
            }
            Err(unavailable) => {
                kind.count("interrupted");
                tracing::warn!(%error, "job interrupted");
                FailedRun { error: unavailable.into(), retry_at: None }
            }
        }
    }

    /// Renews the lease of a running job. Returns only when the lease is lost or cannot be renewed in time.
    async fn renew_lease(&self, kind: &JobKind, claim: &ClaimedJob) -> ConnectionsError {
        let interval = kind.lease / 4;
        let mut renewed_at = Instant::now();
        loop {
            tokio::time::sleep(interval).await;
            let (_, lease) = self.lease(kind.lease);
            match self.storage.renew_job(claim, lease).await {
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

    /// Finishes a job after a success. Fails with [`ConnectionsError::Busy`] if the lease was lost.
    pub(crate) async fn finish_job(&self, claim: &ClaimedJob, next: Option<Timestamp>) -> Result<(), ConnectionsError> {
        require_lease(self.storage.finish_job(claim, next).await?)
    }

    /// Wakes the lane of this process.
    pub(crate) fn wake(&self, kind: &JobKind, provider: &str) {
        if let Some(signal) = self.signals.0.get(&(kind.name, provider)) {
            signal.notify_one();
        }
    }

    async fn requested(&self, kind: &JobKind, provider: &str) {
        match self.signals.0.get(&(kind.name, provider)) {
            Some(signal) => signal.notified().await,
            None => std::future::pending().await,
        }
    }
}

/// What a write of a claim holder returned, as an error if the lease was lost.
pub(crate) fn require_lease(held: bool) -> Result<(), ConnectionsError> {
    if held { Ok(()) } else { Err(ConnectionsError::Busy) }
}

/// Repeats `claim` until it returns a value. None after the deadline.
pub(crate) async fn claim_or_wait<T, F>(deadline: Instant, claim: impl Fn() -> F) -> Result<Option<T>, ConnectionsError>
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

/// A random number, so that jobs planned together do not run together.
pub(crate) fn jitter() -> u64 {
    Uuid::new_v4().as_u64_pair().1
}

/// Between 80 and 100 % of [`POLL_INTERVAL`].
fn poll_interval() -> Duration {
    POLL_INTERVAL * 4 / 5 + POLL_INTERVAL / 5 * u32::try_from(jitter() % 1_001).unwrap_or_default() / 1_000
}

/// After a panic, the lease ends and the job runs again.
fn report_panic(kind: &JobKind, ended: Option<&JoinError>) {
    if ended.is_some_and(JoinError::is_panic) {
        kind.count("panicked");
        tracing::error!(kind = kind.name, "job panicked");
    }
}
