//! The trades of one account: rows in hand, and where the provider's list goes on.

use std::collections::VecDeque;

use bellbird_domain::{Account, AccountId, Trade};
use bellbird_providers::{Error, TradeQuery};
use jiff::Timestamp;

use super::Source;

/// The place of a list that is over: nothing is asked for from there.
const OVER: u64 = u64::MAX;

/// A row that belongs.
struct Row {
    /// Its number in the provider's list.
    at: u64,
    instant: Timestamp,
    json: Vec<u8>,
}

pub(super) struct Stream<'a> {
    account: &'a Account,
    in_hand: VecDeque<Row>,
    /// The number of the first row that was not asked for yet.
    next: u64,
    /// Rows in the provider's list, once it has said.
    total: Option<u64>,
    /// Whether no row of the last page belonged: then the largest page gets on with the fewest calls.
    fruitless: bool,
}

impl<'a> Stream<'a> {
    pub(super) fn new(account: &'a Account) -> Self {
        Self { account, in_hand: VecDeque::new(), next: 0, total: None, fruitless: false }
    }

    pub(super) fn account_id(&self) -> AccountId {
        self.account.id
    }

    /// Goes on at a row of the provider's list.
    pub(super) fn seek(&mut self, position: u64) {
        self.in_hand.clear();
        self.next = position;
        self.total = (position == OVER).then_some(OVER);
    }

    /// The number of the row that comes next.
    pub(super) fn position(&self) -> u64 {
        if self.is_over() { OVER } else { self.in_hand.front().map_or(self.next, |row| row.at) }
    }

    /// The instant of the row that comes next, when it is in hand.
    pub(super) fn head(&self) -> Option<Timestamp> {
        self.in_hand.front().map(|row| row.instant)
    }

    /// Whether nothing comes any more.
    pub(super) fn is_over(&self) -> bool {
        self.in_hand.is_empty() && self.total.is_some_and(|total| self.next >= total)
    }

    /// Whether it is known what comes next.
    pub(super) fn is_ready(&self) -> bool {
        !self.in_hand.is_empty() || self.is_over()
    }

    /// The next row, as it was written.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.in_hand.pop_front().map(|row| row.json)
    }

    pub(super) fn total(&self) -> u64 {
        self.total.unwrap_or(0)
    }

    /// Rows of the provider's list from a place on.
    pub(super) fn left_from(&self, position: u64) -> u64 {
        self.total().saturating_sub(position)
    }

    /// Asks for the next page. Rows outside the span are left out, those that belong are written.
    pub(super) async fn fetch(&mut self, source: &Source<'_>, rows: u32) -> Result<(), Error> {
        let query = TradeQuery { account: self.account, span: source.span, zone: source.zone };
        let (first, in_hand) = (self.next, &mut self.in_hand);
        let mut sink = |at: u64, trade: Trade<'_>| {
            if !source.span.contains(trade.time, source.zone) {
                return;
            }
            let mut json = Vec::new();
            (source.write)(&trade, &mut json);
            in_hand.push_back(Row { at: first + at, instant: trade.time.instant(), json });
        };
        let rows = if self.fruitless { source.brokerage.trades_rows_max() } else { rows };
        let page = source.brokerage.trades(source.call, source.grant, &query, first, rows, &mut sink).await?;
        self.next = first + page.rows;
        self.fruitless = self.in_hand.is_empty();
        // A page without rows is the end, whatever the total says.
        self.total = Some(if page.rows == 0 { page.total.min(first) } else { page.total.max(self.next) });
        Ok(())
    }
}
