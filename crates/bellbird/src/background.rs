//! Background work of a running service: jobs, webhook deliveries, e-mails, queue metrics, backups,
//! and evicting removed connections.
//!
//! Every instance with the role of a worker runs them; leases in the database keep two instances
//! from working on the same job.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bellbird_domain::{ConnectionId, ConnectionStatus, TimestampExt as _};
use bellbird_storage::{
    ClaimedJob, ConnectionCount, DeliveryOverview, JobCounts, JobKey, LastFailure, Storage,
    StorageError,
};
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::instances;
use crate::roles::{Role, Roles};
use crate::telemetry::to_f64;
use crate::wiring::Parts;

/// How often removed connections are listed, which costs one indexed read, and caches are purged.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How long running jobs may continue after a stop. A job that is cut off is free again when this
/// instance ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// How long tasks that outlive their request may continue after a stop: longer than the exchange of
/// a code and the writes after it.
pub const TASK_GRACE: Duration = Duration::from_secs(15);
/// Instances have different clocks. Each read of removals starts this much earlier, to find rows
/// that a slower clock wrote.
const CLOCK_SKEW_MAX: SignedDuration = SignedDuration::from_secs(120);

/// How often the counts of keys' requests are written.
const KEY_READS_INTERVAL: Duration = Duration::from_secs(60);
/// How often the service looks whether a backup is due. One that failed is due still.
const BACKUP_INTERVAL: Duration = Duration::from_secs(3_600);
/// How often the queue metrics are updated.
const METRICS_INTERVAL: Duration = Duration::from_secs(15);

/// Counting reads whole tables, so it pauses for this many times its own length: it takes at most
/// 1/200 of the time.
const COUNT_PAUSE: u32 = 200;

/// Names the lease of the instance that updates the queue metrics.
const METRICS_LEASE: &str = "queue_metrics";
const METRICS_LEASE_LENGTH: SignedDuration = SignedDuration::from_secs(60);

/// Starts the background work, which runs until `stop`.
pub fn start(parts: Parts, roles: &Roles, stop: CancellationToken) -> JoinHandle<()> {
    let is_worker = roles.has(Role::Worker);
    tokio::spawn(async move {
        let work = async {
            if is_worker {
                tokio::join!(
                    parts.connections.jobs().run(stop.clone()),
                    parts.webhooks.deliver(stop.clone()),
                    record_queue_metrics(&parts, &stop),
                    send_emails(&parts, &stop),
                    back_up_daily(&parts, &stop),
                );
            }
        };
        let jobs = async {
            tokio::join!(
                work,
                evict_removed(&parts, &stop),
                purge_regularly(&parts, &stop),
                write_key_reads(&parts, &stop),
                parts.provider_loader.follow(&stop),
            )
        };
        let grace_period = async {
            stop.cancelled().await;
            tokio::time::sleep(SHUTDOWN_GRACE).await;
        };
        tokio::select! {
            _ = jobs => {}
            () = grace_period => tracing::warn!("running jobs cut off by shutdown; they are retried within minutes"),
        }
    })
}

/// Waits, and returns false at the stop.
async fn pause(length: Duration, stop: &CancellationToken) -> bool {
    let slept = stop.run_until_cancelled(tokio::time::sleep(length)).await;
    slept.is_some()
}

/// Updates the queue metrics while this instance holds their lease: summed over all instances, each
/// job counts once. What cannot be counted vanishes from the metrics (`telemetry::start_metrics`),
/// before another instance counts.
async fn record_queue_metrics(parts: &Parts, stop: &CancellationToken) {
    let (storage, clock) = (&parts.storage, &parts.clock);
    let (mut lease, mut counts, mut count_pause) = (None, None, CountPause::over());
    let mut failure = LastFailure::default();
    let (mut counts_failure, mut small_failure) = (LastFailure::default(), LastFailure::default());
    loop {
        let held = hold_metrics_lease(storage, clock.now(), lease.as_ref()).await;
        if let Some(error) = failure.news(&held) {
            tracing::warn!(error, "could not renew the lease of the queue metrics");
        }
        match held {
            Ok(held) => lease = held,
            Err(_) => (counts, count_pause) = (None, CountPause::over()),
        }
        if lease.is_some() {
            let read = QueueCounts::read(storage, clock.now());
            if let Some(read) = count_pause.unless_running(read).await {
                counts = noted(read, &mut counts_failure);
            }
            // Set each time, because what is not set vanishes.
            if let Some(counts) = &counts {
                counts.record(clock.now());
                let recorded = record_small_metrics(storage, clock.now()).await;
                noted(recorded, &mut small_failure);
            }
        }
        if !pause(METRICS_INTERVAL, stop).await {
            break;
        }
    }
    if let Some(lease) = lease
        && let Err(error) = storage.jobs().finish(&lease, None).await
    {
        tracing::warn!(%error, "could not release the lease of the queue metrics");
    }
}

