//! Reading an interval to its end, page after page.
//!
//! Nothing is kept: rows are handed over as their page comes. When a sweep fails, what it handed over is a part of the
//! list only, and nobody knows which.

use std::ops::ControlFlow;

use bellbird_domain::{Trade, Transaction};
use secrecy::SecretString;

use crate::{Banking, Brokerage, Call, Error, PageRequest, TradeQuery, TransactionQuery};

/// More pages than this are no list any more: of the smallest pages, those of Akahu (docs/providers/akahu.md#pages),
/// 200,000 rows.
pub const PAGES_MAX: u32 = 2_000;

/// What takes the transactions of a sweep, and says whether it wants more.
pub type TransactionSweep<'s> = dyn for<'row> FnMut(&Transaction<'row>) -> ControlFlow<()> + Send + 's;

/// What takes the trades of a sweep, and says whether it wants more.
pub type TradeSweep<'s> = dyn for<'row> FnMut(&Trade<'row>) -> ControlFlow<()> + Send + 's;

/// Hands over the transactions inside the query's interval, newest first, as often as a page has them: a row that moved
/// to the next page meanwhile comes twice. After [`ControlFlow::Break`] comes no other row, and no page is read.
///
/// # Errors
/// Those of [`Banking::transactions`], and [`Error::Malformed`] for pages without end.
pub async fn transactions(
    banking: &dyn Banking,
    call: &Call,
    grant: &SecretString,
    query: &TransactionQuery<'_>,
    rows: &mut TransactionSweep<'_>,
) -> Result<(), Error> {
    let mut wanted = ControlFlow::Continue(());
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let page = PageRequest { cursor: cursor.as_ref(), rows: banking.page_rows_max() };
        let mut sink = |row: Transaction<'_>| {
            if wanted.is_continue() && query.interval.contains(row.instant, || row.local_day(query.zone)) {
                wanted = rows(&row);
            }
        };
        let next = banking.transactions(call, grant, query, page, &mut sink).await?;
        if next.is_none() || wanted.is_break() {
            return Ok(());
        }
        if next == cursor {
            return Err(Error::Malformed("a page names itself as the next"));
        }
        cursor = next;
    }
    Err(WITHOUT_END)
}

/// Hands over the trades of an account inside the query's span, newest first. After [`ControlFlow::Break`] comes no
/// other row, and no page is read.
///
/// Equal trades have equal ids, so that nobody could tell a row that moved to the next page from another one like it.
/// A row that comes or goes between two pages shows in their totals: then the sweep fails, and may be repeated.
///
/// # Errors
/// Those of [`Brokerage::trades`], [`Error::Unavailable`] when the list changed, and [`Error::Malformed`] for pages
/// without end.
pub async fn trades(
    brokerage: &dyn Brokerage,
    call: &Call,
    grant: &SecretString,
    query: &TradeQuery<'_>,
    rows: &mut TradeSweep<'_>,
) -> Result<(), Error> {
    let mut wanted = ControlFlow::Continue(());
    let (mut offset, mut total) = (0, None);
    for _ in 0..PAGES_MAX {
        let mut sink = |_: u64, row: Trade<'_>| {
            if wanted.is_continue() && query.span.contains(row.time, query.zone) {
                wanted = rows(&row);
            }
        };
        let page = brokerage.trades(call, grant, query, offset, brokerage.trades_rows_max(), &mut sink).await?;
        if total.is_some_and(|total| total != page.total) {
            return Err(Error::unavailable("the list changed while it was read"));
        }
        offset += page.rows;
        // A page without rows is the end, whatever the total says.
        if wanted.is_break() || page.rows == 0 || offset >= page.total {
            return Ok(());
        }
        total = Some(page.total);
    }
    Err(WITHOUT_END)
}

const WITHOUT_END: Error = Error::Malformed("pages without end");

#[cfg(test)]
mod tests;
