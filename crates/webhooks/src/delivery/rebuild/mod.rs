//! Rebuilds the rows of an event: reads them from the provider again and finds them by fingerprint.
//!
//! No row is stored, so every attempt but the first needs this. A first attempt needs it if its
//! body is not in memory.
//!
//! A body shows its rows as the last sync saw them. Only syncs decide that a row is gone, or has
//! changed: a row that this read lacks may be back within the hour, and a content that no sync saw
//! may change back unseen. Then the attempt is incomplete, and waits for a sync. Rows of days that
//! no sync reads any more are shown as the provider lists them, and are gone once two attempts,
//! hours apart, have lacked them.
//!
//! One read serves the event that is due, the chunks that wait for it, and all endpoints that get
//! these events. The events say where their rows lie (`row_locator.rs`), so it is a part of the
//! provider's list. If a row of the event that is due is not there, the whole date range of the
//! sync is read.

mod reread_rows;
mod source;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{ConnectionId, ProviderName, RowDigests, SyncRunId, UserId};
use bellbird_providers::{CallContext, Cause};
use bellbird_storage::{
    ClaimedEndpoint, DueDelivery, JobKey, StorageError, WebhookEvent, job_kinds,
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::Webhooks;
use crate::event::buffer::EventRows;
use crate::event::row_locator::RowLocator;
use reread_rows::RereadRows;

/// Maximum time for reading the rows of an event again.
pub(crate) const REBUILD_DEADLINE: Duration = Duration::from_secs(40);

/// Maximum number of concurrent reads of one provider, for endpoints that are not failing.
const HEALTHY_READS_MAX: usize = 4;
/// The same for endpoints that have been failing for a minute, in addition to the others.
const FAILING_READS_MAX: usize = 2;
/// Number of rows that one read looks for: those of the event that is due, and of the chunks that
/// wait for it.
const READ_ROWS_MAX: usize = 5_000;
/// How often incomplete attempts cause a sync of the connection.
const SYNC_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// How long after an incomplete attempt the next one decides that rows that no sync reads any more
/// are gone: providers leave rows out for an hour.
const GONE_AFTER: SignedDuration = SignedDuration::from_hours(2);

/// Why an event could not be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RebuildError {
    /// The delivery stays due: the connection was removed, the database failed, or other rebuilds
    /// took all the time.
    Postponed,
    /// The consent is gone.
    Reconnect,
    /// The provider failed, or is not configured here.
    Provider,
    /// The credentials, or the key of the digests, cannot be opened.
    Sealed,
    /// The database holds an invalid value.
    Corrupt,
    /// The provider does not list all rows as the last sync saw them.
    Incomplete,
}

impl RebuildError {
    /// The text in the delivery log. None: there was no attempt.
    pub(crate) fn message(self) -> Option<&'static str> {
        Some(match self {
            Self::Postponed => return None,
            Self::Reconnect => "rows not read: connection must be reconnected",
            Self::Provider => "rows not read: provider does not respond",
            Self::Sealed => "rows not read: credentials cannot be opened",
            Self::Corrupt => "rows not read: stored data is invalid",
            Self::Incomplete => "rows not read: provider lists other ones than the last sync saw",
        })
    }
}

impl From<StorageError> for RebuildError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Sealed(_) => Self::Sealed,
            StorageError::Corrupt(_) => Self::Corrupt,
            _ => Self::Postponed,
        }
    }
}

impl From<bellbird_providers::Error> for RebuildError {
    fn from(error: bellbird_providers::Error) -> Self {
        match error {
            bellbird_providers::Error::ReconnectNeeded(_) => Self::Reconnect,
            _ => Self::Provider,
        }
    }
}

/// Limits the reads of this process, and lets one at a time serve the events of a sync.
#[derive(Default)]
pub(crate) struct Rebuilds {
    permits: Mutex<HashMap<(ProviderName, bool), Arc<Semaphore>>>,
    runs: Mutex<HashMap<(SyncRunId, bool), SharedRead>>,
}

/// Held during a read. Holds the last failure, which counts for all deliveries that have waited for
/// it.
type SharedRead = Arc<tokio::sync::Mutex<Option<(Instant, RebuildError)>>>;

impl Rebuilds {
    fn permits(&self, provider: ProviderName, is_failing: bool) -> Arc<Semaphore> {
        let reads_max = if is_failing {
            FAILING_READS_MAX
        } else {
            HEALTHY_READS_MAX
        };
        let mut permits = self.permits.lock();
        Arc::clone(
            permits
                .entry((provider, is_failing))
                .or_insert_with(|| Arc::new(Semaphore::new(reads_max))),
        )
    }

    /// A read for a failing endpoint may wait for others of its kind, so healthy endpoints do not
    /// wait for it.
    fn shared_read(&self, run: SyncRunId, is_failing: bool) -> SharedRead {
        let mut runs = self.runs.lock();
        runs.retain(|_, read| Arc::strong_count(read) > 1);
        Arc::clone(runs.entry((run, is_failing)).or_default())
    }
}

