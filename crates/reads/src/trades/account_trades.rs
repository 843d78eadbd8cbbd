//! Reads the trades of one account page by page, and buffers the rows of the last page.

use std::collections::VecDeque;

use bellbird_domain::{Account, AccountId, Trade};
use bellbird_providers::pages::{TradeList, TradePages};
use bellbird_providers::{Error, TradeQuery};
use jiff::Timestamp;

use super::MergedQuery;

/// Position of an exhausted list. Nothing is fetched from there.
const END: u64 = u64::MAX;

/// A row inside the date range.
struct Row {
    /// Number in the provider's list.
    number: u64,
    instant: Timestamp,
    json: Vec<u8>,
}

pub(super) struct AccountTrades<'a> {
    account: &'a Account,
    buffered: VecDeque<Row>,
    /// At the first row that was not fetched yet.
    pages: TradePages,
    /// The provider's total when the position of `pages` was true.
    stated_total: Option<u64>,
    /// Whether no row of the last page was inside the range. Then the largest page needs the fewest
    /// calls.
    is_last_page_empty: bool,
}

impl<'a> AccountTrades<'a> {
    pub(super) fn new(account: &'a Account) -> Self {
        let (buffered, pages) = (VecDeque::new(), TradePages::default());
        Self {
            account,
            buffered,
            pages,
            stated_total: None,
            is_last_page_empty: false,
        }
    }

    pub(super) fn account_id(&self) -> AccountId {
        self.account.id
    }

    /// Continues at a row of the provider's list, as it was when the provider stated this total.
    pub(super) fn seek(&mut self, position: u64, stated_total: Option<u64>) {
        self.buffered.clear();
        self.stated_total = stated_total;
        self.pages = if position == END {
            TradePages::at_end()
        } else {
            TradePages::at(position)
        };
    }

    /// Number of the next row.
    pub(super) fn position(&self) -> u64 {
        if self.is_exhausted() {
            END
        } else {
            self.buffered
                .front()
                .map_or(self.pages.row(), |row| row.number)
        }
    }

    /// Instant of the next row, if it is buffered.
    pub(super) fn head(&self) -> Option<Timestamp> {
        self.buffered.front().map(|row| row.instant)
    }

    /// Whether no row follows.
    pub(super) fn is_exhausted(&self) -> bool {
        self.buffered.is_empty() && self.pages.is_ended()
    }

    /// Whether the next row is buffered or known not to exist.
    pub(super) fn is_ready(&self) -> bool {
        !self.buffered.is_empty() || self.is_exhausted()
    }

    /// Takes the next row, as JSON.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.buffered.pop_front().map(|row| row.json)
    }

    pub(super) fn stated_total(&self) -> Option<u64> {
        self.stated_total
    }

    pub(super) fn total(&self) -> u64 {
        self.pages.total().unwrap_or(0)
    }

    /// Number of rows in the provider's list from a position on.
    pub(super) fn remaining_from(&self, position: u64) -> u64 {
        self.total().saturating_sub(position)
    }

    /// Fetches the next page and buffers the rows inside the range.
    ///
    /// If the provider's total is smaller than before, rows before the page may be gone, and have
    /// moved it by as many. Then the page begins so much earlier, because a row that comes twice
    /// does less harm than one that never comes.
    pub(super) async fn fetch(&mut self, query: &MergedQuery<'_>, rows: u32) -> Result<(), Error> {
        let MergedQuery {
            brokerage: provider,
            call,
            credentials,
            span,
            zone,
            write,
        } = *query;
        let query = TradeQuery {
            account: self.account,
            span,
            zone,
        };
        let list = TradeList {
            provider,
            credentials,
            query,
            until: None,
        };
        let rows = if self.is_last_page_empty {
            u32::MAX
        } else {
            rows
        };
        let mut first = self.pages.row();
        loop {
            let buffered = &mut self.buffered;
            let mut sink = |number: u64, trade: Trade<'_>| {
                let mut json = Vec::new();
                write(&trade, &mut json);
                buffered.push_back(Row {
                    number,
                    instant: trade.time.instant(),
                    json,
                });
            };
            // A window is read again and again, so its list may have changed since the page before.
            let mut pages = TradePages::at(first);
            pages.next(&list, call, rows, &mut sink).await?;
            let before = std::mem::replace(&mut self.stated_total, pages.stated_total());
            let vanished = before
                .zip(self.stated_total)
                .map_or(0, |(before, now)| before.saturating_sub(now));
            if vanished == 0 || first == 0 {
                self.pages = pages;
                self.is_last_page_empty = self.buffered.is_empty();
                return Ok(());
            }
            self.buffered.clear();
            first = first.saturating_sub(vanished);
        }
    }
}
