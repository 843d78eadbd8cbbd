//! Sweeps over pretended providers that page as real ones do, and as none should.

use std::time::Duration;

use async_trait::async_trait;
use bellbird_domain::{
    Account, AccountId, AccountType, Bound, ConnectionId, Currency, Decimal, Interval, Span, TradeTime, TradeType,
    UserId,
};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::{Cursor, HoldingSink, RowSink, TradePage, TradeSink};

const NOW: i64 = 2_000_000_000;

fn account() -> Account {
    Account {
        id: AccountId::new(),
        user_id: UserId::new(),
        connection_id: ConnectionId::new(),
        provider: "pretended".to_owned(),
        provider_account_id: "1".to_owned(),
        name: "Everyday".to_owned(),
        account_type: AccountType::Transaction,
        institution_name: None,
        number: None,
        currency: Currency::UNKNOWN,
    }
}

/// The instant of a row: one a minute back in time.
fn at(row: u64) -> Timestamp {
    Timestamp::from_second(NOW).unwrap() - SignedDuration::from_mins(i64::try_from(row).unwrap())
}

fn call() -> Call {
    Call::new(Instant::now() + Duration::from_secs(20), Timestamp::from_second(NOW).unwrap())
}

/// The rows of the page that a cursor's number names, and the number of the next.
type Pages = fn(u64) -> Result<(Vec<u64>, Option<u64>), Error>;

struct Bank {
    pages: Pages,
    asked: Mutex<Vec<u64>>,
}

#[async_trait]
impl Banking for Bank {
    fn page_rows_max(&self) -> u32 {
        1_000
    }

    async fn transactions(
        &self,
        _: &Call,
        _: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut RowSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        assert_eq!(page.rows, 1_000, "the largest pages");
        let number = page.cursor.map_or(0, |cursor| cursor.0.parse().unwrap());
        self.asked.lock().push(number);
        let (numbers, next) = (self.pages)(number)?;
        for row in numbers {
            rows(transaction(row, &query.accounts[0]));
        }
        Ok(next.map(|next| Cursor(next.to_string())))
    }
}

fn transaction(row: u64, account: &Account) -> Transaction<'_> {
    Transaction {
        id: row.to_string().into(),
        account,
        instant: at(row),
        day: None,
        seen_at: None,
        datetime: at(row).to_string().into(),
        description: "".into(),
        amount: Decimal::parse("-1.00").unwrap(),
        category: None,
        merchant_name: None,
        merchant_category_code: None,
        currency: None,
        provider_type: None,
        executed: None,
        reference: None,
        extended_description: None,
    }
}

/// What a sweep of the rows 2 to 100 handed over until it had `most`, how it ended, and which pages it asked for.
async fn swept(pages: Pages, most: usize) -> (Vec<String>, Result<(), Error>, Vec<u64>) {
    let bank = Bank { pages, asked: Mutex::default() };
    let accounts = [account()];
    let interval = Interval { from: Bound::Instant(at(100)), to: Bound::Instant(at(2)) };
    let query = TransactionQuery { accounts: &accounts, one_account: false, interval: &interval, zone: &TimeZone::UTC };
    let mut seen = Vec::new();
    let mut rows = |row: &Transaction<'_>| {
        seen.push(row.id.to_string());
        if seen.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let outcome = transactions(&bank, &call(), &SecretString::from(""), &query, &mut rows).await;
    (seen, outcome, bank.asked.into_inner())
}

fn texts(numbers: &[u64]) -> Vec<String> {
    numbers.iter().map(u64::to_string).collect()
}

#[tokio::test]
async fn reads_to_the_end_and_keeps_to_the_interval() {
    let pages = |page| match page {
        0 => Ok((vec![0, 1, 2, 3], Some(1))),
        1 => Ok((vec![], Some(2))),
        // A row that moved on comes again.
        2 => Ok((vec![3, 4], Some(3))),
        _ => Ok((vec![100, 101, 102], None)),
    };
    let (seen, outcome, asked) = swept(pages, usize::MAX).await;
    assert_eq!((seen, outcome, asked), (texts(&[2, 3, 3, 4, 100]), Ok(()), vec![0, 1, 2, 3]));
}

#[tokio::test]
async fn stops_where_it_is_told_to() {
    let pages = |page| Ok((vec![2 * page, 2 * page + 1], Some(page + 1)));
    let (seen, outcome, asked) = swept(pages, 3).await;
    assert_eq!((seen, outcome, asked), (texts(&[2, 3, 4]), Ok(()), vec![0, 1, 2]), "the rest of its page is dropped");
    let (seen, outcome, asked) = swept(pages, 2).await;
    assert_eq!((seen, outcome, asked), (texts(&[2, 3]), Ok(()), vec![0, 1]), "no further page is read");
}

#[tokio::test]
async fn a_page_that_fails_ends_the_sweep() {
    let pages = |page| match page {
        0 => Ok((vec![2], Some(1))),
        _ => Err(Error::Deadline),
    };
    assert_eq!(swept(pages, usize::MAX).await, (texts(&[2]), Err(Error::Deadline), vec![0, 1]));
}

