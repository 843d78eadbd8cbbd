//! Page readers over simulated providers, with regular and with faulty paging.

use std::time::Duration;

use async_trait::async_trait;
use bellbird_domain::{Account, Bound, DateFilter, DateRange, Trade, Transaction};
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::simulated::{self, NOW, Row, account};
use crate::{
    Banking, Brokerage, HoldingSink, TradeQuery, TradeSink, TransactionQuery, TransactionSink,
};

/// A row. Rows are one minute apart, newest first.
fn row(number: u64) -> Row {
    Row::new("1", number, at(number).as_second())
}

fn at(row: u64) -> Timestamp {
    simulated::at(NOW - 60 * i64::try_from(row).unwrap())
}

fn context() -> CallContext {
    CallContext::new(
        Instant::now() + Duration::from_secs(20),
        simulated::at(NOW),
        crate::Cause::Schedule,
    )
}

/// Maps the number of a page to its rows and the number of the next page.
type ListedPages = fn(u64) -> Result<(Vec<u64>, Option<u64>), Error>;

struct Bank {
    pages: ListedPages,
    requested_pages: Mutex<Vec<u64>>,
}

#[async_trait]
impl Banking for Bank {
    fn page_rows_max(&self) -> u32 {
        1_000
    }

    async fn transactions(
        &self,
        _: &CallContext,
        _: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut TransactionSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        assert_eq!(page.rows, 1_000, "the largest pages");
        let number = page.cursor.map_or(0, |cursor| cursor.0.parse().unwrap());
        self.requested_pages.lock().push(number);
        let (numbers, next) = (self.pages)(number)?;
        for number in numbers {
            rows(row(number).transaction(&query.accounts[0]));
        }
        Ok(next.map(|next| Cursor(next.to_string())))
    }
}

/// The result of a read to the end. `requests` holds the numbers of the requested pages, or the
/// offsets.
#[derive(Debug, PartialEq)]
struct Outcome {
    rows: Vec<String>,
    outcome: Result<(), Error>,
    requests: Vec<u64>,
}

fn outcome_of(rows: &[u64], outcome: Result<(), Error>, requests: Vec<u64>) -> Outcome {
    Outcome {
        rows: rows.iter().map(u64::to_string).collect(),
        outcome,
        requests,
    }
}

