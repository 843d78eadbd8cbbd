//! Reads one window of a connection's trades.
//!
//! The provider pages each account by offset and reports the total. So a window of one account is read directly at its
//! offset; several accounts are merged by time, newest first.

mod map;
mod stream;

use std::sync::Arc;

use bellbird_domain::{AccountId, Caller, DateFilter, Page, Trade};
use bellbird_providers::{Brokerage, CallContext, Error};
use futures_util::future::try_join_all;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use secrecy::SecretString;

use crate::window::Extent;
use crate::{ConnectionContext, ListKey, ReadError, Reads};
pub(crate) use map::TradesMap;
use stream::Stream;

/// Extra rows to request if `from` or `to` is given. The query covers one day more on each side, and those rows are
/// filtered out.
const ROWS_SPARE: u64 = 50;

pub struct TradesAnswer {
    /// The written rows, separated by commas.
    pub rows: Vec<u8>,
    pub extent: Extent,
    /// False if a provider failure left it unknown whether rows follow the window.
    pub complete: bool,
}

/// Whether rows follow the window.
enum More {
    Yes,
    No,
    /// The provider failed after the window was complete.
    Unknown,
}

/// Writes a trade as JSON.
pub type WriteTrade = fn(&Trade<'_>, &mut Vec<u8>);

impl Reads {
    /// Reads the trades of the window, newest first.
    ///
    /// Fails if one of the accounts fails. The trades map keeps what was learned, so the same request continues from
    /// there.
    pub async fn trades(
        &self,
        call: &CallContext,
        caller: &Caller,
        context: &ConnectionContext,
        list: ListKey,
        page: Page,
        write: WriteTrade,
    ) -> Result<TradesAnswer, ReadError> {
        let accounts = context.accounts_of(list.account_id)?;
        let brokerage = self.brokerage(&context.connection)?;
        if accounts.is_empty() || list.span.is_empty(&caller.timezone) {
            let extent = Extent { total: 0, has_more: false, truncated: false };
            return Ok(TradesAnswer { rows: Vec::new(), extent, complete: true });
        }
        let mut streams: Vec<Stream<'_>> = accounts.iter().map(Stream::new).collect();
        streams.sort_by_key(Stream::account_id);
        let map = self.trades_map(call, list, page, &streams, &caller.timezone);
        let (credentials, span, zone) = (&context.credentials, &list.span, &caller.timezone);
        let source = Source { brokerage, call, credentials, span, zone, write };
        let mut merge = Merge::new(source, streams, page);
        let more = merge.run(&map).await;
        self.inner.trades_maps.measure(&list, call.now);
        let more = more.map_err(|error| ReadError::from_provider(&error, context.connection.status))?;
        if call.calls() > 0 {
            self.record_refresh(context);
        }
        let extent = merge.extent(&more, self.inner.limits.row_cap);
        Ok(TradesAnswer { rows: merge.written, extent, complete: !matches!(more, More::Unknown) })
    }

    /// Finds the trades map of the list. A request with offset 0, or for other accounts or another timezone than
    /// before, starts a new map.
    fn trades_map(
        &self,
        call: &CallContext,
        list: ListKey,
        page: Page,
        streams: &[Stream<'_>],
        zone: &TimeZone,
    ) -> Arc<Mutex<TradesMap>> {
        let maps = &self.inner.trades_maps;
        let accounts: Vec<AccountId> = streams.iter().map(Stream::account_id).collect();
        if page.offset > 0
            && let Some(map) = maps.find(&list, call.now)
            && map.lock().is_for(&accounts, zone)
        {
            return map;
        }
        maps.insert(list, TradesMap::new(accounts, zone.clone()), call.now)
    }
}

/// All that a query for trades needs.
struct Source<'s> {
    brokerage: &'s dyn Brokerage,
    call: &'s CallContext,
    credentials: &'s SecretString,
    span: &'s DateFilter,
    zone: &'s TimeZone,
    write: WriteTrade,
}

/// The walk of one request through the merged lists of all accounts.
struct Merge<'m> {
    source: Source<'m>,
    /// Sorted by account id, which orders rows with equal instants.
    streams: Vec<Stream<'m>>,
    page: Page,
    /// Number of the next row of the merged list.
    row: u64,
    /// Whether the walk started at the window, in the middle of the list.
    jumped: bool,
    /// The position of each stream at the first row of the window.
    window_start: Option<Box<[u64]>>,
    written: Vec<u8>,
}

impl<'m> Merge<'m> {
    fn new(source: Source<'m>, streams: Vec<Stream<'m>>, page: Page) -> Self {
        Self { source, streams, page, row: 0, jumped: false, window_start: None, written: Vec::new() }
    }

