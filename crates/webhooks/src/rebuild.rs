//! The rows of an event, read from the provider once more: for every attempt but the first.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use bellbird_domain::user::{DEFAULT_TIMEZONE, find_timezone};
use bellbird_domain::{ApiVersion, Bound, Digest, EventType, Interval, Span, Trade, Transaction, UserId};
use bellbird_providers::{Call, Kind, TradeQuery, TransactionQuery, sweep};
use bellbird_storage::StoredEvent;
use bytes::Bytes;
use jiff::tz::TimeZone;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use crate::Webhooks;
use crate::digest::RowHasher;
use crate::payload::{self, Envelope};

/// How long reading the rows again may take.
pub(crate) const REBUILD_DEADLINE: Duration = Duration::from_secs(30);
/// Events whose rows are read again at the same time.
pub(crate) const REBUILDS_AT_ONCE: usize = 8;

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
}

impl Unread {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Gone => "connection removed",
            Self::Reconnect => "rows not read: connection must be reconnected",
            Self::Provider => "rows not read: provider does not answer",
            Self::Storage => "rows not read: database does not answer",
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
    pub(crate) async fn rebuild(
        &self,
        user: UserId,
        event: &StoredEvent,
        version: ApiVersion,
    ) -> Result<Bytes, Unread> {
        let mut found = Found::new(&event.rows);
        if event.connection_id.is_some() && !event.rows.is_empty() {
            let Ok(_turn) = self.inner.rebuilds.acquire().await else { return Err(Unread::Provider) };
            self.read_again(user, event, &mut found).await?;
        }
        let new_count = usize::try_from(event.new_count).unwrap_or(usize::MAX).min(found.rows.len());
        let (new, updated) = found.rows.split_at(new_count);
        let there = |rows: &[Option<Vec<u8>>]| rows.iter().flatten().cloned().collect::<Vec<_>>();
        Ok(payload::body(&envelope(event, version), &there(new), &there(updated)))
    }

    async fn read_again(&self, user: UserId, event: &StoredEvent, found: &mut Found) -> Result<(), Unread> {
        let (storage, clock) = (&self.inner.storage, &self.inner.clock);
        let id = event.connection_id.ok_or(Unread::Gone)?;
        let connection = storage.find_connection(user, id).await?.ok_or(Unread::Gone)?;
        let grant = storage.find_grant(user, id).await?.ok_or(Unread::Gone)?;
        let key = storage.marks_key(user, id).await?.ok_or(Unread::Gone)?;
        let hasher = RowHasher::new(key.expose_secret().as_bytes());
        let accounts = storage.list_connection_accounts(user, id).await?;
        let zone = storage.find_user(user).await?.and_then(|user| user.timezone);
        let zone = find_timezone(zone.as_deref().unwrap_or(DEFAULT_TIMEZONE)).unwrap_or(TimeZone::UTC);
        let provider = self.inner.providers.find(&connection.provider).ok_or(Unread::Provider)?;
        let call = Call::new(Instant::now() + REBUILD_DEADLINE, clock.now());
        let (from, to) = event.window;
        match (event.event_type, provider.kind()) {
            (EventType::TransactionsSynced, Kind::Banking(banking)) if !accounts.is_empty() => {
                let interval = Interval { from: Bound::Instant(from), to: Bound::Instant(to) };
                let query =
                    TransactionQuery { accounts: &accounts, one_account: false, interval: &interval, zone: &zone };
                let mut take = |row: &Transaction<'_>| {
                    found.take(hasher.transaction(row).0, || payload::transaction(row, &zone))
                };
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

/// The rows of an event that were found so far, in the event's order.
struct Found {
    rows: Vec<Option<Vec<u8>>>,
    /// The places of rows that are still to be found; several where ids repeat.
    wanted: HashMap<Digest, Vec<usize>>,
}

impl Found {
    fn new(rows: &[Digest]) -> Self {
        let mut wanted: HashMap<Digest, Vec<usize>> = HashMap::with_capacity(rows.len());
        for (place, row) in rows.iter().enumerate().rev() {
            wanted.entry(*row).or_default().push(place);
        }
        Self { rows: vec![None; rows.len()], wanted }
    }

    /// Takes a row if it is one of the event's; ends the reading when it was the last one.
    fn take(&mut self, row: Digest, write: impl FnOnce() -> Vec<u8>) -> ControlFlow<()> {
        if let Some(places) = self.wanted.get_mut(&row) {
            if let Some(place) = places.pop() {
                self.rows[place] = Some(write());
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
}
