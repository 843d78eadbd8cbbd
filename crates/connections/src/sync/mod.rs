//! Syncs a connection: refreshes it, reads its rows (transactions or trades) of a date range, and writes webhook events
//! for the new and changed ones.
//!
//! A sync is a job on the connection's row, and all instances together run one sync of a connection at a time.
//! Fingerprints, events and deliveries of a sync commit in one transaction at its end. So an interrupted sync is simply
//! repeated: no change is missed, and none is reported twice.

mod changes;
mod date_range;
mod pull;

use std::time::Duration;

use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, SyncRunId, UserId};
use bellbird_storage::{ClaimedSync, FinishedSync, NewWebhookEvent, StorageError};
use bellbird_webhooks::digest::RowHasher;
use bellbird_webhooks::webhook_events::PreparedWebhookEvent;
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use date_range::SyncSettings;

use crate::schedule::{self, Failure};
use crate::{Connections, ConnectionsError, run_claims};
use pull::{Pull, Pulled};

/// For the provider calls of one sync.
const SYNC_DEADLINE: Duration = Duration::from_secs(600);
/// A running sync renews its lease every [`LEASE_RENEW_INTERVAL`].
const LEASE: Duration = Duration::from_secs(60);
const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(15);
/// Syncs that one instance runs at the same time.
const CONCURRENCY_MAX: usize = 4;
/// How often due syncs are claimed without a signal.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How long a sync may still return its result after its lease is gone.
const FINISH_GRACE: Duration = Duration::from_secs(2);
/// Delay before the next sync of a connection that was linked recently and has no rows yet.
const EMPTY_FIRST_SYNC_RETRY: Duration = Duration::from_secs(600);
/// Backfill window of rows: for this long after linking, every sync reads the range of the first one, and a sync
/// without any row does not count as the first. Accounts have a shorter one, [`schedule::BACKFILL_SECONDS`].
///
/// With `announce_first` off, only the first sync reads that range, because a second one would report its late rows.
const ROWS_BACKFILL_WINDOW: SignedDuration = SignedDuration::from_hours(1);
/// How often a caller tries to claim a sync that another process is running.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long a caller waits for that process: longer than [`SYNC_DEADLINE`].
const WAIT_MAX: Duration = Duration::from_secs(660);

/// Counts syncs. Label: `outcome`.
pub const SYNCS_METRIC: &str = "bellbird_syncs_total";

/// The result of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncReport {
    pub connection_id: ConnectionId,
    pub run: SyncRunId,
    pub new_count: usize,
    pub updated_count: usize,
    /// Webhook events that were written: none if no endpoint of the user subscribes to them.
    pub events: usize,
    /// The connection's status after the sync. Rows are read only if it is active.
    pub status: ConnectionStatus,
}

