//! Rebuilds the body of an event: reads its rows from the provider again and finds them by digest.
//!
//! No row is stored, so every attempt but the first needs this. A first attempt needs it if its body is not in memory.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use bellbird_domain::{ApiVersion, Bound, Digest, EventType, Interval, Span, Trade, Transaction, UserId};
use bellbird_providers::{CallContext, ConsentStatus, Kind, TradeQuery, TransactionQuery, sweep};
use bellbird_storage::WebhookEvent;
use bytes::Bytes;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use crate::Webhooks;
use crate::digest::RowHasher;
use crate::payload::{self, Envelope};

/// Maximum time for reading the rows of an event again.
pub(crate) const REBUILD_DEADLINE: Duration = Duration::from_secs(40);
/// Maximum number of concurrent rebuilds.
pub(crate) const CONCURRENT_REBUILDS_MAX: usize = 8;

/// Number of later chunks of the same sync that a first attempt rebuilds together with its own.
const PREFETCHED_CHUNKS: u32 = 7;

/// Why an event could not be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RebuildError {
    /// The connection was removed. Its events are about to be deleted.
    Gone,
    /// The consent is gone.
    Reconnect,
    /// The provider failed, or is not configured here.
    Provider,
    Storage,
    /// Other rebuilds took all the time until the deadline. The provider was not called.
    Busy,
}

impl RebuildError {
    /// The text in the delivery log.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Gone => "connection removed",
            Self::Reconnect => "rows not read: connection must be reconnected",
            Self::Provider => "rows not read: provider does not answer",
            Self::Storage => "rows not read: database does not answer",
            Self::Busy => "rows not read: too many concurrent reads",
        }
    }
}

