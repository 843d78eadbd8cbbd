//! Rebuilds the body of an event: reads its rows from the provider again and finds them by
//! fingerprint.
//!
//! No row is stored, so every attempt but the first needs this. A first attempt needs it if its
//! body is not in memory.
//!
//! A body shows its rows as the last sync saw them. Only syncs decide that a row is gone, or has
//! changed: a row that this read lacks may be back within the hour, and a content that no sync saw
//! may change back unseen. Then the attempt is incomplete, and waits for a sync.
//!
//! One read serves the event that is due, the chunks that wait for it, and all endpoints that get
//! these events. The events say where their rows lie (`row_locator.rs`), so it is a part of the
//! provider's list. If a row of the event that is due is not there, the whole date range of the
//! sync is read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{
    Account, Bound, ConnectionId, ContentDigest, DateFilter, DateRange, Digest, EventType,
    Fingerprints, ProviderName, RowDigests, RowKey, SyncRunId, TimestampExt as _, Trade,
    Transaction, UserId,
};
use bellbird_providers::pages::{List, Pages, Trades, Transactions};
use bellbird_providers::{CallContext, Cause, Kind, Provider, TradeQuery, TransactionQuery};
use bellbird_storage::{
    ClaimedEndpoint, DueDelivery, JobKey, StorageError, WebhookEvent, job_kinds,
};
use bytes::Bytes;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::Webhooks;
use crate::event::buffer::EventRows;
use crate::event::digest::RowHasher;
use crate::event::payload::{self, Envelope, Format, RowJson};
use crate::event::row_locator::RowLocator;

/// Maximum time for reading the rows of an event again.
pub(crate) const REBUILD_DEADLINE: Duration = Duration::from_secs(40);

