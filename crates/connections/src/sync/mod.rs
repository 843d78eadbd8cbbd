//! Syncs a connection: refreshes it, reads its rows (transactions or trades) of a date range, and writes webhook events
//! for the new and changed ones.
//!
//! A sync is a job, and all instances together run one sync of a connection at a time.
//! A sync is one run, or several if it is too large for one. Fingerprints, events and deliveries of a run commit in one
//! transaction at its end. So an interrupted run is simply repeated: no change is missed, and none is reported twice.

mod changes;
mod date_range;
mod pull;

use std::time::Duration;

use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, SyncRunId, TimestampExt as _, UserId};
use bellbird_limits::jitter;
use bellbird_providers::UnreadableRow;
use bellbird_storage::{
    ClaimedJob, FinishedSync, JobKey, NewWebhookEvent, SyncProgress, SyncState, UnreadableRows, job_kinds,
};
use bellbird_webhooks::digest::RowHasher;
use bellbird_webhooks::webhook_events::{PreparedWebhookEvent, SyncRun};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

pub use date_range::SyncSettings;

use crate::jobs::{JobKind, claim_or_wait};
use crate::schedule::{self, Failure};
use crate::{Connections, ConnectionsError};
use date_range::{SyncHistory, SyncPlan};
use pull::{Pull, Pulled};

/// For the provider calls of one run. Longer than [`SyncSettings::run_time`], so that the page under way can be read.
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
    /// False if the sync was too large for one run.
    #[serde(skip)]
    pub is_complete: bool,
    /// Whether the rest is read at once. After a rate limit, the next run waits.
    #[serde(skip)]
    continues_at_once: bool,
}

impl SyncReport {
    fn empty(connection_id: ConnectionId, run: SyncRunId, status: ConnectionStatus) -> Self {
        let (is_complete, continues_at_once) = (true, false);
        Self { connection_id, run, new_count: 0, updated_count: 0, events: 0, status, is_complete, continues_at_once }
    }
}

impl Connections {
    /// Syncs one connection now. If another process is syncing it, waits for that sync, then syncs again. A sync that
    /// is too large for one run takes several. If the provider's rate limit ends a run, the rest is left to the job.
    ///
    /// Fails with [`ConnectionsError::Busy`] if the other process takes too long, or if this one loses its lease. A
    /// failed sync is retried as a job, with a delay that grows with each failure.
    pub async fn sync(&self, user: UserId, id: ConnectionId) -> Result<SyncReport, ConnectionsError> {
        let mut report = self.sync_one_run(user, id).await?;
        while report.continues_at_once {
            let SyncReport { new_count, updated_count, events, .. } = report;
            report = self.sync_one_run(user, id).await?;
            report.new_count += new_count;
            report.updated_count += updated_count;
            report.events += events;
        }
        Ok(report)
    }

