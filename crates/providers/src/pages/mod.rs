//! Reads a provider's transactions and trades page by page. All reads of rows go through here.
//!
//! A page reader holds where the next page begins, and no row. It passes on the rows of the query's
//! range as each page comes in. After an error, or if the future is dropped, the next call reads
//! the same page again, so the caller must discard the rows of the failed call. A list that cannot
//! be read on fails for good ([`TransactionPages::is_broken`]). Deadline and budget are those of
//! the [`CallContext`] of each call.

use std::ops::ControlFlow;

use bellbird_domain::date::DayFinder;
use bellbird_domain::{Bound, DateFilter, DateRange, Trade, Transaction};
use jiff::Timestamp;
use jiff::civil::Date;
use secrecy::SecretString;

use crate::{
    Banking, Brokerage, CallContext, Cursor, Error, PageRequest, RowSink, TradeQuery, TradeSink,
    TransactionQuery,
};

/// A list fails after this many pages. Akahu has the smallest pages, 100 rows
/// (docs/providers/akahu.md#pages): there the limit is 200,000 rows.
pub const PAGES_MAX: u32 = 2_000;

const TOO_MANY_PAGES: Error = Error::Malformed("too many pages");

/// Fails if the list is broken, or has too many pages.
fn check(broken: &mut Option<Error>, pages_read: u32) -> Result<(), Error> {
    if broken.is_none() && pages_read == PAGES_MAX {
        *broken = Some(TOO_MANY_PAGES);
    }
    broken.clone().map_or(Ok(()), Err)
}

/// A provider's list of transactions.
#[derive(Clone, Copy)]
pub struct TransactionList<'l> {
    pub provider: &'l dyn Banking,
    pub credentials: &'l SecretString,
    pub query: TransactionQuery<'l>,
    /// Leaves out later rows than this, and does not ask the provider for them.
    pub until: Option<Timestamp>,
}

/// Reads the pages of a list of transactions, newest first. A row that moves to the next page
/// meanwhile comes twice.
#[derive(Default)]
pub struct TransactionPages {
    /// Of the next page. `None` for the first.
    cursor: Option<Cursor>,
    is_ended: bool,
    pages_read: u32,
    broken: Option<Error>,
}

impl TransactionPages {
    /// Starts at the page of a cursor, or at the first.
    pub fn at(cursor: Option<Cursor>) -> Self {
        Self {
            cursor,
            ..Self::default()
        }
    }

    /// Behind the last row of a list. No page follows.
    pub fn at_end() -> Self {
        Self {
            is_ended: true,
            ..Self::default()
        }
    }

    /// The cursor of the next page. `None` for the first page, and at the end.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.cursor.as_ref()
    }

    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether every further call fails.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Reads the next page, of at most `rows` rows, and passes its rows of the query's range to
    /// `sink`. Returns whether pages may follow. A page may have no rows.
    pub async fn next(
        &mut self,
        list: &TransactionList<'_>,
        context: &CallContext,
        rows: u32,
        sink: &mut RowSink<'_>,
    ) -> Result<bool, Error> {
        if self.is_ended {
            return Ok(false);
        }
        check(&mut self.broken, self.pages_read)?;
        let (range, until) = (list.query.interval, list.until);
        let queried = DateRange {
            to: until.map_or(range.to, Bound::Instant),
            ..*range
        };
        let query = TransactionQuery {
            interval: &queried,
            ..list.query
        };
        let mut days = DayFinder::new(query.zone);
        let mut in_range = |row: Transaction<'_>| {
            let day = row.day.unwrap_or_else(|| days.day_of(row.instant));
            if until.is_none_or(|until| row.instant <= until) && range.contains(row.instant, || day)
            {
                sink(&row, day);
            }
        };
        let page = PageRequest {
            cursor: self.cursor.as_ref(),
            rows: rows.min(list.provider.page_rows_max()),
        };
        let next = list
            .provider
            .transactions(context, list.credentials, &query, page, &mut in_range)
            .await?;
        self.pages_read += 1;
        if next.is_some() && next == self.cursor {
            return Err(self
                .broken
                .insert(Error::Malformed("the next page is the current page"))
                .clone());
        }
        (self.is_ended, self.cursor) = (next.is_none(), next);
        Ok(!self.is_ended)
    }

    /// Reads all further pages, of the largest size. After [`ControlFlow::Break`] no row is passed
    /// and no page read.
    pub async fn read_to_end(
        &mut self,
        list: &TransactionList<'_>,
        context: &CallContext,
        rows: &mut (dyn FnMut(&Transaction<'_>) -> ControlFlow<()> + Send),
    ) -> Result<(), Error> {
        loop {
            let mut flow = ControlFlow::Continue(());
            let mut sink = |row: &Transaction<'_>, _: Date| {
                if flow.is_continue() {
                    flow = rows(row);
                }
            };
            let has_next = self.next(list, context, u32::MAX, &mut sink).await;
            if flow.is_break() || !has_next? {
                return Ok(());
            }
        }
    }
}