impl Connections {
    /// Syncs one connection now. If another process is syncing it, waits for that sync, then syncs again.
    ///
    /// Fails with [`ConnectionsError::Busy`] if the other process takes too long, or if this one loses its lease. A
    /// failed sync is retried as a job, with a delay that grows with each failure.
    pub async fn sync(&self, user: UserId, id: ConnectionId) -> Result<SyncReport, ConnectionsError> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let (now, lease) = self.lease(LEASE);
            if let Some(claim) = self.storage.claim_sync(user, id, now, lease).await? {
                return self.run_sync(&claim).await;
            }
            if self.storage.find_connection(user, id).await?.is_none() {
                return Err(ConnectionsError::NotFound);
            }
            if Instant::now() >= deadline {
                return Err(ConnectionsError::Busy);
            }
            tokio::time::sleep(LEASE_POLL_INTERVAL).await;
        }
    }

    /// Runs due syncs, a few at a time, until `stop`. Then waits for the running ones.
    ///
    /// Every instance runs this. A slow sync does not delay the others.
    pub async fn run_due_syncs_until(&self, stop: CancellationToken) {
        let mut running = JoinSet::new();
        while !stop.is_cancelled() {
            let free = CONCURRENCY_MAX.saturating_sub(running.len());
            for claim in self.claim_due_syncs(free).await {
                let connections = self.clone();
                running.spawn(async move { connections.run_sync(&claim).await.is_ok() });
            }
            tokio::select! {
                () = stop.cancelled() => {}
                Some(_) = running.join_next() => {}
                () = self.job_signals.syncs.notified(), if running.len() < CONCURRENCY_MAX => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
        while running.join_next().await.is_some() {}
    }

    /// Runs every due sync, a few at a time, and returns when none is due.
    ///
    /// On a database error, the claimed jobs run again when their leases expire.
    pub async fn run_due_syncs(&self) -> Result<(), ConnectionsError> {
        loop {
            let claims = self.claim_due_syncs(CONCURRENCY_MAX).await;
            if claims.is_empty() {
                return Ok(());
            }
            run_claims(claims, |claim| {
                let connections = self.clone();
                async move {
                    match connections.run_sync(&claim).await {
                        Err(error @ ConnectionsError::Storage(StorageError::Unavailable(_))) => Err(error),
                        _ => Ok(()),
                    }
                }
            })
            .await?;
        }
    }

    /// Claims up to `limit` due syncs. A database error is logged and yields none.
    async fn claim_due_syncs(&self, limit: usize) -> Vec<ClaimedSync> {
        let (now, lease) = self.lease(LEASE);
        let limit = u32::try_from(limit).unwrap_or(0);
        if limit == 0 {
            return Vec::new();
        }
        self.storage.claim_due_syncs(now, lease, limit).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "could not claim sync jobs");
            Vec::new()
        })
    }

    /// Whether instances sync on a schedule and after provider events.
    #[must_use]
    pub fn is_sync_enabled(&self) -> bool {
        self.sync_settings.enabled
    }

    /// Runs a claimed sync while renewing its lease. Postpones the job if the sync fails.
    async fn run_sync(&self, claim: &ClaimedSync) -> Result<SyncReport, ConnectionsError> {
        let synced = tokio::select! {
            biased;
            synced = self.sync_once(claim) => synced,
            error = self.renew_lease(claim) => Err(error),
        };
        let id = claim.connection_id;
        match &synced {
            Ok(report) => {
                metrics::counter!(SYNCS_METRIC, "outcome" => "done").increment(1);
                let SyncReport { new_count, updated_count, events, status, .. } = report;
                tracing::info!(connection_id = %id, new_count, updated_count, events, %status, "connection synced");
            }
            // The lease expires, and the job runs again.
            Err(ConnectionsError::Storage(StorageError::Unavailable(_)) | ConnectionsError::Busy) => {
                metrics::counter!(SYNCS_METRIC, "outcome" => "interrupted").increment(1);
            }
            Err(error) => {
                metrics::counter!(SYNCS_METRIC, "outcome" => "failed").increment(1);
                let failures = claim.attempts.saturating_add(1);
                let failure = match error {
                    ConnectionsError::Provider(error) if error.is_transient() => {
                        Failure::Transient(error.retry_after())
                    }
                    error if error.is_transient() => Failure::Transient(None),
                    _ => Failure::Permanent,
                };
                let jitter = jitter(SyncRunId::new());
                let now = self.clock.now();
                let next = now.saturating_add(schedule::backoff(failures, failure, jitter)).unwrap_or(now);
                self.storage.postpone_sync(claim, next, &error.to_string()).await?;
                tracing::warn!(connection_id = %id, failures, retry_at = %next, %error, "could not sync connection");
            }
        }
        synced
    }

    /// Renews the lease of a running sync. Returns only when the lease is lost or cannot be renewed in time.
    async fn renew_lease(&self, claim: &ClaimedSync) -> ConnectionsError {
        let mut renewed_at = Instant::now();
        loop {
            tokio::time::sleep(LEASE_RENEW_INTERVAL).await;
            let (_, lease) = self.lease(LEASE);
            match self.storage.renew_sync(claim, lease).await {
                Ok(true) => renewed_at = Instant::now(),
                Ok(false) => {
                    // The sync itself may have finished and released the lease a moment ago.
                    tokio::time::sleep(FINISH_GRACE).await;
                    return ConnectionsError::Busy;
                }
                Err(_) if renewed_at.elapsed() + LEASE_RENEW_INTERVAL < LEASE => {}
                Err(error) => return error.into(),
            }
        }
    }

    async fn sync_once(&self, claim: &ClaimedSync) -> Result<SyncReport, ConnectionsError> {
        let (user, id) = (claim.user_id, claim.connection_id);
        let status = self.refresh_after_current(user, id).await?;
        let run = SyncRunId::new();
        let next = self.sync_settings.next_sync_at(self.clock.now(), jitter(run));
        let mut report = SyncReport { connection_id: id, run, new_count: 0, updated_count: 0, events: 0, status };
        if status != ConnectionStatus::Active {
            return self.finish_without_rows(claim, next, report).await;
        }
        let connection = self.storage.find_connection(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let now = self.clock.now();
        let rows_may_be_late = now.duration_since(connection.created_at) < ROWS_BACKFILL_WINDOW;
        // An earlier sync must not replace the scheduled first one, when all rows should be there.
        let first_sync_at = schedule::first_sync_at(connection.created_at);
        let next = if now < first_sync_at { first_sync_at.min(next) } else { next };
        // `None` makes this sync read the range of the first one.
        let synced_at = claim.synced_at.filter(|_| !(rows_may_be_late && self.sync_settings.announce_first));
        let from = self.sync_settings.range_start(now, synced_at, claim.covered_from);
        let date_range = (from, now);
        let mut pulled = match self.pull(claim, &connection, date_range).await {
            Err(ConnectionsError::ConsentInactive(_)) => {
                report.status = self.refresh_after_current(user, id).await?;
                return self.finish_without_rows(claim, next, report).await;
            }
            pulled => pulled?,
        };
        if rows_may_be_late && pulled.is_empty && claim.synced_at.is_none() {
            // Does not count as the first sync, because the rows have not appeared yet.
            let retry_at = now.saturating_add(EMPTY_FIRST_SYNC_RETRY).unwrap_or(next);
            return self.finish_without_rows(claim, retry_at.min(next), report).await;
        }
        (report.new_count, report.updated_count) = (pulled.new_count, pulled.updated_count);
        let prepared = self.event_buffer.prepare(pulled.event_type, run, now, &mut pulled.new, &mut pulled.updated);
        let events: Vec<NewWebhookEvent<'_>> = prepared.iter().map(PreparedWebhookEvent::to_store).collect();
        let finished = FinishedSync {
            run,
            started_at: now,
            covered_from: from,
            next_sync_at: next,
            fingerprints: pulled.fingerprints.as_deref(),
            event_type: pulled.event_type,
            first_attempt_at: self.event_buffer.first_attempt_at(now),
            events: &events,
        };
        self.event_buffer.hold_bodies(&prepared, now);
        let Some(written) = self.storage.finish_sync(claim, &finished).await? else {
            self.event_buffer.evict_bodies(&prepared);
            return Err(ConnectionsError::Busy);
        };
        report.events = usize::try_from(written).unwrap_or(usize::MAX);
        if written > 0 {
            self.event_buffer.wake();
        } else {
            self.event_buffer.evict_bodies(&prepared);
        }
        Ok(report)
    }

    async fn finish_without_rows(
        &self,
        claim: &ClaimedSync,
        next: Timestamp,
        report: SyncReport,
    ) -> Result<SyncReport, ConnectionsError> {
        let finished = self.storage.finish_sync_without_rows(claim, next).await?;
        if finished { Ok(report) } else { Err(ConnectionsError::Busy) }
    }

    async fn pull(
        &self,
        claim: &ClaimedSync,
        connection: &Connection,
        date_range: (Timestamp, Timestamp),
    ) -> Result<Pulled, ConnectionsError> {
        let (user, id) = (connection.user_id, connection.id);
        let key = self.storage.fingerprint_key(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let credentials = self.storage.find_credentials(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let zone = self.storage.find_zone(user).await?.ok_or(ConnectionsError::NotFound)?;
        let pull = Pull {
            provider: self.provider(&connection.provider)?.as_ref(),
            context: &self.call_context_within(SYNC_DEADLINE),
            credentials: &credentials,
            accounts: &self.storage.list_connection_accounts(user, id).await?,
            zone: &zone,
            hasher: &RowHasher::new(key.expose_secret().as_bytes()),
            known: &self.storage.list_fingerprints(user, id).await?,
            date_range,
            sequence: claim.sequence,
            announce: claim.synced_at.is_some() || self.sync_settings.announce_first,
        };
        Ok(pull.run().await?)
    }
}

/// Takes the jitter of a sync from the random bits of an id.
fn jitter(run: SyncRunId) -> u64 {
    run.uuid().as_u128() as u64
}