#[tokio::test]
async fn pages_that_do_not_end_are_broken() {
    let (_, outcome, asked) = swept(|page| Ok((vec![50], Some(page.max(7)))), usize::MAX).await;
    assert_eq!((outcome, asked), (Err(Error::Malformed("a page names itself as the next")), vec![0, 7]));
    let (_, outcome, asked) = swept(|page| Ok((vec![50], Some(page + 1))), usize::MAX).await;
    assert_eq!((outcome, asked.len()), (Err(WITHOUT_END), PAGES_MAX as usize));
    let last = u64::from(PAGES_MAX) - 1;
    assert_eq!(last, 1_999);
    let (_, outcome, asked) = swept(|page| Ok((vec![], (page < 1_999).then_some(page + 1))), usize::MAX).await;
    assert_eq!((outcome, asked.last()), (Ok(()), Some(&last)), "the last page allowed");
}

/// A list of so many rows, in pages of ten; what it says its total is depends on where it is asked from.
struct Broker {
    rows: u64,
    total: fn(u64) -> u64,
    asked: Mutex<Vec<u64>>,
}

#[async_trait]
impl Brokerage for Broker {
    async fn holdings(&self, _: &Call, _: &SecretString, _: &Account, _: &mut HoldingSink<'_>) -> Result<(), Error> {
        unreachable!("no sweep asks for holdings")
    }

    fn trades_rows_max(&self) -> u32 {
        10
    }

    async fn trades(
        &self,
        _: &Call,
        _: &SecretString,
        query: &TradeQuery<'_>,
        offset: u64,
        limit: u32,
        rows: &mut TradeSink<'_>,
    ) -> Result<TradePage, Error> {
        self.asked.lock().push(offset);
        let behind = (offset + u64::from(limit)).min(self.rows).max(offset);
        for row in offset..behind {
            // Every seventh is left out by the adapter.
            if row % 7 != 6 {
                rows(row - offset, trade(row, query.account));
            }
        }
        Ok(TradePage { rows: behind - offset, total: (self.total)(offset) })
    }
}

fn trade(row: u64, account: &Account) -> Trade<'_> {
    Trade {
        account,
        symbol: row.to_string().into(),
        name: None,
        trade_type: TradeType::Buy,
        provider_type: "BUY".into(),
        quantity: None,
        price: None,
        currency: "CAD".into(),
        total_amount: None,
        fees: None,
        trade_date: at(row).to_string().into(),
        time: TradeTime::Instant(at(row)),
        settlement_date: None,
        description: None,
    }
}

/// What a sweep of the rows from 2 on handed over until it had `most`, how it ended, and which offsets it asked for.
async fn swept_trades(rows: u64, total: fn(u64) -> u64, most: usize) -> (Vec<String>, Result<(), Error>, Vec<u64>) {
    let broker = Broker { rows, total, asked: Mutex::default() };
    let account = account();
    let span = Span { from: None, to: Some(Bound::Instant(at(2))) };
    let query = TradeQuery { account: &account, span: &span, zone: &TimeZone::UTC };
    let mut seen = Vec::new();
    let mut sweep = |row: &Trade<'_>| {
        seen.push(row.symbol.to_string());
        if seen.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let outcome = trades(&broker, &call(), &SecretString::from(""), &query, &mut sweep).await;
    (seen, outcome, broker.asked.into_inner())
}

#[tokio::test]
async fn trades_are_read_to_their_end() {
    let (seen, outcome, asked) = swept_trades(23, |_| 23, usize::MAX).await;
    let expected: Vec<u64> = (2..23).filter(|row| row % 7 != 6).collect();
    assert_eq!((seen, outcome, asked), (texts(&expected), Ok(()), vec![0, 10, 20]));
    assert_eq!(swept_trades(20, |_| 20, usize::MAX).await.2, [0, 10], "no page behind the last row");
    assert_eq!(swept_trades(0, |_| 0, usize::MAX).await, (vec![], Ok(()), vec![0]));
    assert_eq!(swept_trades(10, |_| 99, usize::MAX).await.2, [0, 10], "a page without rows is the end");
}

#[tokio::test]
async fn trades_stop_where_they_are_told_to() {
    let (seen, outcome, asked) = swept_trades(40, |_| 40, 3).await;
    assert_eq!((seen, outcome, asked), (texts(&[2, 3, 4]), Ok(()), vec![0]));
}

#[tokio::test]
async fn a_list_of_trades_that_changes_is_not_trusted() {
    for total in [|offset| 40 + offset / 10, |offset| 40 - offset / 20] {
        let outcome = swept_trades(40, total, usize::MAX).await.1;
        assert_eq!(outcome, Err(Error::unavailable("the list changed while it was read")));
    }
}

#[tokio::test]
async fn trades_without_end_are_broken() {
    let (_, outcome, asked) = swept_trades(u64::MAX, |_| u64::MAX, usize::MAX).await;
    assert_eq!((outcome, asked.len()), (Err(WITHOUT_END), PAGES_MAX as usize));
}
