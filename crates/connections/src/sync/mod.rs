//! A sync: accounts and status are refreshed, the rows of a window are read, and what is new or has changed is told.
//!
//! It is due on the row of its connection, and done by one copy of the service at a time. Nothing is written before the
//! end, and then all of it in one transaction: marks, events and deliveries. So one that is interrupted is simply done
//! again, and nothing is told that is not remembered, or remembered that is not told.

mod changes;
mod pull;
mod window;

use std::time::Duration;

use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, EventType, SyncRunId, UserId};
use bellbird_storage::{ClaimedSync, FinishedSync, NewEvent, StorageError};
use bellbird_webhooks::digest::RowHasher;
use bellbird_webhooks::outbox::Prepared;
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use window::SyncSettings;

use crate::schedule::{self, Failure};
use crate::{Connections, ConnectionsError, for_each};
use pull::{Pull, Pulled};

/// How long one sync may take.
const SYNC_DEADLINE: Duration = Duration::from_secs(600);
/// How long a sync is somebody's, unless they say again that it is.
const LEASE: Duration = Duration::from_secs(60);
/// How often they say so.
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// Syncs that one copy of the service makes at the same time.
const AT_ONCE: usize = 4;
/// How often due syncs are looked for, where nobody wakes us.
const DUE_EVERY: Duration = Duration::from_secs(5);
/// What a sync gets to notice that it has ended well.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// When a connection is synced again that was linked a moment ago and has no rows yet.
const ROWS_ASKED_AGAIN_AFTER: Duration = Duration::from_secs(600);
/// Accounts and rows may be late after a connection was linked: for so long, each sync reads as far back as the first
/// (unless what that finds is not told: then it would be told now), and one that finds nothing at all is not the first.
const ROWS_LATE: SignedDuration = SignedDuration::from_hours(1);
/// How often a command looks whether somebody else is done with a sync.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long it waits for that.
const PATIENCE: Duration = Duration::from_secs(660);

/// The metric of syncs, by how they ended.
pub const SYNCS: &str = "bellbird_syncs_total";

/// What a sync came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncReport {
    /// Which connection.
    pub connection_id: ConnectionId,
    /// This sync.
    pub run: SyncRunId,
    /// Rows that were never seen before.
    pub new_count: usize,
    /// Rows that have changed.
    pub updated_count: usize,
    /// Events that were made of them; none where no endpoint of the user asks for them.
    pub events: usize,
    /// How the connection stands. Rows are read only of an active one.
    pub status: ConnectionStatus,
}