/// Reads the rows 2 to 100 and breaks after `rows_max` rows.
async fn read_transactions(pages: ListedPages, rows_max: usize) -> Outcome {
    let bank = Bank {
        pages,
        requested_pages: Mutex::default(),
    };
    let accounts = [account("1")];
    let dates = DateRange {
        from: Bound::Instant(at(100)),
        to: Bound::Instant(at(2)),
    };
    let query = TransactionQuery {
        accounts: &accounts,
        one_account: false,
        dates: &dates,
        zone: &TimeZone::UTC,
    };
    let mut rows = Vec::new();
    let mut sink = |row: &Transaction<'_>| {
        rows.push(row.id.to_string());
        if rows.len() < rows_max {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    let credentials = SecretString::from("");
    let list = List::<Transactions> {
        provider: &bank,
        credentials: &credentials,
        query,
        until: None,
    };
    let outcome = Pages::default()
        .read_to_end(&list, &context(), &mut sink)
        .await;
    Outcome {
        rows,
        outcome,
        requests: bank.requested_pages.into_inner(),
    }
}

#[tokio::test]
async fn all_pages_of_the_interval_are_read() {
    let pages = |page| match page {
        0 => Ok((vec![0, 1, 2, 3], Some(1))),
        1 => Ok((vec![], Some(2))),
        // A row that moved to the next page comes twice.
        2 => Ok((vec![3, 4], Some(3))),
        _ => Ok((vec![100, 101, 102], None)),
    };
    let found = read_transactions(pages, usize::MAX).await;
    let expected = outcome_of(&[2, 3, 3, 4, 100], Ok(()), vec![0, 1, 2, 3]);
    assert_eq!(found, expected);
}

#[tokio::test]
async fn transactions_stop_on_break() {
    let pages = |page| Ok((vec![2 * page, 2 * page + 1], Some(page + 1)));
    let expected = outcome_of(&[2, 3, 4], Ok(()), vec![0, 1, 2]);
    let found = read_transactions(pages, 3).await;
    assert_eq!(found, expected, "the rest of the page is dropped");
    let expected = outcome_of(&[2, 3], Ok(()), vec![0, 1]);
    let found = read_transactions(pages, 2).await;
    assert_eq!(found, expected, "no further page is read");
}

#[tokio::test]
async fn failed_page_ends_the_read() {
    let pages = |page| match page {
        0 => Ok((vec![2], Some(1))),
        _ => Err(Error::Deadline),
    };
    let found = read_transactions(pages, usize::MAX).await;
    assert_eq!(found, outcome_of(&[2], Err(Error::Deadline), vec![0, 1]));
}

#[tokio::test]
async fn endless_pages_fail() {
    let found = read_transactions(|page| Ok((vec![50], Some(page.max(7)))), usize::MAX).await;
    let endless = Error::Malformed("the next page is the current page");
    assert_eq!(found.outcome, Err(endless));
    assert_eq!(found.requests, [0, 7]);

    let found = read_transactions(|page| Ok((vec![50], Some(page + 1))), usize::MAX).await;
    assert_eq!(found.outcome, Err(TOO_MANY_PAGES));
    assert_eq!(found.requests.len(), PAGES_MAX as usize);

    let last_page = u64::from(PAGES_MAX) - 1;
    assert_eq!(last_page, 1_999);
    let pages = |page: u64| Ok((vec![], (page < 1_999).then_some(page + 1)));
    let found = read_transactions(pages, usize::MAX).await;
    assert_eq!(found.outcome, Ok(()));
    let last = found.requests.last();
    assert_eq!(last, Some(&last_page), "the last allowed page");
}

/// A list of trades with pages of ten. `total` maps the offset of a request to the total in the
/// response.
struct Broker {
    rows: u64,
    total: fn(u64) -> u64,
    requested_offsets: Mutex<Vec<u64>>,
}

#[async_trait]
impl Brokerage for Broker {
    async fn holdings(
        &self,
        _: &CallContext,
        _: &SecretString,
        _: &Account,
        _: &mut HoldingSink<'_>,
    ) -> Result<(), Error> {
        unreachable!("a page reader does not read holdings")
    }

    fn trades_rows_max(&self) -> u32 {
        10
    }

    fn trades_cursor(&self, number: u64) -> Cursor {
        Cursor(number.to_string())
    }

    async fn trades(
        &self,
        _: &CallContext,
        _: &SecretString,
        query: &TradeQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut TradeSink<'_>,
    ) -> Result<Page, Error> {
        let offset: u64 = page.cursor.map_or(0, |cursor| cursor.0.parse().unwrap());
        self.requested_offsets.lock().push(offset);
        let (end, total) = (
            (offset + u64::from(page.rows)).min(self.rows).max(offset),
            (self.total)(offset),
        );
        for number in offset..end {
            // The adapter leaves out every seventh row.
            if number % 7 != 6 {
                rows(number, row(number).trade(query.account));
            }
        }
        Ok(Page {
            next: (end > offset && end < total).then(|| self.trades_cursor(end)),
            total: Some(total),
        })
    }
}

/// Reads the trades from row 2 on and breaks after `rows_max` rows.
async fn read_trades(list_rows: u64, total: fn(u64) -> u64, rows_max: usize) -> Outcome {
    let broker = Broker {
        rows: list_rows,
        total,
        requested_offsets: Mutex::default(),
    };
    let account = account("1");
    let dates = DateFilter {
        from: None,
        to: Some(Bound::Instant(at(2))),
    };
    let query = TradeQuery {
        account: &account,
        dates: &dates,
        zone: &TimeZone::UTC,
    };
    let mut rows = Vec::new();
    let mut sink = |row: &Trade<'_>| {
        rows.push(row.symbol.to_string());
        if rows.len() < rows_max {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    let credentials = SecretString::from("");
    let list = List::<Trades> {
        provider: &broker,
        credentials: &credentials,
        query,
        until: None,
    };
    let outcome = Pages::default()
        .read_to_end(&list, &context(), &mut sink)
        .await;
    Outcome {
        rows,
        outcome,
        requests: broker.requested_offsets.into_inner(),
    }
}

#[tokio::test]
async fn all_pages_of_trades_are_read() {
    let expected: Vec<u64> = (2..23).filter(|row| row % 7 != 6).collect();
    let found = read_trades(23, |_| 23, usize::MAX).await;
    assert_eq!(found, outcome_of(&expected, Ok(()), vec![0, 10, 20]));
    let found = read_trades(20, |_| 20, usize::MAX).await;
    assert_eq!(found.requests, [0, 10], "no page after the last row");
    let found = read_trades(0, |_| 0, usize::MAX).await;
    assert_eq!(found, outcome_of(&[], Ok(()), vec![0]));
    let found = read_trades(10, |_| 99, usize::MAX).await;
    assert_eq!(found.requests, [0, 10], "a page without rows is the end");
}

#[tokio::test]
async fn trades_stop_on_break() {
    let found = read_trades(40, |_| 40, 3).await;
    assert_eq!(found, outcome_of(&[2, 3, 4], Ok(()), vec![0]));
}

#[tokio::test]
async fn changed_total_fails() {
    for total in [|offset| 40 + offset / 10, |offset| 40 - offset / 20] {
        let found = read_trades(40, total, usize::MAX).await;
        let changed = Error::unavailable("the list changed while it was read");
        assert_eq!(found.outcome, Err(changed));
    }
}

#[tokio::test]
async fn endless_trades_fail() {
    let found = read_trades(u64::MAX, |_| u64::MAX, usize::MAX).await;
    assert_eq!(found.outcome, Err(TOO_MANY_PAGES));
    assert_eq!(found.requests.len(), PAGES_MAX as usize);
}
