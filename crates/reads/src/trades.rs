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
    ) -> Result<(Vec<u8>, Extent), ReadError> {
        let accounts = scope.accounts_of(list.account_id)?;
        let brokerage = self.brokerage(&scope.connection)?;
        if accounts.is_empty() || list.span.is_empty(&caller.timezone) {
            return Ok((Vec::new(), Extent { total: 0, has_more: false, truncated: false }));
        }
        let mut streams: Vec<Stream<'_>> = accounts.iter().map(Stream::new).collect();
        streams.sort_by_key(Stream::account_id);
        let map = self.trades_map(call, list, page, &streams);
        let source = Source { brokerage, call, grant: &scope.grant, span: &list.span, zone: &caller.timezone, write };
        let mut merge = Merge::new(source, streams, page);
        let outcome = merge.run(&map).await;
        if call.calls() > 0 && outcome.is_ok() {
            self.note_answered(scope);
        }
        match outcome {
            Ok(has_more) => {
                let extent = merge.extent(has_more, self.inner.limits.row_cap);
                Ok((merge.written, extent))
            }
            Err(error) => Err(ReadError::from_provider(&error, scope.connection.status)),
        }
    }

    /// The map of the list. A request from the start, and one about other accounts than before, begins a new one.
    fn trades_map(&self, call: &Call, list: TradesKey, page: Page, streams: &[Stream<'_>]) -> Arc<Mutex<TradesMap>> {
        let maps = &self.inner.trade_maps;
        let accounts: Vec<AccountId> = streams.iter().map(Stream::account_id).collect();
        if page.offset > 0
            && let Some(map) = maps.renew(&list, call.now)
            && map.lock().is_of(&accounts)
        {
            return map;
        }
        let map = Arc::new(Mutex::new(TradesMap::new(accounts)));
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
    async fn run(&mut self, map: &Mutex<TradesMap>) -> Result<bool, Error> {
        let mark = map.lock().nearest(self.page.offset);
        self.seek(mark);
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

    /// The rows of one account are numbered by the provider: unless newer rows are left out, a window starts at its own
    /// offset, whatever is known of the rows before it.
    fn jump(&mut self) {
        if let ([stream], None) = (self.streams.as_mut_slice(), self.source.span.to)
            && self.row < self.page.offset
        {
            stream.seek(self.page.offset);
            self.row = self.page.offset;
            self.jumped = true;
        }
    }

    async fn advance(&mut self, map: &Mutex<TradesMap>) -> Result<bool, Error> {
        let behind = self.page.end();
        loop {
            self.note(map);
            self.fill(behind + 1 - self.row).await?;
            while self.row < behind && self.streams.iter().all(Stream::is_ready) {
                let Some(json) = self.take() else { return Ok(false) };
                self.note(map);
                if self.row > self.page.offset {
                    if !self.written.is_empty() {
                        self.written.push(b',');
                    }
                    self.written.extend_from_slice(&json);
                }
            }
            if self.row == behind && self.streams.iter().any(|stream| stream.head().is_some()) {
                return Ok(true);
            }
            if self.streams.iter().all(Stream::is_over) {
                return Ok(false);
            }
        }
    }

    /// Remembers where the streams stand, at the window's ends and where pages were used up.
    fn note(&mut self, map: &Mutex<TradesMap>) {
        let at_window = self.row == self.page.offset || self.row == self.page.end();
        if !at_window && self.streams.iter().all(|stream| stream.head().is_some() || stream.is_over()) {
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
        map.lock().learn(self.row, positions);
    }

    /// Asks all accounts of which the next row is not known, at the same time.
    async fn fill(&mut self, needed: u64) -> Result<(), Error> {
        let spare = if self.source.span.is_open() { 0 } else { ROWS_SPARE };
        let rows_max = self.source.brokerage.trades_rows_max();
        let rows = u32::try_from(needed + spare).unwrap_or(u32::MAX).min(rows_max);
        let in_hand: u64 = self.streams.iter().map(|stream| stream.rows_in_hand() + u64::from(rows)).sum();
        // Rows that are sure to lie before the window are not written.
        let near = self.row + in_hand > self.page.offset;
        let source = &self.source;
        let asked = self.streams.iter_mut().filter(|stream| !stream.is_ready());
        try_join_all(asked.map(|stream| stream.fetch(source, rows, near))).await?;
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

    fn extent(&self, has_more: bool, row_cap: u64) -> Extent {
        let begun = self.begun.as_deref().unwrap_or_default();
        let left: u64 = self.streams.iter().zip(begun).map(|(stream, begun)| stream.left_from(*begun)).sum();
        let total = if self.source.span.is_open() && self.row == self.page.offset && self.streams.len() == 1 {
            // Behind the end, where nothing was read: the provider's own number.
            self.streams.iter().map(Stream::total).sum::<u64>().min(self.row)
        } else {
            self.row
        };
        Extent { total, has_more, truncated: has_more && left > row_cap }
    }
}

#[cfg(test)]
mod tests;