/// Maximum number of concurrent reads of one provider, for endpoints that are not failing.
const HEALTHY_READS_MAX: usize = 4;
/// The same for endpoints that have been failing for a minute, in addition to the others.
const FAILING_READS_MAX: usize = 2;
/// Number of rows that one read looks for: those of the event that is due, and of the chunks that
/// wait for it.
const READ_ROWS_MAX: usize = 5_000;
/// Maximum bytes of JSON that one read keeps for waiting chunks.
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A read that takes longer ends as soon as it has all rows of the event that is due.
const READ_TIME: Duration = Duration::from_secs(10);
/// How often incomplete attempts cause a sync of the connection.
const SYNC_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// Trades of a day without a time count as midnight in UTC, which is another day in the user's
/// timezone.
const DAY: Duration = Duration::from_secs(86_400);

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
    /// Builds the body of an event from the provider's rows. A row that is gone is missing from the
    /// body and from its counts.
    pub(crate) async fn rebuild(
        &self,
        claim: &ClaimedEndpoint,
        delivery: &DueDelivery,
        deadline: Instant,
    ) -> Result<Bytes, RebuildError> {
        let (event, format) = (&delivery.event, Format::from(claim));
        if !has_rows(event) {
            return Ok(body_without_rows(event, format));
        }
        let waiting_since = Instant::now();
        let shared = self
            .inner
            .rebuilds
            .shared_read(event.sync_run_id, claim.is_failing);
        let Ok(mut last_failure) = tokio::time::timeout_at(deadline, shared.lock()).await else {
            return Err(RebuildError::Postponed);
        };
        // The read of another delivery may have found it, or may have failed.
        let now = self.inner.clock.now();
        if let Some(body) =
            self.inner
                .event_buffer
                .find_body(event.id, format, now, delivery.is_first)
        {
            return Ok(body);
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

    /// Rebuilds the body of an event, and those of waiting chunks whose rows are read with it.
    async fn read_batch(
        &self,
        claim: &ClaimedEndpoint,
        delivery: &DueDelivery,
        deadline: Instant,
    ) -> Result<Bytes, RebuildError> {
        let (event, format) = (&delivery.event, Format::from(claim));
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
        let hints = batch
            .iter()
            .map(|event| RowLocator::open(&event.hint, &source.hasher, event.id));
        let hint = hints.reduce(|one, other| Some(one?.and(other?))).flatten();

        // Only an event that somebody wants again has had an attempt and counts none.
        let is_requested = delivery.attempts == 0 && !delivery.is_first;
        let cause = if is_requested {
            Cause::RequestedJob(claim.user_id)
        } else {
            Cause::Schedule
        };
        let context = CallContext::new(
            deadline.min(Instant::now() + REBUILD_DEADLINE),
            self.inner.clock.now(),
            cause,
        );
        let context = context.for_sync().past_unreadable_rows();
        let mut found = RereadRows::new(&batch, &source.fingerprints, &source.hasher);
        let mut read_all = hint.is_none();
        let mut outcome = source
            .read(event, hint.as_ref(), &context, &mut found)
            .await;
        if outcome.is_ok() && !read_all && !found.has_first() {
            (found, read_all) = (
                RereadRows::new(&batch, &source.fingerprints, &source.hasher),
                true,
            );
            outcome = source.read(event, None, &context, &mut found).await;
        }
        let has_first = found.has_first();
        // No sync will say what became of a row whose fingerprint is deleted. The list says it,
        // unless a renewal since the event may have given the row another id.
        let has_renewed = source.rows_backfill_began_at > event.created_at;
        let are_forgotten_gone =
            outcome.is_ok() && read_all && !found.has_stopped_early() && !has_renewed;
        let now = self.inner.clock.now();
        let mut first = None;
        for rows in found.into_events(are_forgotten_gone).map(Arc::new) {
            self.inner
                .event_buffer
                .hold_rebuilt_body(Arc::clone(&rows), now);
            first = first.or_else(|| (rows.envelope.id == event.id).then(|| rows.body(format)));
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
        let is_held = |id| {
            self.inner
                .event_buffer
                .find_body(id, claim.into(), now, delivery.is_first)
                .is_some()
        };
        waiting.retain(|waiting| !is_held(waiting.id));
        Ok(waiting)
    }

    async fn row_source(
        &self,
        claim: &ClaimedEndpoint,
        event: &WebhookEvent,
        deadline: Instant,
    ) -> Result<RowSource, RebuildError> {
        let (storage, user) = (&self.inner.storage, claim.user_id);
        let id = event.connection_id.ok_or(RebuildError::Postponed)?;
        let connection = storage
            .connections()
            .find(user, id)
            .await?
            .ok_or(RebuildError::Postponed)?;
        let key = storage
            .syncs()
            .fingerprint_key(user, id)
            .await?
            .ok_or(RebuildError::Postponed)?;
        let provider = self
            .inner
            .providers
            .find(&connection.provider)
            .ok_or(RebuildError::Provider)?;
        let sync = storage
            .syncs()
            .find(user, id)
            .await?
            .ok_or(RebuildError::Postponed)?;
        Ok(RowSource {
            provider: Arc::clone(provider),
            fingerprints: storage.syncs().fingerprints(user, id).await?,
            rows_backfill_began_at: sync.rows_backfill_began_at,
            credentials: storage
                .secrets()
                .find_credentials(user, id)
                .await?
                .ok_or(RebuildError::Postponed)?,
            hasher: RowHasher::new(key.expose_secret().as_bytes()),
            accounts: storage.accounts().list_of_connection(user, id).await?,
            zone: storage
                .users()
                .find_zone(user)
                .await?
                .ok_or(RebuildError::Postponed)?,
            deadline,
        })
    }
}

/// The body of an event without rows to read, from what is stored with it. Equal in every attempt.
fn body_without_rows(event: &WebhookEvent, format: Format<'_>) -> Bytes {
    if !event.removed.is_empty() {
        return payload::removed_body(&envelope(event), format, &event.removed);
    }
    let object = match event.event_type {
        EventType::UserRemoved => format.user.map(payload::user),
        _ => event
            .connection_id
            .zip(event.shown.as_ref())
            .map(|(id, shown)| payload::connection(id, shown)),
    };
    payload::object_body(&envelope(event), format, object)
}

/// Whether a body needs the provider. Pings, events about connections and users, and those of
/// removed rows do not.
pub(crate) fn has_rows(event: &WebhookEvent) -> bool {
    event.connection_id.is_some() && !event.rows.is_empty()
}

/// Where the rows of a connection are read.
struct RowSource {
    provider: Arc<dyn Provider>,
    fingerprints: Fingerprints,
    credentials: SecretString,
    hasher: RowHasher,
    accounts: Vec<Account>,
    /// As in [`bellbird_storage::SyncState`].
    rows_backfill_began_at: Timestamp,
    zone: TimeZone,
    deadline: Instant,
}

impl RowSource {
    /// Reads the rows of an event's date range, or the part of it that a hint names.
    async fn read(
        &self,
        event: &WebhookEvent,
        hint: Option<&RowLocator>,
        context: &CallContext,
        found: &mut RereadRows<'_>,
    ) -> Result<(), RebuildError> {
        if found.is_done() {
            return Ok(());
        }
        let reading = async {
            match (event.event_type, self.provider.kind()) {
                (EventType::TransactionsSynced, Kind::Banking(banking))
                    if !self.accounts.is_empty() =>
                {
                    let (from, to) = hint.map_or(event.date_range, |hint| (hint.from, hint.to));
                    let interval = DateRange {
                        from: Bound::Instant(from),
                        to: Bound::Instant(to),
                    };
                    let (accounts, interval, zone) = (&self.accounts, &interval, &self.zone);
                    let query = TransactionQuery {
                        accounts,
                        one_account: false,
                        interval,
                        zone,
                    };
                    let mut take = |row: &Transaction<'_>| {
                        found.take(&self.hasher.transaction(row), || {
                            payload::transaction(row, zone)
                        })
                    };
                    let list = List::<Transactions> {
                        provider: banking,
                        credentials: &self.credentials,
                        query,
                        until: None,
                    };
                    Pages::default()
                        .read_to_end(&list, context, &mut take)
                        .await
                }
                (EventType::TradesSynced, Kind::Brokerage(brokerage)) => {
                    let span = span_of_trades(event.date_range.0, hint);
                    let is_hinted = |account: &&Account| {
                        hint.is_none_or(|hint| hint.accounts.contains(&account.id))
                    };
                    for account in self.accounts.iter().filter(is_hinted) {
                        let query = TradeQuery {
                            account,
                            span: &span,
                            zone: &self.zone,
                        };
                        let mut take = |row: &Trade<'_>| {
                            found.take(&self.hasher.trade(row), || payload::trade(row))
                        };
                        let list = List::<Trades> {
                            provider: brokerage,
                            credentials: &self.credentials,
                            query,
                            until: None,
                        };
                        Pages::default()
                            .read_to_end(&list, context, &mut take)
                            .await?;
                        if found.is_done() {
                            break;
                        }
                    }
                    Ok(())
                }
                _ => Ok(()),
            }
        };
        Ok(tokio::time::timeout_at(self.deadline, reading)
            .await
            .unwrap_or(Err(bellbird_providers::Error::Deadline))?)
    }
}

