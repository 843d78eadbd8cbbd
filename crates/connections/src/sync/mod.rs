//! Syncs a connection: refreshes it, reads its rows (transactions or trades) of a date range, and
//! writes webhook events for the new and changed ones.
//!
//! A sync is a job, and all instances together run one sync of a connection at a time. It is one
//! run, or several if it is too large for one.
//!
//! A run loads what is known of the connection's syncs ([`SyncState`]), plans from that what to
//! read (`plan.rs`, `times.rs`), reads it (`pull.rs`), finds what is new or changed (`changes`),
//! and says what is known afterwards (`next_state.rs`). That state, the fingerprints, events and
//! deliveries commit in one transaction at its end. So an interrupted run is simply repeated: no
//! change is missed, and none is reported twice.

pub(crate) mod changes;
#[cfg(test)]
mod fixtures;
pub mod following;
mod next_state;
mod plan;
mod pull;
mod scheduled;
mod times;

use std::time::Duration;

use bellbird_domain::{
    Connection, ConnectionId, ConnectionStatus, SyncRunId, TimestampExt as _, UserId,
};
use bellbird_limits::jitter;
use bellbird_providers::Cause;
use bellbird_storage::{ClaimedJob, FinishedSync, JobKey, SyncState, UnreadableRows, job_kinds};
use bellbird_webhooks::event::buffer::{self, SyncRun};
use bellbird_webhooks::event::digest::RowHasher;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::ConnectionsError;
use crate::jobs::{JobKind, claim_or_wait};
use crate::refresh::Refreshes;
use crate::schedule::{self, Failure};
use crate::state::part;
use crate::sync_settings::SyncSettings;
use plan::SyncPlan;
use pull::{Pull, Pulled};

/// For the provider calls of one run. Longer than [`SyncSettings::run_time`], so that the page
/// being read can be finished.
const SYNC_DEADLINE: Duration = Duration::from_secs(600);
const LEASE: Duration = Duration::from_secs(60);
/// After a longer read, the time of its end is stored, as reads of users store it at most once a
/// minute. The refresh before it has stored that of its beginning.
const LONG_READ: Duration = Duration::from_secs(60);
/// How long a caller waits for another process that is syncing the connection: longer than
/// [`SYNC_DEADLINE`].
const WAIT_MAX: Duration = Duration::from_secs(660);

pub use changes::DuplicateIds;

pub(crate) static KIND: JobKind = JobKind {
    has_connection: true,
    concurrency_max: |state, provider| state.syncs_of(provider).at_once,
    is_enabled: |state| state.sync_settings.enabled,
    yields_when_limited: true,
    ..JobKind::new(job_kinds::SYNC, LEASE, |state, claim| {
        Box::pin(async move { Syncs(state).run_scheduled(claim).await })
    })
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
    /// Webhook events that will be sent: none if no enabled endpoint of the user subscribes to
    /// them.
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
        Self {
            connection_id,
            run,
            new_count: 0,
            updated_count: 0,
            events: 0,
            status,
            is_complete,
            continues_at_once,
        }
    }
}

part! {
    /// Syncs of a connection.
    Syncs
}

