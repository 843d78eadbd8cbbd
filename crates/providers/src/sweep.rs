//! Sweeps: read all rows of a date range, page after page.
//!
//! A sweep keeps nothing. It passes rows on as each page comes in. The rows passed by a sweep that fails are an unknown
//! part of the list, so the caller must discard them or be ready to see them again.

use std::ops::ControlFlow;

use bellbird_domain::{Trade, Transaction};
use secrecy::SecretString;

use crate::{Banking, Brokerage, CallContext, Error, PageRequest, TradeQuery, TransactionQuery};

/// A sweep fails after this many pages. Akahu has the smallest pages, 100 rows (docs/providers/akahu.md#pages): there
/// the limit is 200,000 rows.
pub const PAGES_MAX: u32 = 2_000;

/// Receives the transactions of a sweep. [`ControlFlow::Break`] ends the sweep.
pub type TransactionSweep<'s> = dyn for<'row> FnMut(&Transaction<'row>) -> ControlFlow<()> + Send + 's;

/// Receives the trades of a sweep. [`ControlFlow::Break`] ends the sweep.
pub type TradeSweep<'s> = dyn for<'row> FnMut(&Trade<'row>) -> ControlFlow<()> + Send + 's;

/// Passes the transactions inside the query's interval to `rows`, newest first. A row that moves to the next page
/// during the sweep is passed twice. After [`ControlFlow::Break`] the sweep passes no row and reads no page.
pub async fn transactions(
    banking: &dyn Banking,
    context: &CallContext,
    credentials: &SecretString,
    query: &TransactionQuery<'_>,
    rows: &mut TransactionSweep<'_>,
) -> Result<(), Error> {
    let mut flow = ControlFlow::Continue(());
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let page = PageRequest { cursor: cursor.as_ref(), rows: banking.page_rows_max() };
        let mut sink = |row: Transaction<'_>| {
            if flow.is_continue() && query.interval.contains(row.instant, || row.local_day(query.zone)) {
                flow = rows(&row);
            }
        };
        let next = banking.transactions(context, credentials, query, page, &mut sink).await?;
        if next.is_none() || flow.is_break() {
            return Ok(());
        }
        if next == cursor {
            return Err(Error::Malformed("the next page is the current page"));
        }
        cursor = next;
    }
    Err(TOO_MANY_PAGES)
}

/// Passes the trades of an account inside the query's span to `rows`, newest first. After [`ControlFlow::Break`] the
/// sweep passes no row and reads no page.
///
/// Fails with [`Error::Unavailable`] if the total changes between two pages, since a row was then added or removed.
/// Equal trades have equal ids, so a row that moved to the next page could not be distinguished from a second equal
/// trade. The caller can retry.
pub async fn trades(
    brokerage: &dyn Brokerage,
    context: &CallContext,
    credentials: &SecretString,
    query: &TradeQuery<'_>,
    rows: &mut TradeSweep<'_>,
) -> Result<(), Error> {
    let mut flow = ControlFlow::Continue(());
    let (mut offset, mut total) = (0, None);
    for _ in 0..PAGES_MAX {
        let mut sink = |_: u64, row: Trade<'_>| {
            if flow.is_continue() && query.span.contains(row.time, query.zone) {
                flow = rows(&row);
            }
        };
        let page =
            brokerage.trades(context, credentials, query, offset, brokerage.trades_rows_max(), &mut sink).await?;
        if total.is_some_and(|total| total != page.total) {
            return Err(Error::unavailable("the list changed while it was read"));
        }
        offset += page.rows;
        // A page without rows is the last page, even if the total is larger.
        if flow.is_break() || page.rows == 0 || offset >= page.total {
            return Ok(());
        }
        total = Some(page.total);
    }
    Err(TOO_MANY_PAGES)
}

const TOO_MANY_PAGES: Error = Error::Malformed("too many pages");

#[cfg(test)]
mod tests;