    /// Reads until the window is complete and it is known whether another row follows.
    async fn run(&mut self, map: &Mutex<TradesMap>) -> Result<More, Error> {
        let cursor = map.lock().nearest(self.page.offset);
        self.seek(cursor);
        self.skip_filtered_head(map).await?;
        self.jump();
        let more = self.advance(map).await?;
        if self.jumped && self.row == self.page.offset && !self.source.span.is_open() {
            // No row of the range lies at the offset. The provider's total includes filtered rows, so only a walk from
            // the start counts the rows of the range.
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

    /// Reads past the rows that `to` filters out. The query covers one day more than `to`, so only reading shows which
    /// rows those are. Behind them the provider's row numbers are those of the filtered list.
    async fn skip_filtered_head(&mut self, map: &Mutex<TradesMap>) -> Result<(), Error> {
        let Some(unfiltered_before) = self.source.span.unfiltered_before(self.source.zone) else { return Ok(()) };
        while self.row < self.page.offset && self.streams.len() == 1 && !self.streams[0].is_exhausted() {
            match self.streams[0].head() {
                Some(head) if head < unfiltered_before => return Ok(()),
                Some(_) => {
                    self.take();
                }
                None => {
                    self.record_positions(map);
                    self.fill(u64::from(self.source.brokerage.trades_rows_max())).await?;
                }
            }
        }
        Ok(())
    }

    /// Moves directly to the window if there is only one account: the provider numbers its rows, so the rows between
    /// need not be read.
    fn jump(&mut self) {
        if let [stream] = self.streams.as_mut_slice()
            && self.row < self.page.offset
            && !stream.is_exhausted()
        {
            stream.seek(stream.position().saturating_add(self.page.offset - self.row));
            self.row = self.page.offset;
            self.jumped = true;
        }
    }

    async fn advance(&mut self, map: &Mutex<TradesMap>) -> Result<More, Error> {
        let window_end = self.page.end();
        loop {
            self.record_positions(map);
            match self.fill(window_end + 1 - self.row).await {
                // The window is complete. Only `has_more` stays unknown.
                Err(error) if self.row == window_end && error.is_transient() => return Ok(More::Unknown),
                outcome => outcome?,
            }
            while self.row < window_end && self.streams.iter().all(Stream::is_ready) {
                let Some(json) = self.take() else { break };
                self.record_positions(map);
                if self.row > self.page.offset {
                    if !self.written.is_empty() {
                        self.written.push(b',');
                    }
                    self.written.extend_from_slice(&json);
                }
            }
            if self.row == window_end && self.streams.iter().any(|stream| stream.head().is_some()) {
                return Ok(More::Yes);
            }
            if self.streams.iter().all(Stream::is_exhausted) {
                self.record_positions(map);
                return Ok(More::No);
            }
        }
    }

    /// Stores the positions of the streams at both ends of the window, after each used-up page, and at the end of the
    /// list.
    fn record_positions(&mut self, map: &Mutex<TradesMap>) {
        let at_window = self.row == self.page.offset || self.row == self.page.end();
        let used_up = self.streams.iter().any(|stream| !stream.is_ready());
        if !at_window && !used_up && !self.streams.iter().all(Stream::is_exhausted) {
            return;
        }
        let positions: Box<[u64]> = self.streams.iter().map(Stream::position).collect();
        if self.row == self.page.offset {
            self.window_start = Some(positions.clone());
            if self.jumped {
                // This row may not exist.
                return;
            }
        }
        map.lock().learn(self.row, positions, !self.jumped);
    }

    /// Fetches the next page of each account whose next row is unknown, concurrently.
    async fn fill(&mut self, needed: u64) -> Result<(), Error> {
        let spare = if self.source.span.is_open() { 0 } else { ROWS_SPARE };
        let rows_max = self.source.brokerage.trades_rows_max();
        let rows = u32::try_from(needed + spare).unwrap_or(u32::MAX).min(rows_max);
        let source = &self.source;
        let empty = self.streams.iter_mut().filter(|stream| !stream.is_ready());
        try_join_all(empty.map(|stream| stream.fetch(source, rows))).await?;
        Ok(())
    }

    /// Takes the newest row of all streams.
    fn take(&mut self) -> Option<Vec<u8>> {
        let heads = self.streams.iter().enumerate().filter_map(|(at, stream)| Some((stream.head()?, at)));
        // Of rows with equal instants, the first stream wins.
        let (_, at) = heads.reduce(|best, other| if other.0 > best.0 { other } else { best })?;
        self.row += 1;
        self.streams[at].take()
    }

    fn extent(&self, more: &More, row_cap: u64) -> Extent {
        let window_start = self.window_start.as_deref().unwrap_or_default();
        let streams = self.streams.iter().zip(window_start);
        let remaining = streams.map(|(stream, start)| stream.remaining_from(*start)).fold(0, u64::saturating_add);
        let total = match self.streams.as_slice() {
            // The window lies behind the end and nothing was read, so the provider's total counts.
            [stream] if self.jumped && self.row == self.page.offset => stream.total().min(self.row),
            _ => self.row,
        };
        let has_more = !matches!(more, More::No);
        let truncated = matches!(more, More::Unknown) || has_more && remaining > row_cap;
        Extent { total, has_more, truncated }
    }
}

#[cfg(test)]
mod tests;