impl Webhooks {
    /// Reads the rows of an event from the provider again. A row that is gone is missing.
    pub(crate) async fn rebuild(
        &self,
        claim: &ClaimedEndpoint,
        delivery: &DueDelivery,
        deadline: Instant,
    ) -> Result<Arc<EventRows>, RebuildError> {
        let event = &delivery.event;
        let waiting_since = Instant::now();
        let shared = self
            .inner
            .rebuilds
            .shared_read(event.sync_run_id, claim.is_failing);
        let Ok(mut last_failure) = tokio::time::timeout_at(deadline, shared.lock()).await else {
            return Err(RebuildError::Postponed);
        };
        // The read of another delivery may have found them, or may have failed.
        let (buffer, now) = (&self.inner.event_buffer, self.inner.clock.now());
        if let Some(rows) = buffer.find_rows(event.id, now, delivery.is_first()) {
            return Ok(rows);
        }
        if let Some((failed_at, error)) = *last_failure
            && failed_at >= waiting_since
        {
            return Err(error);
        }
        let rebuilt = self.read_batch(claim, delivery, deadline).await;
        if let Err(error @ (RebuildError::Provider | RebuildError::Reconnect)) = rebuilt {
            *last_failure = Some((Instant::now(), error));
        }
        if let (Err(RebuildError::Incomplete), Some(connection)) = (&rebuilt, event.connection_id) {
            self.request_sync(claim.user_id, connection).await;
        }
        rebuilt
    }

    /// Requests the sync that an incomplete attempt waits for.
    async fn request_sync(&self, user: UserId, connection: ConnectionId) {
        let (key, now) = (
            JobKey::new(job_kinds::SYNC, user, connection),
            self.inner.clock.now(),
        );
        if let Err(error) = self
            .inner
            .storage
            .jobs()
            .request(&key, now, SYNC_INTERVAL)
            .await
        {
            tracing::warn!(%error, "could not request a sync");
        }
    }

    /// Reads the rows of an event, and those of waiting chunks that are read with it.
    async fn read_batch(
        &self,
        claim: &ClaimedEndpoint,
        delivery: &DueDelivery,
        deadline: Instant,
    ) -> Result<Arc<EventRows>, RebuildError> {
        let event = &delivery.event;
        let source = self.row_source(claim, event, deadline).await?;
        let permits = self
            .inner
            .rebuilds
            .permits(source.provider.name(), claim.is_failing);
        let Ok(Ok(_permit)) = tokio::time::timeout_at(deadline, permits.acquire()).await else {
            return Err(RebuildError::Postponed);
        };
        let waiting = self.waiting_chunks(claim, delivery).await?;
        let batch: Vec<&WebhookEvent> = std::iter::once(event).chain(&waiting).collect();
        let locators = batch
            .iter()
            .map(|event| RowLocator::open(&event.row_locator, &source.hasher, event.id));
        let locator = locators
            .reduce(|one, other| Some(one?.and(other?)))
            .flatten();

        let cause = if delivery.is_requested {
            Cause::RequestedJob(claim.user_id)
        } else {
            Cause::Schedule
        };
        let context = CallContext::new(
            deadline.min(Instant::now() + REBUILD_DEADLINE),
            self.inner.clock.now(),
            cause,
        );
        let context = context.for_sync().skip_unreadable_rows();
        let none_found = || {
            let is_unwatched = |row: &RowDigests| source.is_unwatched(row);
            RereadRows::new(&batch, &source.fingerprints, &source.hasher, is_unwatched)
        };
        let mut found = none_found();
        let mut outcome = source
            .read(event, locator.as_ref(), &context, &mut found)
            .await;
        if outcome.is_ok() && locator.is_some() && !found.has_first() {
            found = none_found();
            outcome = source.read(event, None, &context, &mut found).await;
        }
        let has_first = found.has_first();
        // No sync will say what became of a row whose fingerprint is deleted, or whose day is not
        // read any more. The whole list says it, unless a renewal since the event may have given
        // the row another id, or it may be a row that cannot be read.
        let has_renewed = source.rows_backfill_began_at > event.created_at;
        let unreadable = context.take_unreadable();
        let now = self.inner.clock.now();
        let are_gone = outcome.is_ok()
            && was_incomplete_before(delivery, now)
            && !has_renewed
            && !unreadable.iter().any(|row| source.may_be_unwatched(row.at));
        let mut first = None;
        for rows in found.into_events(are_gone).map(Arc::new) {
            self.inner.event_buffer.hold_reread(Arc::clone(&rows), now);
            first = first.or_else(|| (rows.envelope.id == event.id).then_some(rows));
        }
        match (outcome, first) {
            // A failure after the last row of the event affects other chunks only.
            (Err(error), _) if !has_first => Err(error),
            (_, first) => first.ok_or(RebuildError::Incomplete),
        }
    }

    /// The chunks that the endpoint gets next. A retry may fail again, so nothing is read for later
    /// chunks.
    async fn waiting_chunks(
        &self,
        claim: &ClaimedEndpoint,
        delivery: &DueDelivery,
    ) -> Result<Vec<WebhookEvent>, RebuildError> {
        let event = &delivery.event;
        let chunks = u32::try_from(READ_ROWS_MAX / event.rows.len().max(1)).unwrap_or(0);
        if delivery.attempts > 0 || chunks < 2 || event.chunk >= event.total_chunks {
            return Ok(Vec::new());
        }
        let endpoint = (claim.user_id, claim.endpoint_id);
        let waiting = self.inner.storage.webhook_events().list_waiting_chunks(
            endpoint,
            event.sync_run_id,
            event.chunk,
            chunks - 1,
        );
        let (mut waiting, now) = (waiting.await?, self.inner.clock.now());
        let buffer = &self.inner.event_buffer;
        waiting.retain(|waiting| {
            buffer
                .find_rows(waiting.id, now, delivery.is_first())
                .is_none()
        });
        Ok(waiting)
    }
}

/// Whether the attempt before this one was incomplete, long enough ago. Not at the first one since
/// a recovery, however old the one before is. Only that one reads other chunks with the event.
fn was_incomplete_before(delivery: &DueDelivery, now: Timestamp) -> bool {
    delivery.attempts > 0
        && delivery.last_error.as_deref() == RebuildError::Incomplete.message()
        && delivery
            .last_attempt_at
            .is_some_and(|at| now.duration_since(at) >= GONE_AFTER)
}
