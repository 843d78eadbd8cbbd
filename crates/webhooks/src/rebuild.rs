//! The rows of an event, read from the provider once more: for every attempt but the first.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use bellbird_domain::{ApiVersion, Bound, Digest, EventType, Interval, Span, Trade, Transaction, UserId};
use bellbird_providers::{Call, Kind, Standing, TradeQuery, TransactionQuery, sweep};
use bellbird_storage::StoredEvent;
use bytes::Bytes;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use crate::Webhooks;
use crate::digest::RowHasher;
use crate::payload::{self, Envelope};

/// How long reading the rows again may take.
pub(crate) const REBUILD_DEADLINE: Duration = Duration::from_secs(40);
/// Events whose rows are read again at the same time.
pub(crate) const REBUILDS_AT_ONCE: usize = 8;

/// Chunks of a run whose rows are read together with those of the one that is to be sent.
const READ_TOGETHER: u32 = 7;

/// Why an event's rows could not be read again, in a few words for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The connection is gone, and the event will be in a moment.
    Gone,
    /// The consent is gone.
    Reconnect,
    /// The provider did not answer, or the adapter is not configured here.
    Provider,
    /// Our own database did not answer.
    Storage,
    /// Others took all the time that there was. Nothing was tried.
    NoTurn,
}

impl Unread {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Gone => "connection removed",
            Self::Reconnect => "rows not read: connection must be reconnected",
            Self::Provider => "rows not read: provider does not answer",
            Self::Storage => "rows not read: database does not answer",
            Self::NoTurn => "rows not read: too many others are read",
        }
    }
}

impl From<bellbird_storage::StorageError> for Unread {
    fn from(_: bellbird_storage::StorageError) -> Self {
        Self::Storage
    }
}

impl From<bellbird_providers::Error> for Unread {
    fn from(error: bellbird_providers::Error) -> Self {
        match error {
            bellbird_providers::Error::ReconnectNeeded(_) => Self::Reconnect,
            _ => Self::Provider,
        }
    }
}

impl Webhooks {
    /// The body of an event with its rows as the provider tells them now. A row that the provider no longer has is left
    /// out, and the counts say so.
    ///
    /// Where the first attempt for it has to read them (another program made the event, or this one was started since),
    /// those for the next few chunks of its run will have to as well: they are read together.
    ///
    /// # Errors
    /// [`Unread`]; it is [`Unread::NoTurn`] when too many others were read until `until`.
    pub(crate) async fn rebuild(
        &self,
        user: UserId,
        event: &StoredEvent,
        version: ApiVersion,
        is_first: bool,
        until: Instant,
    ) -> Result<Bytes, Unread> {
        if event.connection_id.is_none() || event.rows.is_empty() {
            return Ok(payload::body::<Vec<u8>>(&envelope(event, version), &[], &[]));
        }
        let waiting = tokio::time::timeout_at(until, self.inner.rebuilds.acquire());
        let Ok(Ok(_turn)) = waiting.await else { return Err(Unread::NoTurn) };
        let now = self.inner.clock.now();
        if is_first && let Some(body) = self.inner.outbox.find(event.id, version, now) {
            // Somebody else has read it meanwhile, for another endpoint.
            return Ok(body);
        }
        let mut others = Vec::new();
        if is_first && event.chunk < event.total_chunks {
            let (run, chunk) = (event.sync_run_id, event.chunk);
            others = self.inner.storage.list_later_chunks(user, run, chunk, READ_TOGETHER).await?;
        }
        let mut found = Found::new(std::iter::once(event).chain(&others));
        let reading = tokio::time::timeout_at(until, self.read_again(user, event, &mut found, until));
        reading.await.unwrap_or(Err(Unread::Provider))?;
        let bodies = found.bodies(version);
        if is_first {
            for (other, body) in std::iter::once(event).chain(&others).zip(&bodies) {
                self.inner.outbox.keep(other.id, version, body.clone(), now);
            }
        }
        bodies.into_iter().next().ok_or(Unread::Gone)
    }