/// The pause after a count, which lasts until this time.
struct CountPause(Instant);

impl CountPause {
    fn over() -> Self {
        Self(Instant::now())
    }

    /// Counts, and begins the next pause. None during a pause.
    async fn unless_running<T>(&mut self, count: impl Future<Output = T>) -> Option<T> {
        let begun = Instant::now();
        if begun < self.0 {
            return None;
        }
        let counted = count.await;
        self.0 = Instant::now() + begun.elapsed() * COUNT_PAUSE;
        Some(counted)
    }
}

/// Renews or claims the lease. None if another instance holds it.
async fn hold_metrics_lease(
    storage: &Storage,
    now: Timestamp,
    held: Option<&ClaimedJob>,
) -> Result<Option<ClaimedJob>, StorageError> {
    let until = now.plus(METRICS_LEASE_LENGTH);
    if let Some(lease) = held
        && storage.jobs().renew(lease, until).await?
    {
        return Ok(Some(lease.clone()));
    }
    let key = JobKey::of_service(METRICS_LEASE);
    storage.jobs().insert(&key, "", now).await?;
    storage.jobs().claim(&key, now, until).await
}

fn noted<T>(counted: Result<T, StorageError>, failure: &mut LastFailure) -> Option<T> {
    if let Some(error) = failure.news(&counted) {
        tracing::warn!(error, "could not collect queue metrics");
    }
    counted.ok()
}

/// What takes longer the more there is.
struct QueueCounts {
    connections: Vec<ConnectionCount>,
    ending: BTreeMap<String, u64>,
    jobs: Vec<JobCounts>,
    deliveries: DeliveryOverview,
}

impl QueueCounts {
    async fn read(storage: &Storage, now: Timestamp) -> Result<Self, StorageError> {
        Ok(Self {
            connections: storage.connections().count().await?,
            ending: storage.connections().count_ending(now).await?,
            jobs: storage.jobs().count(now).await?,
            deliveries: storage.deliveries().overview(now).await?,
        })
    }

    fn record(&self, now: Timestamp) {
        set_connection_metrics(&self.connections, &self.ending);
        set_queue_metrics(&self.jobs, &self.deliveries, now);
    }
}

async fn record_small_metrics(storage: &Storage, now: Timestamp) -> Result<(), StorageError> {
    metrics::gauge!("bellbird_instances")
        .set(to_f64(instances::running(storage).await?.len() as u64));
    if let Some(last) = storage.audit().unsaved_since(now).await? {
        metrics::gauge!("bellbird_backup_age_seconds").set(seconds_since(last, now));
    }
    Ok(())
}

/// Sets each status of each provider, so that one without connections falls to 0.
fn set_connection_metrics(counts: &[ConnectionCount], ending: &BTreeMap<String, u64>) {
    for provider in bellbird_connections::provider_names() {
        for status in ConnectionStatus::ALL {
            let counted = counts
                .iter()
                .find(|counted| counted.provider == provider && counted.status == *status);
            metrics::gauge!("bellbird_connections", "provider" => provider, "status" => status.as_str())
                .set(to_f64(counted.map_or(0, |counted| counted.count)));
        }
        let ending = ending.get(provider).copied().unwrap_or(0);
        metrics::gauge!("bellbird_consents_ending", "provider" => provider).set(to_f64(ending));
    }
}

fn set_queue_metrics(jobs: &[JobCounts], deliveries: &DeliveryOverview, now: Timestamp) {
    for kind in bellbird_connections::job_kinds() {
        let (due, running, failing) = jobs
            .iter()
            .find(|counts| counts.kind == kind)
            .map_or((0, 0, 0), |counts| {
                (counts.due, counts.running, counts.failing)
            });
        for (state, count) in [("due", due), ("running", running), ("failing", failing)] {
            metrics::gauge!("bellbird_jobs", "kind" => kind, "state" => state).set(to_f64(count));
        }
    }
    for (name, state, count) in [
        ("bellbird_webhook_deliveries", "due", deliveries.due),
        ("bellbird_webhook_deliveries", "pending", deliveries.pending),
        ("bellbird_webhook_deliveries", "waiting", deliveries.waiting),
        ("bellbird_webhook_endpoints", "failing", deliveries.failing),
        (
            "bellbird_webhook_endpoints",
            "disabled",
            deliveries.disabled,
        ),
    ] {
        metrics::gauge!(name, "state" => state).set(to_f64(count));
    }
    let late = deliveries.oldest_due.map(|due| seconds_since(due, now));
    metrics::gauge!("bellbird_webhook_lateness_seconds").set(late.unwrap_or_default());
}

