//! A window of a connection's trades. The provider numbers the rows of each account and says how many there are, so a
//! window is read from its place on; several accounts are merged, newest first.

mod map;
mod stream;

use std::sync::Arc;

use bellbird_domain::{AccountId, Caller, ConnectionId, KeyId, Page, Span, Trade};
use bellbird_providers::{Brokerage, Call, Error};
use futures_util::future::try_join_all;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use secrecy::SecretString;

use crate::window::Extent;
use crate::{ReadError, Reads, Scope};
pub(crate) use map::TradesMap;
use stream::Stream;

/// Rows asked for beyond those needed when bounds are given: the provider is asked for a day more on either side, whose
/// rows are left out.
const ROWS_SPARE: u64 = 50;

/// The list of trades that is asked for: whose key, which accounts, which days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TradesKey {
    /// The key that asks.
    pub key_id: KeyId,
    /// The connection.
    pub connection_id: ConnectionId,
    /// One account, or all.
    pub account_id: Option<AccountId>,
    /// The bounds that were given.
    pub span: Span,
}

/// A window of trades.
pub struct TradesAnswer {
    /// The rows as they were written, separated by commas.
    pub rows: Vec<u8>,
    /// What is known of the whole list.
    pub extent: Extent,
    /// False when it could not be found out whether rows follow.
    pub whole: bool,
}

/// Whether rows follow the window.
enum More {
    Yes,
    No,
    /// The provider failed when it was asked.
    Unknown,
}

/// Writes a trade.
pub type WriteTrade = fn(&Trade<'_>, &mut Vec<u8>);

impl Reads {
    /// The window's trades, newest first, as `write` writes them and separated by commas, and what is known of the whole
    /// list.
    ///
    /// # Errors
    /// [`ReadError::NotFound`] for an account that is not the connection's; [`ReadError::WrongCategory`];
    /// [`ReadError::Reconnect`]; [`ReadError::Unavailable`] when one of the accounts could not be read. What was learned
    /// on the way is kept, so that the same request goes on from there.
    pub async fn trades(
        &self,
        call: &Call,
        caller: &Caller,
        scope: &Scope,
        list: TradesKey,
        page: Page,
        write: WriteTrade,
    ) -> Result<TradesAnswer, ReadError> {
        let accounts = scope.accounts_of(list.account_id)?;
        let brokerage = self.brokerage(&scope.connection)?;
        if accounts.is_empty() || list.span.is_empty(&caller.timezone) {
            let extent = Extent { total: 0, has_more: false, truncated: false };
            return Ok(TradesAnswer { rows: Vec::new(), extent, whole: true });
        }
        let mut streams: Vec<Stream<'_>> = accounts.iter().map(Stream::new).collect();
        streams.sort_by_key(Stream::account_id);
        let map = self.trades_map(call, list, page, &streams, &caller.timezone);
        let source = Source { brokerage, call, grant: &scope.grant, span: &list.span, zone: &caller.timezone, write };
        let mut merge = Merge::new(source, streams, page);
        let more = merge.run(&map).await;
        let more = more.map_err(|error| ReadError::from_provider(&error, scope.connection.status))?;
        if call.calls() > 0 {
            self.note_answered(scope);
        }
        let extent = merge.extent(&more, self.inner.limits.row_cap);
        Ok(TradesAnswer { rows: merge.written, extent, whole: !matches!(more, More::Unknown) })
    }

    /// The map of the list. A request from the start, and one about other accounts or another timezone than before,
    /// begins a new one.
    fn trades_map(
        &self,
        call: &Call,
        list: TradesKey,
        page: Page,
        streams: &[Stream<'_>],
        zone: &TimeZone,
    ) -> Arc<Mutex<TradesMap>> {
        let maps = &self.inner.trade_maps;
        let accounts: Vec<AccountId> = streams.iter().map(Stream::account_id).collect();
        if page.offset > 0
            && let Some(map) = maps.renew(&list, call.now)
            && map.lock().is_of(&accounts, zone)
        {
            return map;
        }
        let map = Arc::new(Mutex::new(TradesMap::new(accounts, zone.clone())));
        maps.insert(list, Arc::clone(&map), call.now);
        map
    }
}

/// Where the rows come from.
struct Source<'s> {
    brokerage: &'s dyn Brokerage,
    call: &'s Call,
    grant: &'s SecretString,
    span: &'s Span,
    zone: &'s TimeZone,
    write: WriteTrade,
}

/// One request's way through the merged lists of the accounts.
struct Merge<'m> {
    source: Source<'m>,
    /// By account id, which decides between rows of one instant.
    streams: Vec<Stream<'m>>,
    page: Page,
    /// The merged row that comes next.
    row: u64,
    /// Whether the walk began at the window, in the middle of the list.
    jumped: bool,
    /// Where each stream stood at the window's first row.
    begun: Option<Box<[u64]>>,
    written: Vec<u8>,
}

impl<'m> Merge<'m> {
    fn new(source: Source<'m>, streams: Vec<Stream<'m>>, page: Page) -> Self {
        Self { source, streams, page, row: 0, jumped: false, begun: None, written: Vec::new() }
    }