    /// As [`Self::sync`], but does not continue a sync that is too large for one run.
    pub async fn sync_one_run(&self, user: UserId, id: ConnectionId) -> Result<SyncReport, ConnectionsError> {
        let key = JobKey::new(KIND.name, user, id);
        let claim = claim_or_wait(Instant::now() + WAIT_MAX, async || {
            let (now, lease) = self.lease(LEASE);
            let claim = self.storage.jobs().claim(&key, now, lease).await?;
            if claim.is_none() && self.storage.connections().find(user, id).await?.is_none() {
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
        let next = self.sync_settings.next_sync_at(self.clock.now(), jitter::random());
        let mut report = SyncReport::empty(id, run, status);
        if status != ConnectionStatus::Active {
            self.finish_job(claim, Some(next)).await?;
            return Ok(report);
        }
        let connection = self.storage.connections().find(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let last = self.storage.syncs().find(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let now = self.clock.now();
        let history = history(&connection, &last);
        let plan = self.sync_settings.plan(now, history, jitter::random());
        let (mut pulled, hasher) = match self.pull(&last, &connection, &plan, now).await {
            Err(ConnectionsError::ConsentInactive(_)) => {
                report.status = self.refresh_after_current(user, id).await?;
                self.finish_job(claim, Some(plan.next_sync_at)).await?;
                return Ok(report);
            }
            pulled => pulled?,
        };
        if let Some(retry_at) = plan.retry_if_empty_at.filter(|_| pulled.is_empty && pulled.unreadable.is_empty()) {
            self.finish_job(claim, Some(retry_at)).await?;
            return Ok(report);
        }
        (report.new_count, report.updated_count) = (pulled.new_count, pulled.updated_count);
        report.is_complete = pulled.unread.is_none();
        report.continues_at_once = !report.is_complete && pulled.wait.is_none();
        let sync_run = SyncRun { id: run, connection_id: id, event_type: pulled.event_type, started_at: now };
        let prepared = self.event_buffer.prepare(sync_run, &mut pulled.new, &mut pulled.updated, &hasher);
        let events: Vec<NewWebhookEvent<'_>> = prepared.iter().map(PreparedWebhookEvent::to_store).collect();
        let progress = self.progress(now, &last, history, &plan, &pulled);
        if let Some(UnreadableRows { count, reason, .. }) = &progress.unreadable {
            tracing::warn!(count, reason, "rows could not be read");
        }
        let finished = FinishedSync {
            run,
            started_at: now,
            date_range: (pulled.read_from, plan.to),
            progress: &progress,
            next_sync_at: self.next_run_at(now, &plan, &pulled),
            // The absence is read from a new date range only.
            absent_since: last.absent_since.filter(|_| !plan.continues),
            fingerprints: pulled.fingerprints.as_deref(),
            event_type: pulled.event_type,
            first_attempt_at: self.event_buffer.first_attempt_at(now),
            events: &events,
        };
        self.event_buffer.hold_bodies(&prepared, now);
        let Some(written) = self.storage.syncs().finish(claim, &finished).await? else {
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

    fn next_run_at(&self, now: Timestamp, plan: &SyncPlan, pulled: &Pulled) -> Timestamp {
        match (&pulled.unread, pulled.wait) {
            (None, _) => plan.next_sync_at,
            (Some(_), None) => now,
            (Some(_), Some(wait)) => {
                self.clock.now().plus(schedule::backoff(1, Failure::Transient(Some(wait)), jitter::random()))
            }
        }
    }

    async fn pull(
        &self,
        last: &SyncState,
        connection: &Connection,
        plan: &SyncPlan,
        now: Timestamp,
    ) -> Result<(Pulled, RowHasher), ConnectionsError> {
        let (user, id) = (connection.user_id, connection.id);
        let key = self.storage.syncs().fingerprint_key(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let credentials = self.storage.secrets().find_credentials(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let zone = self.storage.users().find_zone(user).await?.ok_or(ConnectionsError::NotFound)?;
        let hasher = RowHasher::new(key.expose_secret().as_bytes());
        let sequence = sequence(last, plan);
        let pull = Pull {
            provider: self.provider(&connection.provider)?.as_ref(),
            context: &self.call_context_within(SYNC_DEADLINE).past_unreadable_rows(),
            credentials: &credentials,
            accounts: &self.storage.accounts().list_listed(user, id).await?,
            zone: &zone,
            hasher: &hasher,
            known: &self.storage.syncs().list_fingerprints(user, id).await?,
            now,
            date_range: (plan.from, plan.to),
            prune_before: SyncSettings::prune_before(plan.kept_from),
            after_account: last.unread.as_ref().and_then(|unread| unread.after_account).filter(|_| plan.continues),
            stop_at: Instant::now() + self.sync_settings.run_time,
            sequence,
            announce: sequence > 1 || self.sync_settings.announce_first,
        };
        let pulled = pull.run().await?;
        Ok((pulled, hasher))
    }

    /// How far the syncs of the connection have come after this run.
    fn progress(
        &self,
        now: Timestamp,
        last: &SyncState,
        history: SyncHistory,
        plan: &SyncPlan,
        pulled: &Pulled,
    ) -> SyncProgress {
        let before = last.unreadable.as_ref().filter(|_| plan.continues);
        SyncProgress {
            synced_at: last.synced_at.filter(|_| plan.continues).unwrap_or(now),
            covered_from: plan.from,
            continues: plan.continues,
            newest_row_at: last.newest_row_at.max(pulled.newest_row_at),
            rows_backfill_began_at: self.sync_settings.backfill_after(now, history, pulled.newest_row_at),
            unread: pulled.unread.clone(),
            unreadable: add_unreadable(before, &pulled.unreadable, plan.from),
        }
    }
}

fn history(connection: &Connection, last: &SyncState) -> SyncHistory {
    SyncHistory {
        linked_at: connection.created_at,
        backfill_began_at: last.rows_backfill_began_at,
        synced_at: last.synced_at,
        covered_from: last.covered_from,
        newest_row_at: last.newest_row_at,
        unread_to: last.unread.as_ref().map(|unread| unread.to),
        unreadable_since: last.unreadable.as_ref().map(|rows| rows.since),
        missing_since: last.missing_since,
        absent_since: last.absent_since,
    }
}

/// The number of the sync among those of the connection. A run that continues a sync has its number.
fn sequence(last: &SyncState, plan: &SyncPlan) -> u32 {
    last.next_sequence.saturating_sub(u32::from(plan.continues))
}

/// Adds the unreadable rows of a run to those that the runs `before` it have met. A row without a time counts as one of
/// the start of the date range. Runs overlap by a day, whose unreadable rows count twice.
fn add_unreadable(before: Option<&UnreadableRows>, found: &[UnreadableRow], from: Timestamp) -> Option<UnreadableRows> {
    let oldest = found.iter().map(|row| (row.at.unwrap_or(from), row.reason)).min_by_key(|(at, _)| *at);
    let Some((since, reason)) = oldest else { return before.cloned() };
    let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
    let rows = UnreadableRows { count, reason: reason.as_str().to_owned(), since: start_of_day(since).max(from) };
    Some(match before {
        None => rows,
        Some(before) => UnreadableRows {
            count: before.count.saturating_add(count),
            ..if before.since < rows.since { before.clone() } else { rows }
        },
    })
}

/// Midnight UTC. The time of a row is not stored, its day is enough.
fn start_of_day(at: Timestamp) -> Timestamp {
    const DAY_SECONDS: i64 = 86_400;
    Timestamp::from_second(at.as_second().div_euclid(DAY_SECONDS) * DAY_SECONDS).unwrap_or(at)
}