/// 0 for a time to come.
fn seconds_since(time: Timestamp, now: Timestamp) -> f64 {
    let seconds = now.duration_since(time).as_secs();
    to_f64(seconds.try_into().unwrap_or_default())
}

/// Also at the stop, so that a restart loses few counts.
async fn write_key_reads(parts: &Parts, stop: &CancellationToken) {
    let mut failure = LastFailure::default();
    loop {
        let is_stopped = !pause(KEY_READS_INTERVAL, stop).await;
        let written = parts.api.context().write_key_reads().await;
        if let Some(error) = failure.news(&written) {
            tracing::warn!(error, "could not write how often keys were used");
        }
        if is_stopped {
            return;
        }
    }
}

async fn send_emails(parts: &Parts, stop: &CancellationToken) {
    if let Some(mailer) = &parts.mailer {
        mailer.run(&parts.storage, &parts.clock, stop).await;
    }
}

/// Makes a backup each day. A stop cancels the one that is being made, whose file is deleted.
async fn back_up_daily(parts: &Parts, stop: &CancellationToken) {
    let Some(folder) = &parts.backups else { return };
    let mut failure = LastFailure::default();
    loop {
        let (folder, storage, now) = (folder.clone(), parts.storage.clone(), parts.clock.now());
        let (stopped, runtime) = (stop.clone(), Handle::current());
        // Not on a thread that serves requests, because it waits for the disk.
        let backup = tokio::task::spawn_blocking(move || {
            let backup = folder.back_up_if_due(&storage, now);
            runtime.block_on(stopped.run_until_cancelled(backup))
        });
        match backup.await {
            Ok(Some(made)) => {
                if let Some(error) = failure.news(&made) {
                    tracing::warn!(error, "could not back up the database");
                }
                if let Ok(Some(made)) = made {
                    let (file, deleted) = (made.file.display(), made.deleted.len());
                    let bytes = made.contents.bytes;
                    tracing::info!(%file, bytes, deleted, "database backed up");
                }
            }
            Ok(None) => return,
            // The next one may succeed. The panic itself is in the log already.
            Err(_) => tracing::error!("backup task panicked"),
        }
        if !pause(BACKUP_INTERVAL, stop).await {
            return;
        }
    }
}

/// An unused cache keeps what has expired.
async fn purge_regularly(parts: &Parts, stop: &CancellationToken) {
    while pause(POLL_INTERVAL, stop).await {
        parts.purge_expired();
    }
}

/// Evicts, within seconds, each connection that any process hid or deleted.
async fn evict_removed(parts: &Parts, stop: &CancellationToken) {
    // This process caches nothing about connections that were hidden before it started.
    let mut since = parts.clock.now();
    let mut evicted: HashSet<ConnectionId> = HashSet::new();
    let mut failure = LastFailure::default();
    while pause(POLL_INTERVAL, stop).await {
        let (now, removals) = (parts.clock.now(), parts.connections.removals());
        let listed = removals.list_since(since.minus(CLOCK_SKEW_MAX)).await;
        if let Some(error) = failure.news(&listed) {
            tracing::warn!(error, "could not list removed connections");
        }
        let Ok(all) = listed else { continue };
        for (user, connection) in &all {
            if !evicted.contains(connection) {
                parts.evict_connection(*user, *connection);
                tokio::task::yield_now().await;
            }
        }
        // The next read overlaps by CLOCK_SKEW_MAX and returns these again.
        evicted = all.into_iter().map(|(_, connection)| connection).collect();
        since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn counts_take_a_two_hundredth_of_the_time_at_most() {
        let (begun, mut pause) = (Instant::now(), CountPause::over());
        let (took, mut counts) = (Duration::from_secs(2), 0);
        while begun.elapsed() < Duration::from_secs(3_600) {
            let count = tokio::time::sleep(took);
            counts += u32::from(pause.unless_running(count).await.is_some());
            tokio::time::sleep(METRICS_INTERVAL).await;
        }
        // Each takes two seconds, and 400 follow.
        assert!((8..=9).contains(&counts), "{counts}");
    }
}