/// Without a hint the range has no end, as in the sync: trades may have a future date.
fn span_of_trades(from: Timestamp, hint: Option<&RowLocator>) -> DateFilter {
    let Some(hint) = hint else {
        return DateFilter {
            from: Some(Bound::Instant(from)),
            to: None,
        };
    };
    DateFilter {
        from: Some(Bound::Instant(hint.from.minus(DAY))),
        to: Some(Bound::Instant(hint.to.plus(DAY))),
    }
}

fn envelope(event: &WebhookEvent) -> Envelope {
    Envelope {
        id: event.id,
        event_type: event.event_type,
        created: event.created_at,
        sync_run_id: event.sync_run_id,
        connection_id: event.connection_id,
        chunk: event.chunk,
        total_chunks: event.total_chunks,
    }
}

/// A row of an event: the number of the event among those of the read, and that of the row among
/// its rows.
type Place = (usize, usize);

/// The rows found so far for several events, the one that is due first.
struct RereadRows<'e> {
    events: Vec<FoundRows<'e>>,
    /// Rows that are not found yet, by what the last sync saw. Equal trades have one entry.
    missing: HashMap<(Digest, ContentDigest), Vec<Place>>,
    /// Rows that are not found yet and have no fingerprint any more.
    forgotten: HashMap<RowKey, Place>,
    /// How many rows without a fingerprint have had this digest. Counted only if some are looked
    /// for.
    unknown: HashMap<Digest, u32>,
    fingerprints: &'e Fingerprints,
    hasher: &'e RowHasher,
    json_bytes: usize,
    started_at: Instant,
}

/// The rows of an event, in its order. Those that are gone stay `None`.
struct FoundRows<'e> {
    event: &'e WebhookEvent,
    rows: Vec<Option<RowJson>>,
    missing: usize,
    forgotten: usize,
    /// Not looked for any more, because the rows take too much memory.
    is_dropped: bool,
}

impl FoundRows<'_> {
    fn is_complete(&self) -> bool {
        (self.missing, self.forgotten) == (0, 0)
    }
}