impl From<bellbird_storage::StorageError> for RebuildError {
    fn from(_: bellbird_storage::StorageError) -> Self {
        Self::Storage
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

impl Webhooks {
    /// Builds the body of an event from the provider's current rows. A row that the provider no longer has is missing
    /// from the body and from its counts.
    ///
    /// The body of a first attempt is not in memory if another process created the event, if this one has restarted, or
    /// if the body was too large or too old. Then the next chunks of the sync need a rebuild too, so one read of the
    /// provider serves several chunks.
    pub(crate) async fn rebuild(
        &self,
        user: UserId,
        event: &WebhookEvent,
        version: ApiVersion,
        is_first: bool,
        deadline: Instant,
    ) -> Result<Bytes, RebuildError> {
        // A ping has no connection and no rows.
        if event.connection_id.is_none() || event.rows.is_empty() {
            return Ok(payload::body::<Vec<u8>>(&envelope(event, version), &[], &[]));
        }
        let waiting = tokio::time::timeout_at(deadline, self.inner.rebuilds.acquire());
        let Ok(Ok(_permit)) = waiting.await else { return Err(RebuildError::Busy) };
        let now = self.inner.clock.now();
        if is_first && let Some(body) = self.inner.event_buffer.find_body(event.id, version, now) {
            // A delivery to another endpoint has rebuilt it meanwhile.
            return Ok(body);
        }
        let mut later_chunks = Vec::new();
        if is_first && event.chunk < event.total_chunks {
            let (run, chunk) = (event.sync_run_id, event.chunk);
            later_chunks = self.inner.storage.list_later_chunks(user, run, chunk, PREFETCHED_CHUNKS).await?;
        }
        let mut found = RereadRows::new(std::iter::once(event).chain(&later_chunks));
        let reading = tokio::time::timeout_at(deadline, self.reread_rows(user, event, &mut found, deadline));
        reading.await.unwrap_or(Err(RebuildError::Provider))?;
        let bodies = found.bodies(version);
        if is_first {
            for (other, body) in std::iter::once(event).chain(&later_chunks).zip(&bodies) {
                self.inner.event_buffer.hold_body(other.id, version, body.clone(), now);
            }
        }
        bodies.into_iter().next().ok_or(RebuildError::Gone)
    }

    async fn reread_rows(
        &self,
        user: UserId,
        event: &WebhookEvent,
        found: &mut RereadRows<'_>,
        deadline: Instant,
    ) -> Result<(), RebuildError> {
        let (storage, clock) = (&self.inner.storage, &self.inner.clock);
        let id = event.connection_id.ok_or(RebuildError::Gone)?;
        let connection = storage.find_connection(user, id).await?.ok_or(RebuildError::Gone)?;
        let credentials = storage.find_credentials(user, id).await?.ok_or(RebuildError::Gone)?;
        let key = storage.fingerprint_key(user, id).await?.ok_or(RebuildError::Gone)?;
        let hasher = RowHasher::new(key.expose_secret().as_bytes());
        let accounts = storage.list_connection_accounts(user, id).await?;
        let zone = storage.find_zone(user).await?.ok_or(RebuildError::Gone)?;
        let provider = self.inner.providers.find(&connection.provider).ok_or(RebuildError::Provider)?;
        let context =
            CallContext::new(deadline.min(Instant::now() + REBUILD_DEADLINE), clock.now()).past_unreadable_rows();
        let (from, to) = event.date_range;
        match (event.event_type, provider.kind()) {
            (EventType::TransactionsSynced, Kind::Banking(banking)) if !accounts.is_empty() => {
                let interval = Interval { from: Bound::Instant(from), to: Bound::Instant(to) };
                let query =
                    TransactionQuery { accounts: &accounts, one_account: false, interval: &interval, zone: &zone };
                let mut take =
                    |row: &Transaction<'_>| found.take(hasher.transaction(row).0, || payload::transaction(row, &zone));
                sweep::transactions(banking, &context, &credentials, &query, &mut take).await?;
            }
            (EventType::TradesSynced, Kind::Brokerage(brokerage)) => {
                // Without an end, as in the sync: trades may have a future date.
                let span = Span { from: Some(Bound::Instant(from)), to: None };
                for account in &accounts {
                    let query = TradeQuery { account, span: &span, zone: &zone };
                    let mut take = |row: &Trade<'_>| found.take(hasher.trade(row).0, || payload::trade(row));
                    sweep::trades(brokerage, &context, &credentials, &query, &mut take).await?;
                    if found.is_complete() {
                        break;
                    }
                }
            }
            _ => {}
        }
        // The missing row may be the unreadable one. Then it is not gone.
        if !found.is_complete() && !context.take_unreadable().is_empty() {
            return Err(RebuildError::Provider);
        }
        // A provider may return an empty list after consent has ended. That must not count as an event without rows.
        if found.is_empty() && provider.consent_status(&context, &credentials).await? != ConsentStatus::Active {
            return Err(RebuildError::Reconnect);
        }
        Ok(())
    }
}

fn envelope(event: &WebhookEvent, api_version: ApiVersion) -> Envelope {
    Envelope {
        id: event.id,
        event_type: event.event_type,
        api_version,
        created: event.created_at,
        sync_run_id: event.sync_run_id,
        chunk: event.chunk,
        total_chunks: event.total_chunks,
    }
}

/// The rows found so far for several events.
struct RereadRows<'e> {
    /// Each event with its rows, in the order of the event.
    events: Vec<(&'e WebhookEvent, Vec<Option<Vec<u8>>>)>,
    /// Positions (event, row) of the rows that are not found yet, in reverse order, so that `pop` returns the first.
    /// Repeated ids have several positions.
    missing: HashMap<Digest, Vec<(usize, usize)>>,
}

impl<'e> RereadRows<'e> {
    fn new(events: impl Iterator<Item = &'e WebhookEvent>) -> Self {
        let events: Vec<_> = events.map(|event| (event, vec![None; event.rows.len()])).collect();
        let mut missing: HashMap<Digest, Vec<(usize, usize)>> = HashMap::new();
        for (number, (event, _)) in events.iter().enumerate().rev() {
            for (index, row) in event.rows.iter().enumerate().rev() {
                missing.entry(*row).or_default().push((number, index));
            }
        }
        Self { events, missing }
    }

    /// Stores a row if one of the events still misses it. Stops the read when no row is missing any more.
    fn take(&mut self, row: Digest, write: impl FnOnce() -> Vec<u8>) -> ControlFlow<()> {
        if let Some(positions) = self.missing.get_mut(&row) {
            if let Some((number, index)) = positions.pop() {
                self.events[number].1[index] = Some(write());
            }
            if positions.is_empty() {
                self.missing.remove(&row);
            }
        }
        if self.is_complete() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.events.iter().all(|(_, rows)| rows.iter().all(Option::is_none))
    }

    fn bodies(self, version: ApiVersion) -> Vec<Bytes> {
        let body = |(event, rows): (&WebhookEvent, Vec<Option<Vec<u8>>>)| {
            let new_count = usize::try_from(event.new_count).unwrap_or(usize::MAX).min(rows.len());
            let mut rows = rows.into_iter();
            let new: Vec<_> = rows.by_ref().take(new_count).flatten().collect();
            let updated: Vec<_> = rows.flatten().collect();
            payload::body(&envelope(event, version), &new, &updated)
        };
        self.events.into_iter().map(body).collect()
    }
}