    /// Reads until the window is complete and it is known whether a row follows it.
    async fn run(&mut self, map: &Mutex<TradesMap>) -> Result<More, Error> {
        let mark = map.lock().nearest(self.page.offset);
        self.seek(mark);
        self.pass_head(map).await?;
        self.jump();
        let more = self.advance(map).await?;
        if self.jumped && self.row == self.page.offset && !self.source.span.is_open() {
            // Behind the last row that belongs: the provider's own numbers do not say how many belong.
            self.jumped = false;
            self.seek((0, vec![0; self.streams.len()].into()));
            return self.advance(map).await;
        }
        Ok(more)
    }

    fn seek(&mut self, (row, positions): (u64, Box<[u64]>)) {
        self.row = row;
        for (stream, position) in self.streams.iter_mut().zip(&positions) {
            stream.seek(*position);
        }
    }

    /// Reads on to where `to` leaves no row out any more: the provider was asked for a day more, and whose rows those are
    /// only reading shows. Behind them the numbers of an account's rows are the provider's.
    async fn pass_head(&mut self, map: &Mutex<TradesMap>) -> Result<(), Error> {
        let Some(settled_before) = self.source.span.settled_before(self.source.zone) else { return Ok(()) };
        while self.row < self.page.offset && self.streams.len() == 1 && !self.streams[0].is_over() {
            match self.streams[0].head() {
                Some(head) if head < settled_before => return Ok(()),
                Some(_) => {
                    self.take();
                }
                None => {
                    self.note(map);
                    self.fill(u64::from(self.source.brokerage.trades_rows_max())).await?;
                }
            }
        }
        Ok(())
    }

    /// The rows of one account are numbered by the provider: a window starts as far behind the last known place as its
    /// offset is, without reading what is between.
    fn jump(&mut self) {
        if let [stream] = self.streams.as_mut_slice()
            && self.row < self.page.offset
            && !stream.is_over()
        {
            stream.seek(stream.position().saturating_add(self.page.offset - self.row));
            self.row = self.page.offset;
            self.jumped = true;
        }
    }

    async fn advance(&mut self, map: &Mutex<TradesMap>) -> Result<More, Error> {
        let behind = self.page.end();
        loop {
            self.note(map);
            match self.fill(behind + 1 - self.row).await {
                // The window is there; only what follows it is not known.
                Err(error) if self.row == behind && error.is_transient() => return Ok(More::Unknown),
                outcome => outcome?,
            }
            while self.row < behind && self.streams.iter().all(Stream::is_ready) {
                let Some(json) = self.take() else { break };
                self.note(map);
                if self.row > self.page.offset {
                    if !self.written.is_empty() {
                        self.written.push(b',');
                    }
                    self.written.extend_from_slice(&json);
                }
            }
            if self.row == behind && self.streams.iter().any(|stream| stream.head().is_some()) {
                return Ok(More::Yes);
            }
            if self.streams.iter().all(Stream::is_over) {
                self.note(map);
                return Ok(More::No);
            }
        }
    }

    /// Remembers where the streams stand, at the window's ends, where pages were used up, and at the end of all.
    fn note(&mut self, map: &Mutex<TradesMap>) {
        let at_window = self.row == self.page.offset || self.row == self.page.end();
        let used_up = self.streams.iter().any(|stream| !stream.is_ready());
        if !at_window && !used_up && !self.streams.iter().all(Stream::is_over) {
            return;
        }
        let positions: Box<[u64]> = self.streams.iter().map(Stream::position).collect();
        if self.row == self.page.offset {
            self.begun = Some(positions.clone());
            if self.jumped {
                // There may be no such row.
                return;
            }
        }
        map.lock().learn(self.row, positions, !self.jumped);
    }

    /// Asks all accounts of which the next row is not known, at the same time.
    async fn fill(&mut self, needed: u64) -> Result<(), Error> {
        let spare = if self.source.span.is_open() { 0 } else { ROWS_SPARE };
        let rows_max = self.source.brokerage.trades_rows_max();
        let rows = u32::try_from(needed + spare).unwrap_or(u32::MAX).min(rows_max);
        let source = &self.source;
        let asked = self.streams.iter_mut().filter(|stream| !stream.is_ready());
        try_join_all(asked.map(|stream| stream.fetch(source, rows))).await?;
        Ok(())
    }

    /// The newest row of all.
    fn take(&mut self) -> Option<Vec<u8>> {
        let heads = self.streams.iter().enumerate().filter_map(|(at, stream)| Some((stream.head()?, at)));
        // Of equal instants the first stream's.
        let (_, at) = heads.reduce(|best, other| if other.0 > best.0 { other } else { best })?;
        self.row += 1;
        self.streams[at].take()
    }

    fn extent(&self, more: &More, row_cap: u64) -> Extent {
        let begun = self.begun.as_deref().unwrap_or_default();
        let left = self.streams.iter().zip(begun).map(|(stream, begun)| stream.left_from(*begun));
        let left = left.fold(0, u64::saturating_add);
        let total = match self.streams.as_slice() {
            // Behind the end, where nothing was read: the provider's own number.
            [stream] if self.jumped && self.row == self.page.offset => stream.total().min(self.row),
            _ => self.row,
        };
        let has_more = !matches!(more, More::No);
        let truncated = matches!(more, More::Unknown) || has_more && left > row_cap;
        Extent { total, has_more, truncated }
    }
}

#[cfg(test)]
mod tests;
