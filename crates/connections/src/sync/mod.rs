//! Syncs a connection: refreshes it, reads its rows (transactions or trades) of a date range, and writes webhook events
//! for the new and changed ones.
//!
//! A sync is a job, and all instances together run one sync of a connection at a time.
//! Fingerprints, events and deliveries of a sync commit in one transaction at its end. So an interrupted sync is simply
//! repeated: no change is missed, and none is reported twice.

mod changes;
mod date_range;
mod pull;

use std::time::Duration;

use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, SyncRunId, UserId};
use bellbird_storage::{ClaimedJob, FinishedSync, JobKey, NewWebhookEvent, SyncState, job_kinds};
use bellbird_webhooks::digest::RowHasher;
use bellbird_webhooks::webhook_events::PreparedWebhookEvent;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

pub use date_range::SyncSettings;

use crate::jobs::{JobKind, claim_or_wait, jitter};
use crate::{Connections, ConnectionsError};
use date_range::{SyncHistory, SyncPlan};
use pull::{Pull, Pulled};

/// For the provider calls of one sync.
const SYNC_DEADLINE: Duration = Duration::from_secs(600);
const LEASE: Duration = Duration::from_secs(60);
/// How long a caller waits for another process that is syncing the connection: longer than [`SYNC_DEADLINE`].
const WAIT_MAX: Duration = Duration::from_secs(660);

pub(crate) static KIND: JobKind = JobKind {
    name: job_kinds::SYNC,
    is_periodic: false,
    has_connection: true,
    lease: LEASE,
    concurrency_max: 4,
    is_enabled: |connections| connections.sync_settings.enabled,
    run: |connections, claim| Box::pin(async move { connections.sync_once(claim).await.map(|_| ()) }),
};

/// The result of a sync. Serialized as commands print it with `--json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncReport {
    pub connection_id: ConnectionId,
    #[serde(rename = "syncRunId")]
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
        let key = JobKey::new(KIND.name, user, id);
        let claim = claim_or_wait(Instant::now() + WAIT_MAX, async || {
            let (now, lease) = self.lease(LEASE);
            let claim = self.storage.claim_job(&key, now, lease).await?;
            if claim.is_none() && self.storage.find_connection(user, id).await?.is_none() {
                return Err(ConnectionsError::NotFound);
            }
            Ok(claim)
        });
        let claim = claim.await?.ok_or(ConnectionsError::Busy)?;
        self.run_claimed(&KIND, &claim, self.sync_once(&claim)).await.map_err(|failed| failed.error)
    }

    async fn sync_once(&self, claim: &ClaimedJob) -> Result<SyncReport, ConnectionsError> {
        let report = self.sync_claimed(claim).await?;
        let SyncReport { new_count, updated_count, events, status, .. } = report;
        tracing::info!(new_count, updated_count, events, %status, "connection synced");
        Ok(report)
    }

    async fn sync_claimed(&self, claim: &ClaimedJob) -> Result<SyncReport, ConnectionsError> {
        let (user, id) = (claim.user_id(), claim.subject_id());
        let status = self.refresh_after_current(user, id).await?;
        let run = SyncRunId::new();
        let next = self.sync_settings.next_sync_at(self.clock.now(), jitter());
        let mut report = SyncReport { connection_id: id, run, new_count: 0, updated_count: 0, events: 0, status };
        if status != ConnectionStatus::Active {
            self.finish_job(claim, Some(next)).await?;
            return Ok(report);
        }
        let connection = self.storage.find_connection(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let last = self.storage.find_sync(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let now = self.clock.now();
        let (synced_at, covered_from) = (last.synced_at, last.covered_from);
        let history = SyncHistory { linked_at: connection.created_at, synced_at, covered_from };
        let SyncPlan { from, next_sync_at, retry_if_empty_at } = self.sync_settings.plan(now, history, jitter());
        // An account that is listed again is read from its absence on. Until then its fingerprints are kept.
        let from_absence = |since: Option<Timestamp>| {
            since
                .map_or(from, |since| from.min(self.sync_settings.range_start_of_absence(since, connection.created_at)))
        };
        let (from, kept_from) = (from_absence(last.unread_since), from_absence(last.missing_since));
        let date_range = (from, now);
        let (mut pulled, hasher) = match self.pull(&last, &connection, date_range, kept_from.min(from)).await {
            Err(ConnectionsError::ConsentInactive(_)) => {
                report.status = self.refresh_after_current(user, id).await?;
                self.finish_job(claim, Some(next_sync_at)).await?;
                return Ok(report);
            }
            pulled => pulled?,
        };
        if let Some(retry_at) = retry_if_empty_at.filter(|_| pulled.is_empty) {
            self.finish_job(claim, Some(retry_at)).await?;
            return Ok(report);
        }
        (report.new_count, report.updated_count) = (pulled.new_count, pulled.updated_count);
        let (event_type, new, updated) = (pulled.event_type, &mut pulled.new, &mut pulled.updated);
        let prepared = self.event_buffer.prepare(event_type, run, now, new, updated, &hasher);
        let events: Vec<NewWebhookEvent<'_>> = prepared.iter().map(PreparedWebhookEvent::to_store).collect();
        let finished = FinishedSync {
            run,
            started_at: now,
            covered_from: from,
            unread_since: last.unread_since,
            next_sync_at,
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

    async fn pull(
        &self,
        last: &SyncState,
        connection: &Connection,
        date_range: (Timestamp, Timestamp),
        kept_from: Timestamp,
    ) -> Result<(Pulled, RowHasher), ConnectionsError> {
        let (user, id) = (connection.user_id, connection.id);
        let key = self.storage.fingerprint_key(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let credentials = self.storage.find_credentials(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let zone = self.storage.find_zone(user).await?.ok_or(ConnectionsError::NotFound)?;
        let hasher = RowHasher::new(key.expose_secret().as_bytes());
        let pull = Pull {
            provider: self.provider(&connection.provider)?.as_ref(),
            context: &self.call_context_within(SYNC_DEADLINE),
            credentials: &credentials,
            accounts: &self.storage.list_listed_accounts(user, id).await?,
            zone: &zone,
            hasher: &hasher,
            known: &self.storage.list_fingerprints(user, id).await?,
            date_range,
            prune_before: SyncSettings::prune_before(kept_from),
            sequence: last.next_sequence,
            announce: last.synced_at.is_some() || self.sync_settings.announce_first,
        };
        let pulled = pull.run().await?;
        Ok((pulled, hasher))
    }
}