/// A provider's list of trades of one account.
#[derive(Clone, Copy)]
pub struct TradeList<'l> {
    pub provider: &'l dyn Brokerage,
    pub credentials: &'l SecretString,
    pub query: TradeQuery<'l>,
    /// As [`TransactionList::until`].
    pub until: Option<Timestamp>,
}

/// Reads the pages of a list of trades, newest first.
///
/// Fails for good with [`Error::Unavailable`] if the total changes between two pages, since a row
/// was then added or removed. Equal trades have equal ids, so a row that moved to the next page
/// could not be distinguished from a second equal trade. The caller can begin again.
#[derive(Default)]
pub struct TradePages {
    row: u64,
    total: Option<u64>,
    stated_total: Option<u64>,
    pages_read: u32,
    broken: Option<Error>,
}

impl TradePages {
    /// Starts at a row of the provider's list.
    pub fn at(row: u64) -> Self {
        Self {
            row,
            ..Self::default()
        }
    }

    /// Behind the last row of a list. No page follows.
    pub fn at_end() -> Self {
        Self {
            row: u64::MAX,
            total: Some(u64::MAX),
            ..Self::default()
        }
    }

    /// The number of the next row in the provider's list.
    pub fn row(&self) -> u64 {
        self.row
    }

    /// The number of rows in the provider's list, once a page was read.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// The total that the provider stated with the last page, which may be larger than
    /// [`Self::total`].
    pub fn stated_total(&self) -> Option<u64> {
        self.stated_total
    }

    pub fn is_ended(&self) -> bool {
        self.total.is_some_and(|total| self.row >= total)
    }

    /// Whether every further call fails.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Reads the next page, of at most `rows` rows, and passes its rows of the query's range to
    /// `sink`, with their numbers in the provider's list. Returns whether pages may follow. A page
    /// may have no rows.
    pub async fn next(
        &mut self,
        list: &TradeList<'_>,
        context: &CallContext,
        rows: u32,
        sink: &mut TradeSink<'_>,
    ) -> Result<bool, Error> {
        if self.is_ended() {
            return Ok(false);
        }
        check(&mut self.broken, self.pages_read)?;
        let (first, range, until) = (self.row, list.query.span, list.until);
        let queried = DateFilter {
            to: until.map(Bound::Instant).or(range.to),
            ..*range
        };
        let query = TradeQuery {
            span: &queried,
            ..list.query
        };
        let mut in_range = |at: u64, row: Trade<'_>| {
            if until.is_none_or(|until| row.time.instant() <= until)
                && range.contains(row.time, query.zone)
            {
                sink(first + at, row);
            }
        };
        let rows = rows.min(list.provider.trades_rows_max());
        let page = list
            .provider
            .trades(
                context,
                list.credentials,
                &query,
                first,
                rows,
                &mut in_range,
            )
            .await?;
        self.pages_read += 1;
        self.stated_total = Some(page.total);
        if self.total.is_some_and(|total| total != page.total) {
            return Err(self
                .broken
                .insert(Error::unavailable("the list changed while it was read"))
                .clone());
        }
        self.row += page.rows;
        // A page without rows is the last page, even if the total is larger.
        self.total = Some(if page.rows == 0 {
            page.total.min(first)
        } else {
            page.total.max(self.row)
        });
        Ok(!self.is_ended())
    }

    /// Reads all further pages, of the largest size. After [`ControlFlow::Break`] no row is passed
    /// and no page read.
    pub async fn read_to_end(
        &mut self,
        list: &TradeList<'_>,
        context: &CallContext,
        rows: &mut (dyn FnMut(&Trade<'_>) -> ControlFlow<()> + Send),
    ) -> Result<(), Error> {
        loop {
            let mut flow = ControlFlow::Continue(());
            let mut sink = |_: u64, row: Trade<'_>| {
                if flow.is_continue() {
                    flow = rows(&row);
                }
            };
            let has_next = self.next(list, context, u32::MAX, &mut sink).await?;
            if flow.is_break() || !has_next {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests;