impl Connections {
    /// Syncs one connection now, and waits for the end. Where somebody else syncs it at this moment, they are waited for
    /// first.
    ///
    /// # Errors
    /// [`ConnectionsError::NotFound`]; [`ConnectionsError::Busy`] when somebody else takes too long; what the provider or
    /// the database says. A sync that failed is due again, later with every failure.
    pub async fn sync(&self, user: UserId, id: ConnectionId) -> Result<SyncReport, ConnectionsError> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let (now, lease) = self.lease(LEASE);
            if let Some(claim) = self.storage.claim_sync(user, id, now, lease).await? {
                return self.sync_claimed(&claim).await;
            }
            if self.storage.find_connection(user, id).await?.is_none() {
                return Err(ConnectionsError::NotFound);
            }
            if Instant::now() >= give_up {
                return Err(ConnectionsError::Busy);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Makes every sync that is due, a few at a time, until `stop`, and then ends those under way. Any number of copies of
    /// the service may do so at once. One that takes long holds up no other.
    pub async fn sync_until(&self, stop: CancellationToken) {
        let mut under_way = JoinSet::new();
        while !stop.is_cancelled() {
            let free = AT_ONCE.saturating_sub(under_way.len());
            for claim in self.claim_syncs(free).await {
                let connections = self.clone();
                under_way.spawn(async move { connections.sync_claimed(&claim).await.is_ok() });
            }
            tokio::select! {
                () = stop.cancelled() => {}
                Some(_) = under_way.join_next() => {}
                () = self.due.syncs.notified(), if under_way.len() < AT_ONCE => {}
                () = tokio::time::sleep(DUE_EVERY) => {}
            }
        }
        while under_way.join_next().await.is_some() {}
    }

    /// Makes every sync that is due now, and returns when none is.
    ///
    /// # Errors
    /// Those of the database. What was claimed by then is due again when its lease ends.
    pub async fn sync_due(&self) -> Result<(), ConnectionsError> {
        loop {
            let claims = self.claim_syncs(AT_ONCE).await;
            if claims.is_empty() {
                return Ok(());
            }
            for_each(claims, |claim| {
                let connections = self.clone();
                async move {
                    match connections.sync_claimed(&claim).await {
                        Err(error @ ConnectionsError::Storage(StorageError::Unavailable(_))) => Err(error),
                        _ => Ok(()),
                    }
                }
            })
            .await?;
        }
    }

    /// So many of the syncs that are due; none where the database does not say.
    async fn claim_syncs(&self, limit: usize) -> Vec<ClaimedSync> {
        let (now, lease) = self.lease(LEASE);
        let limit = u32::try_from(limit).unwrap_or(0);
        if limit == 0 {
            return Vec::new();
        }
        self.storage.claim_due_syncs(now, lease, limit).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "due syncs could not be looked for");
            Vec::new()
        })
    }

    /// Whether a running service is to sync by itself.
    #[must_use]
    pub fn syncs_by_itself(&self) -> bool {
        self.syncing.enabled
    }

    /// Syncs, while somebody else sees that it is being done, and says when it is due again.
    async fn sync_claimed(&self, claim: &ClaimedSync) -> Result<SyncReport, ConnectionsError> {
        let synced = tokio::select! {
            biased;
            synced = self.sync_once(claim) => synced,
            lost = self.keep(claim) => Err(lost),
        };
        let id = claim.connection_id;
        match &synced {
            Ok(report) => {
                metrics::counter!(SYNCS, "outcome" => "done").increment(1);
                let SyncReport { new_count, updated_count, events, status, .. } = report;
                tracing::info!(connection_id = %id, new_count, updated_count, events, %status, "connection synced");
            }
            // The lease ends, and somebody syncs again.
            Err(ConnectionsError::Storage(StorageError::Unavailable(_)) | ConnectionsError::Busy) => {
                metrics::counter!(SYNCS, "outcome" => "interrupted").increment(1);
            }
            Err(error) => {
                metrics::counter!(SYNCS, "outcome" => "failed").increment(1);
                let failed = claim.attempts.saturating_add(1);
                let failure = match error {
                    ConnectionsError::Provider(error) if error.is_transient() => Failure::Passing(error.retry_after()),
                    error if error.is_passing() => Failure::Passing(None),
                    _ => Failure::Lasting,
                };
                let spread = spread(SyncRunId::new());
                let now = self.clock.now();
                let next = now.saturating_add(schedule::delay(failed, failure, spread)).unwrap_or(now);
                self.storage.postpone_sync(claim, next, &error.to_string()).await?;
                tracing::warn!(connection_id = %id, failed, until = %next, %error, "connection could not be synced");
            }
        }
        synced
    }

    /// Says again and again that the sync is being done. Ends when it is somebody else's.
    async fn keep(&self, claim: &ClaimedSync) -> ConnectionsError {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            let (_, lease) = self.lease(LEASE);
            match self.storage.renew_sync(claim, lease).await {
                Ok(true) => renewed = Instant::now(),
                Ok(false) => {
                    // It may have ended a moment ago, by our own hand.
                    tokio::time::sleep(LAST_WORDS).await;
                    return ConnectionsError::Busy;
                }
                Err(_) if renewed.elapsed() + RENEW_EVERY < LEASE => {}
                Err(error) => return error.into(),
            }
        }
    }

    async fn sync_once(&self, claim: &ClaimedSync) -> Result<SyncReport, ConnectionsError> {
        let (user, id) = (claim.user_id, claim.connection_id);
        let status = self.check_in_turn(user, id).await?;
        let run = SyncRunId::new();
        let next = self.syncing.next(self.clock.now(), spread(run));
        let mut report = SyncReport { connection_id: id, run, new_count: 0, updated_count: 0, events: 0, status };
        if status != ConnectionStatus::Active {
            return self.finish_without_rows(claim, next, report).await;
        }
        let connection = self.storage.find_connection(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let now = self.clock.now();
        let is_young = now.duration_since(connection.created_at) < ROWS_LATE;
        // One that was asked for early takes nothing from the one that comes when all rows should be there.
        let settled = schedule::synced_at_first(connection.created_at);
        let next = if now < settled { settled.min(next) } else { next };
        let synced_at = claim.synced_at.filter(|_| !(is_young && self.syncing.announce_first));
        let from = self.syncing.from(now, synced_at, claim.covered_from);
        let window = (from, now);
        let mut pulled = match self.pull(claim, &connection, window).await {
            Err(ConnectionsError::Broken(_)) => {
                report.status = self.check_in_turn(user, id).await?;
                return self.finish_without_rows(claim, next, report).await;
            }
            pulled => pulled?,
        };
        if is_young && pulled.is_empty && claim.synced_at.is_none() {
            // Not the first sync: its rows are not there yet.
            let soon = now.saturating_add(ROWS_ASKED_AGAIN_AFTER).unwrap_or(next);
            return self.finish_without_rows(claim, soon.min(next), report).await;
        }
        (report.new_count, report.updated_count) = (pulled.new_count, pulled.updated_count);
        let event_type = pulled.event_type;
        let prepared = self.outbox.prepare(event_type, run, now, &mut pulled.new, &mut pulled.updated);
        let events: Vec<NewEvent<'_>> = prepared.iter().map(|event| new_event(event, event_type, window)).collect();
        let finished = FinishedSync {
            run,
            at: now,
            covered_from: from,
            next,
            marks: &pulled.marks,
            seen_at: now,
            prune_before: Some(SyncSettings::prune_before(from))
                .filter(|before| pulled.oldest_mark.is_some_and(|oldest| oldest < *before)),
            due_at: self.outbox.due_from(now),
            events: &events,
        };
        self.outbox.hold(&prepared, now);
        let Some(written) = self.storage.finish_sync(claim, &finished).await? else {
            self.outbox.forget(&prepared);
            return Err(ConnectionsError::Busy);
        };
        report.events = usize::try_from(written).unwrap_or(usize::MAX);
        if written > 0 {
            self.outbox.wake();
        } else {
            self.outbox.forget(&prepared);
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
        window: (Timestamp, Timestamp),
    ) -> Result<Pulled, ConnectionsError> {
        let (user, id) = (connection.user_id, connection.id);
        let key = self.storage.marks_key(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let grant = self.storage.find_grant(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let zone = self.storage.find_zone(user).await?.ok_or(ConnectionsError::NotFound)?;
        let pull = Pull {
            provider: self.provider(&connection.provider)?.as_ref(),
            call: &self.call_within(SYNC_DEADLINE),
            grant: &grant,
            accounts: &self.storage.list_connection_accounts(user, id).await?,
            zone: &zone,
            hasher: &RowHasher::new(key.expose_secret().as_bytes()),
            known: &self.storage.list_marks(user, id).await?,
            window,
            announce: claim.synced_at.is_some() || self.syncing.announce_first,
        };
        Ok(pull.run().await?)
    }
}

fn new_event(event: &Prepared, event_type: EventType, window: (Timestamp, Timestamp)) -> NewEvent<'_> {
    NewEvent {
        id: event.id,
        event_type,
        window,
        rows: &event.rows,
        new_count: event.new_count,
        updated_count: event.updated_count,
        chunk: event.chunk,
        total_chunks: event.total_chunks,
    }
}

/// A number that differs from sync to sync: the random end of its id.
fn spread(run: SyncRunId) -> u64 {
    run.uuid().as_u128() as u64
}