    async fn read_again(
        &self,
        user: UserId,
        event: &StoredEvent,
        found: &mut Found<'_>,
        until: Instant,
    ) -> Result<(), Unread> {
        let (storage, clock) = (&self.inner.storage, &self.inner.clock);
        let id = event.connection_id.ok_or(Unread::Gone)?;
        let connection = storage.find_connection(user, id).await?.ok_or(Unread::Gone)?;
        let grant = storage.find_grant(user, id).await?.ok_or(Unread::Gone)?;
        let key = storage.marks_key(user, id).await?.ok_or(Unread::Gone)?;
        let hasher = RowHasher::new(key.expose_secret().as_bytes());
        let accounts = storage.list_connection_accounts(user, id).await?;
        let zone = storage.find_zone(user).await?.ok_or(Unread::Gone)?;
        let provider = self.inner.providers.find(&connection.provider).ok_or(Unread::Provider)?;
        let call = Call::new(until.min(Instant::now() + REBUILD_DEADLINE), clock.now());
        let (from, to) = event.window;
        match (event.event_type, provider.kind()) {
            (EventType::TransactionsSynced, Kind::Banking(banking)) if !accounts.is_empty() => {
                let interval = Interval { from: Bound::Instant(from), to: Bound::Instant(to) };
                let query =
                    TransactionQuery { accounts: &accounts, one_account: false, interval: &interval, zone: &zone };
                let mut take =
                    |row: &Transaction<'_>| found.take(hasher.transaction(row).0, || payload::transaction(row, &zone));
                sweep::transactions(banking, &call, &grant, &query, &mut take).await?;
            }
            (EventType::TradesSynced, Kind::Brokerage(brokerage)) => {
                let span = Span { from: Some(Bound::Instant(from)), to: None };
                for account in &accounts {
                    let query = TradeQuery { account, span: &span, zone: &zone };
                    let mut take = |row: &Trade<'_>| found.take(hasher.trade(row).0, || payload::trade(row));
                    sweep::trades(brokerage, &call, &grant, &query, &mut take).await?;
                    if found.is_complete() {
                        break;
                    }
                }
            }
            _ => {}
        }
        // Of a consent that has ended a provider may say nothing, which a reading would take for the truth.
        if found.is_empty() && provider.standing(&call, &grant).await? != Standing::Active {
            return Err(Unread::Reconnect);
        }
        Ok(())
    }
}

fn envelope(event: &StoredEvent, api_version: ApiVersion) -> Envelope {
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

/// The rows of some events that were found so far.
struct Found<'e> {
    /// Each event with its rows, in its order.
    events: Vec<(&'e StoredEvent, Vec<Option<Vec<u8>>>)>,
    /// The places of rows that are still to be found, the first of them last: which event, which row. Several where ids
    /// repeat.
    wanted: HashMap<Digest, Vec<(usize, usize)>>,
}

impl<'e> Found<'e> {
    fn new(events: impl Iterator<Item = &'e StoredEvent>) -> Self {
        let events: Vec<_> = events.map(|event| (event, vec![None; event.rows.len()])).collect();
        let mut wanted: HashMap<Digest, Vec<(usize, usize)>> = HashMap::new();
        for (number, (event, _)) in events.iter().enumerate().rev() {
            for (place, row) in event.rows.iter().enumerate().rev() {
                wanted.entry(*row).or_default().push((number, place));
            }
        }
        Self { events, wanted }
    }

    /// Takes a row if it is one of theirs; ends the reading when it was the last one.
    fn take(&mut self, row: Digest, write: impl FnOnce() -> Vec<u8>) -> ControlFlow<()> {
        if let Some(places) = self.wanted.get_mut(&row) {
            if let Some((number, place)) = places.pop() {
                self.events[number].1[place] = Some(write());
            }
            if places.is_empty() {
                self.wanted.remove(&row);
            }
        }
        if self.is_complete() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn is_complete(&self) -> bool {
        self.wanted.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.events.iter().all(|(_, rows)| rows.iter().all(Option::is_none))
    }

    fn bodies(self, version: ApiVersion) -> Vec<Bytes> {
        let body = |(event, rows): (&StoredEvent, Vec<Option<Vec<u8>>>)| {
            let new_count = usize::try_from(event.new_count).unwrap_or(usize::MAX).min(rows.len());
            let mut rows = rows.into_iter();
            let new: Vec<_> = rows.by_ref().take(new_count).flatten().collect();
            let updated: Vec<_> = rows.flatten().collect();
            payload::body(&envelope(event, version), &new, &updated)
        };
        self.events.into_iter().map(body).collect()
    }
}