impl<'e> RereadRows<'e> {
    fn new(
        events: &[&'e WebhookEvent],
        fingerprints: &'e Fingerprints,
        hasher: &'e RowHasher,
    ) -> Self {
        let mut forgotten = HashMap::new();
        for (number, event) in events.iter().enumerate() {
            forgotten.extend(
                event
                    .rows
                    .iter()
                    .enumerate()
                    .map(|(index, key)| (*key, (number, index))),
            );
        }
        let rows = |event: &&'e WebhookEvent| {
            let rows = vec![None; event.rows.len()];
            FoundRows {
                event,
                rows,
                missing: 0,
                forgotten: 0,
                is_dropped: false,
            }
        };
        let mut events: Vec<FoundRows<'e>> = events.iter().map(rows).collect();
        let mut missing: HashMap<_, Vec<Place>> = HashMap::new();
        for known in &fingerprints.rows {
            if let Some(place) = forgotten.remove(&known.key)
                && !known.is_gone
            {
                missing
                    .entry((known.digests.row, known.digests.content))
                    .or_default()
                    .push(place);
                events[place.0].missing += 1;
            }
        }
        forgotten
            .values()
            .for_each(|(number, _)| events[*number].forgotten += 1);
        let (unknown, json_bytes, started_at) = (HashMap::new(), 0, Instant::now());
        Self {
            events,
            missing,
            forgotten,
            unknown,
            fingerprints,
            hasher,
            json_bytes,
            started_at,
        }
    }

    /// Stores a row if one of the events still misses it. Stops the read when it is done.
    fn take(&mut self, row: &RowDigests, write: impl FnOnce() -> RowJson) -> ControlFlow<()> {
        if let Some((number, index)) = self.place_of(row) {
            let (json, event) = (write(), &mut self.events[number]);
            self.json_bytes += json.bytes();
            event.rows[index] = Some(json);
            if self.json_bytes > READ_BYTES_MAX {
                self.drop_incomplete_chunks();
            }
        }
        if self.is_done() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn place_of(&mut self, row: &RowDigests) -> Option<Place> {
        if let Entry::Occupied(mut entry) = self.missing.entry((row.row, row.content)) {
            let place = entry.get_mut().pop();
            if entry.get().is_empty() {
                entry.remove();
            }
            place.inspect(|(number, _)| self.events[*number].missing -= 1)
        } else if !self.forgotten.is_empty() && !self.has_fingerprint(row.row) {
            // Its key is what a sync would give it.
            let occurrence = self.unknown.entry(row.row).or_default();
            let key = self.hasher.key(row.row, *occurrence, 0);
            *occurrence += 1;
            self.forgotten
                .remove(&key)
                .inspect(|(number, _)| self.events[*number].forgotten -= 1)
        } else {
            None
        }
    }

    fn has_fingerprint(&self, row: Digest) -> bool {
        self.fingerprints
            .rows
            .binary_search_by_key(&row, |known| known.digests.row)
            .is_ok()
    }

    /// Only the event that is due is completed, however large it is.
    fn drop_incomplete_chunks(&mut self) {
        for event in self
            .events
            .iter_mut()
            .skip(1)
            .filter(|event| !event.is_complete())
        {
            (event.rows, event.is_dropped) = (Vec::new(), true);
        }
        let events = &self.events;
        self.missing.retain(|_, places| {
            places.retain(|(number, _)| !events[*number].is_dropped);
            !places.is_empty()
        });
        self.forgotten
            .retain(|_, (number, _)| !events[*number].is_dropped);
        self.json_bytes = 0;
    }

    fn has_first(&self) -> bool {
        self.events.first().is_some_and(FoundRows::is_complete)
    }

    fn has_stopped_early(&self) -> bool {
        self.has_first() && self.started_at.elapsed() >= READ_TIME
    }

    fn is_done(&self) -> bool {
        self.missing.is_empty() && self.forgotten.is_empty() || self.has_stopped_early()
    }

    /// The complete events.
    fn into_events(self, are_forgotten_gone: bool) -> impl Iterator<Item = EventRows> {
        let is_complete = move |found: &FoundRows<'_>| {
            !found.is_dropped && found.missing == 0 && (found.forgotten == 0 || are_forgotten_gone)
        };
        self.events
            .into_iter()
            .filter(is_complete)
            .map(move |FoundRows { event, rows, .. }| {
                let new_count = usize::try_from(event.new_count)
                    .unwrap_or(usize::MAX)
                    .min(rows.len());
                let mut rows = event
                    .rows
                    .iter()
                    .zip(rows)
                    .map(|(key, json)| Some((*key, json?)));
                let new = rows.by_ref().take(new_count).flatten().collect();
                EventRows {
                    envelope: envelope(event),
                    new,
                    updated: rows.flatten().collect(),
                }
            })
    }
}

#[cfg(test)]
mod tests;