impl Syncs<'_> {
    /// Syncs one connection now, for the operator. If another process is syncing it, waits for that
    /// sync, then syncs again. A sync that is too large for one run takes several. If the
    /// provider's rate limit ends a run, the rest is left to the job.
    ///
    /// Fails with [`ConnectionsError::Busy`] if the other process takes too long, or if this one
    /// loses its lease. A failed sync is retried as a job, with a delay that grows with each
    /// failure.
    pub async fn run(self, user: UserId, id: ConnectionId) -> Result<SyncReport, ConnectionsError> {
        let mut report = self.run_once(user, id).await?;
        while report.continues_at_once {
            let SyncReport {
                new_count,
                updated_count,
                events,
                ..
            } = report;
            report = self.run_once(user, id).await?;
            report.new_count += new_count;
            report.updated_count += updated_count;
            report.events += events;
        }
        Ok(report)
    }

    /// As [`Self::run`], but does not continue a sync that is too large for one run.
    pub async fn run_once(
        self,
        user: UserId,
        id: ConnectionId,
    ) -> Result<SyncReport, ConnectionsError> {
        let key = JobKey::new(KIND.name, user, id);
        let claim = claim_or_wait(Instant::now() + WAIT_MAX, async || {
            let claim = self.0.claim(&KIND, &key).await?;
            if claim.is_none() && self.0.storage.connections().find(user, id).await?.is_none() {
                return Err(ConnectionsError::NotFound);
            }
            Ok(claim)
        });
        let claim = claim.await?.ok_or(ConnectionsError::Busy)?;
        self.run_job(&claim, Cause::Schedule).await
    }

    async fn run_job(
        self,
        claim: &ClaimedJob,
        cause: Cause,
    ) -> Result<SyncReport, ConnectionsError> {
        self.0
            .run_claimed(&KIND, claim, self.sync_once(claim, cause))
            .await
            .map_err(|failed| failed.error)
    }

    /// Whether a running service syncs by itself.
    pub fn are_enabled(self) -> bool {
        self.0.sync_settings.enabled
    }

    /// Starts a sync that was requested, if this process is a service.
    pub fn wake(self, provider: &str) {
        self.0.wake(&KIND, provider);
    }

    async fn sync_once(
        self,
        claim: &ClaimedJob,
        cause: Cause,
    ) -> Result<SyncReport, ConnectionsError> {
        let report = self.sync_claimed(claim, cause).await?;
        let SyncReport {
            new_count,
            updated_count,
            events,
            status,
            ..
        } = report;
        tracing::info!(new_count, updated_count, events, %status, "connection synced");
        Ok(report)
    }

    async fn sync_claimed(
        self,
        claim: &ClaimedJob,
        cause: Cause,
    ) -> Result<SyncReport, ConnectionsError> {
        let (user, id) = (claim.user_id(), claim.subject_id());
        let status = Refreshes(self.0).run_after_current(user, id, cause).await?;
        let run = SyncRunId::new();
        let settings = self.0.sync_settings_of(&claim.provider);
        let next = settings.next_sync_at(self.0.clock.now(), times::phase_of(id));
        let mut report = SyncReport::empty(id, run, status);
        if status != ConnectionStatus::Active {
            self.0.finish_job(claim, Some(next)).await?;
            return Ok(report);
        }
        let connection = self.0.connection(user, id).await?;
        let before = self
            .0
            .storage
            .syncs()
            .find(user, id)
            .await?
            .ok_or(ConnectionsError::NotFound)?;
        let now = self.0.clock.now();
        let plan = settings.plan(now, &before, times::phase_of(id));
        let (mut pulled, hasher) = match self.pull(&before, &connection, &plan, (now, cause)).await
        {
            Err(ConnectionsError::ConsentInactive(_)) => {
                report.status = Refreshes(self.0).run_after_current(user, id, cause).await?;
                self.0.finish_job(claim, Some(plan.next_sync_at)).await?;
                return Ok(report);
            }
            pulled => pulled?,
        };
        let read_until = self.0.clock.now();
        if read_until >= now.plus(LONG_READ) {
            self.0
                .storage
                .connections()
                .set_last_refreshed_at(user, id, read_until)
                .await?;
        }
        if let Some(retry_at) = plan
            .retry_if_empty_at
            .filter(|_| pulled.is_empty && pulled.unreadable.is_empty())
        {
            self.0.finish_job(claim, Some(retry_at)).await?;
            return Ok(report);
        }
        let next_at = self.next_run_at(now, &plan, &pulled);
        let after = settings.next_state(now, &before, &plan, &pulled, next_at);
        if let Some(UnreadableRows { count, reason, .. }) = &after.unreadable {
            tracing::warn!(count, reason, "rows could not be read");
        }
        (report.new_count, report.updated_count) = (pulled.new_count, pulled.updated_count);
        report.is_complete = pulled.unread.is_none();
        report.continues_at_once = !report.is_complete && pulled.wait.is_none();
        let sync_run = SyncRun {
            id: run,
            connection_id: id,
            event_type: pulled.event_type,
            started_at: now,
        };
        let (events, in_memory) =
            self.0
                .event_buffer
                .prepare(sync_run, &mut pulled.new, &mut pulled.updated, &hasher);
        let removed_events = buffer::removed_events(&pulled.gone);
        let finished = FinishedSync {
            run,
            started_at: now,
            date_range: (pulled.read_from, plan.to),
            before: &before,
            after: &after,
            fingerprints: pulled.fingerprints.as_ref(),
            first_attempt_at: self.0.event_buffer.first_attempt_at(now),
            event_type: pulled.event_type,
            events: &events,
            removed_events: (SyncRunId::new(), &removed_events),
        };
        self.0.event_buffer.hold(in_memory, now);
        let Some(sent) = self.0.storage.syncs().finish(claim, &finished).await? else {
            self.0.event_buffer.evict(&events);
            return Err(ConnectionsError::Busy);
        };
        report.events = usize::try_from(sent).unwrap_or(usize::MAX);
        if sent > 0 {
            self.0.event_buffer.wake();
        } else {
            self.0.event_buffer.evict(&events);
        }
        Ok(report)
    }

    fn next_run_at(self, now: Timestamp, plan: &SyncPlan, pulled: &Pulled) -> Timestamp {
        match (&pulled.unread, pulled.wait) {
            (None, _) => plan.next_sync_at,
            (Some(_), None) => now,
            (Some(_), Some(wait)) => self.0.clock.now().plus(schedule::backoff(
                1,
                Failure::Transient(Some(wait)),
                jitter::random(),
            )),
        }
    }

    async fn pull(
        self,
        state: &SyncState,
        connection: &Connection,
        plan: &SyncPlan,
        (now, cause): (Timestamp, Cause),
    ) -> Result<(Pulled, RowHasher), ConnectionsError> {
        let (user, id) = (connection.user_id, connection.id);
        let (hasher, known) = self.fingerprints(user, id).await?;
        let credentials = self.0.credentials(user, id).await?;
        let zone = self
            .0
            .storage
            .users()
            .find_zone(user)
            .await?
            .ok_or(ConnectionsError::NotFound)?;
        let provider = self.0.provider(&connection.provider)?;
        let pull = Pull {
            provider: provider.as_ref(),
            context: &self
                .0
                .call_context_within(SYNC_DEADLINE, cause)
                .for_sync()
                .skip_unreadable_rows(),
            credentials: &credentials,
            accounts: &self.0.storage.accounts().list_visible(user, id).await?,
            zone: &zone,
            hasher: &hasher,
            known: &known,
            removal_hints: &state.removal_hints,
            now,
            date_range: (plan.from, plan.to),
            prune_before: SyncSettings::prune_before(plan.kept_from),
            after_account: state
                .unread
                .as_ref()
                .and_then(|unread| unread.after_account)
                .filter(|_| plan.continues),
            stop_at: Instant::now() + self.0.sync_settings.run_time,
            continues: plan.continues,
            notify: plan.sequence > 1 || self.0.sync_settings.notify_initial,
        };
        let pulled = pull.run().await?;
        Ok((pulled, hasher))
    }
}

/// Midnight UTC. The time of a row is not stored, its day is enough.
fn start_of_day(at: Timestamp) -> Timestamp {
    const DAY_SECONDS: i64 = 86_400;
    Timestamp::from_second(at.as_second().div_euclid(DAY_SECONDS) * DAY_SECONDS).unwrap_or(at)
}
