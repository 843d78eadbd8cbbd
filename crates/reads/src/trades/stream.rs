//! Reads the trades of one account page by page, and buffers the rows of the last page.

use std::collections::VecDeque;

use bellbird_domain::{Account, AccountId, Trade};
use bellbird_providers::{Error, TradeQuery};
use jiff::Timestamp;

use super::Source;

/// Position of an exhausted list. Nothing is fetched from there.
const END: u64 = u64::MAX;

/// A row inside the date range.
struct Row {
    /// Number in the provider's list.
    at: u64,
    instant: Timestamp,
    json: Vec<u8>,
}

pub(super) struct Stream<'a> {
    account: &'a Account,
    buffered: VecDeque<Row>,
    /// Number of the first row that was not fetched yet.
    next: u64,
    /// Number of rows in the provider's list, once known.
    total: Option<u64>,
    /// Whether no row of the last page was inside the range. Then the largest page needs the fewest calls.
    is_last_page_empty: bool,
}

impl<'a> Stream<'a> {
    pub(super) fn new(account: &'a Account) -> Self {
        Self { account, buffered: VecDeque::new(), next: 0, total: None, is_last_page_empty: false }
    }

    pub(super) fn account_id(&self) -> AccountId {
        self.account.id
    }

    /// Continues at a row of the provider's list.
    pub(super) fn seek(&mut self, position: u64) {
        self.buffered.clear();
        self.next = position;
        self.total = (position == END).then_some(END);
    }

    /// Number of the next row.
    pub(super) fn position(&self) -> u64 {
        if self.is_exhausted() { END } else { self.buffered.front().map_or(self.next, |row| row.at) }
    }

    /// Instant of the next row, if it is buffered.
    pub(super) fn head(&self) -> Option<Timestamp> {
        self.buffered.front().map(|row| row.instant)
    }

    /// Whether no row follows.
    pub(super) fn is_exhausted(&self) -> bool {
        self.buffered.is_empty() && self.total.is_some_and(|total| self.next >= total)
    }

    /// Whether the next row is buffered or known not to exist.
    pub(super) fn is_ready(&self) -> bool {
        !self.buffered.is_empty() || self.is_exhausted()
    }

    /// Takes the next row, as JSON.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.buffered.pop_front().map(|row| row.json)
    }

    pub(super) fn total(&self) -> u64 {
        self.total.unwrap_or(0)
    }

    /// Number of rows in the provider's list from a position on.
    pub(super) fn remaining_from(&self, position: u64) -> u64 {
        self.total().saturating_sub(position)
    }

    /// Fetches the next page and buffers the rows inside the range.
    pub(super) async fn fetch(&mut self, source: &Source<'_>, rows: u32) -> Result<(), Error> {
        let query = TradeQuery { account: self.account, span: source.span, zone: source.zone };
        let (first, buffered) = (self.next, &mut self.buffered);
        let mut sink = |at: u64, trade: Trade<'_>| {
            if !source.span.contains(trade.time, source.zone) {
                return;
            }
            let mut json = Vec::new();
            (source.write)(&trade, &mut json);
            buffered.push_back(Row { at: first + at, instant: trade.time.instant(), json });
        };
        let rows = if self.is_last_page_empty { source.brokerage.trades_rows_max() } else { rows };
        let page = source.brokerage.trades(source.call, source.credentials, &query, first, rows, &mut sink).await?;
        self.next = first + page.rows;
        self.is_last_page_empty = self.buffered.is_empty();
        // An empty page is the end, whatever the total says.
        self.total = Some(if page.rows == 0 { page.total.min(first) } else { page.total.max(self.next) });
        Ok(())
    }
}
