//! Windows over a simulated provider, compared with skip and take on the whole list.

use std::collections::BTreeSet;
use std::time::Duration;

use bellbird_domain::{Account, Bound, Page};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use secrecy::SecretString;

use super::*;
use crate::Cause;
use crate::test_support::{NOW, Row, Simulated, UNAVAILABLE, account, at, runtime};

/// A bank whose only list has one row for each minute back in time.
struct Bank {
    account: Account,
    simulated: Simulated,
}

impl Bank {
    fn new(rows: u64) -> Self {
        Self::with_foreign(rows, 0)
    }

    /// Every `foreign_every`th row is outside the query.
    fn with_foreign(rows: u64, foreign_every: u64) -> Self {
        let row = |number: u64| {
            let second = NOW - 60 * i64::try_from(number).expect("small");
            let is_foreign = foreign_every > 0 && number.is_multiple_of(foreign_every);
            let own_second = is_foreign.then_some(second - 60 * 60 * 24 * 365 * 40);
            Row {
                own_second,
                ..Row::new("1", number, second)
            }
        };
        Self {
            account: account("1"),
            simulated: Simulated::bank(1_000, (0..rows).map(row).collect()),
        }
    }

    fn matching(&self) -> Vec<String> {
        let rows = self.simulated.rows.lock();
        rows.iter()
            .filter(|row| row.own_second.is_none())
            .map(|row| row.id.clone())
            .collect()
    }
}

/// A client that reads one list, with its cursor index.
struct Client<'p> {
    bank: &'p Bank,
    index: Mutex<CursorIndex>,
    dates: DateRange,
    row_cap: u64,
}

impl<'p> Client<'p> {
    fn new(bank: &'p Bank) -> Self {
        let from = Bound::Instant(at(NOW - 60 * 60 * 24 * 365 * 20));
        let dates = DateRange {
            from,
            to: Bound::Instant(at(NOW)),
        };
        Self {
            bank,
            index: Mutex::new(CursorIndex::new(dates, TimeZone::UTC, at(NOW))),
            dates,
            row_cap: 5_000,
        }
    }

    /// Reads one window. Returns its rows, the pagination fields, and the number of provider calls.
    async fn window(
        &self,
        limit: u32,
        offset: u64,
    ) -> Result<(Vec<String>, WindowTotals, usize), Error> {
        let before = self.bank.simulated.calls.lock().len();
        let credentials = SecretString::from("");
        let deadline = Instant::now() + Duration::from_secs(25);
        let call = CallContext::new(deadline, at(NOW), Cause::Schedule);
        let accounts = std::slice::from_ref(&self.bank.account);
        let query = TransactionQuery {
            accounts,
            one_account: true,
            dates: &self.dates,
            zone: &TimeZone::UTC,
        };
        let mut read = WindowRead {
            list: List {
                provider: &self.bank.simulated,
                credentials: &credentials,
                query,
                until: None,
            },
            call: &call,
            pages: Pages::default(),
            window: Window::new(Page { limit, offset }, self.row_cap),
            index: &self.index,
            seen: 0,
            end: None,
        };
        let mut kept = Vec::new();
        read.complete(&mut |row, _| kept.push(row.id.to_string()))
            .await?;
        read.count(deadline).await;
        let totals = read.totals();
        let calls = self.bank.simulated.calls.lock().len() - before;
        Ok((kept, totals, calls))
    }

    /// Reads windows until the list ends. Returns the rows, the most calls for one window after the
    /// first, and all calls.
    async fn read_all(&self, limit: u32) -> (Vec<String>, usize, usize) {
        let (mut seen, mut most, mut all, mut offset) = (Vec::new(), 0, 0, 0);
        loop {
            let (rows, totals, calls) = self.window(limit, offset).await.unwrap();
            (most, all) = (most.max(if offset > 0 { calls } else { 0 }), all + calls);
            if totals.has_more {
                let is_full = rows.len() == limit as usize;
                assert!(
                    is_full,
                    "a short window although more rows follow, at {offset}"
                );
            } else {
                assert!(!totals.truncated);
            }
            assert!(totals.total >= offset + rows.len() as u64 || rows.is_empty());
            seen.extend(rows);
            if !totals.has_more {
                // The total is exact at the end.
                assert_eq!(totals.total, seen.len() as u64);
                return (seen, most, all);
            }
            offset += u64::from(limit);
        }
    }
}

/// The pagination fields of a window that others follow.
fn more_than(total: u64, truncated: bool) -> WindowTotals {
    WindowTotals {
        total,
        has_more: true,
        truncated,
    }
}

#[tokio::test]
async fn each_window_costs_one_call_plus_one_count() {
    for (rows, limit) in [(12_000, 200), (12_000, 500), (5_000, 200)] {
        let bank = Bank::new(rows);
        let (seen, most, all) = Client::new(&bank).read_all(limit).await;
        assert_eq!(seen, bank.matching());
        assert!(most <= 2, "{most} calls in one window");
        let (windows, counting) = (rows / u64::from(limit), rows / 1_000);
        let most = (windows + counting) as usize;
        assert!(all <= most, "{all} calls for {rows} rows by {limit}");
        assert!(rows > 5_000 || all == most, "{all} calls up to the cap");
    }
}

#[tokio::test]
async fn windows_lose_no_row_that_the_provider_lists_late() {
    let bank = Bank::new(1_200);
    for (number, row) in (0..).zip(&mut *bank.simulated.rows.lock()) {
        row.own_second = Some(NOW - 60 * (number * 7_919 % 1_200));
    }
    let (seen, _, _) = Client::new(&bank).read_all(70).await;
    let listed: Vec<_> = (0..1_200).map(|number| number.to_string()).collect();
    assert_eq!(seen, listed, "in the provider's order");
}

#[tokio::test]
async fn past_the_cap_the_total_is_a_lower_bound() {
    let bank = Bank::new(5_001);
    let client = Client::new(&bank);
    let (rows, totals, calls) = client.window(200, 0).await.unwrap();
    assert_eq!(rows.len(), 200);
    assert_eq!(totals, more_than(5_000, true));
    assert_eq!(calls, 6);
    let (_, totals, calls) = client.window(200, 200).await.unwrap();
    assert_eq!(totals.total, 5_001, "the end was found");
    assert!(!totals.truncated);
    assert_eq!(calls, 2);
    let (rows, totals, calls) = client.window(200, 9_000).await.unwrap();
    assert!(rows.is_empty(), "the window lies behind the known end");
    assert_eq!(totals.total, 5_001);
    assert!(!totals.has_more);
    assert_eq!(calls, 0);
}

#[tokio::test]
async fn at_the_cap_the_total_is_exact() {
    let bank = Bank::new(5_000);
    for limit in [1, 200, 499, 500] {
        let (_, totals, _) = Client::new(&bank).window(limit, 0).await.unwrap();
        assert_eq!(totals, more_than(5_000, false), "limit {limit}");
    }
}

#[tokio::test]
async fn far_window_without_an_index_is_complete() {
    let bank = Bank::new(12_000);
    let client = Client::new(&bank);
    let (rows, totals, calls) = client.window(200, 7_000).await.unwrap();
    assert_eq!(rows, bank.matching()[7_000..7_200]);
    assert!(totals.truncated || totals.total == 12_000);
    // Eight pages to the end of the window, and four to the end of the list.
    assert_eq!(calls, 12);
}

#[tokio::test]
async fn expired_cursor_restarts_the_read() {
    let bank = Bank::new(3_000);
    let client = Client::new(&bank);
    client.window(200, 0).await.unwrap();
    bank.simulated.fail_next([Some(UNAVAILABLE)]);
    let (rows, totals, _) = client.window(200, 1_000).await.unwrap();
    assert_eq!(rows, bank.matching()[1_000..1_200]);
    assert_eq!(totals.total, 3_000);
}

#[tokio::test]
async fn unavailable_provider_keeps_the_cursor_index() {
    let bank = Bank::new(3_000);
    let client = Client::new(&bank);
    client.window(200, 0).await.unwrap();
    bank.simulated
        .fail_next([Some(UNAVAILABLE), Some(UNAVAILABLE)]);
    assert!(client.window(200, 2_000).await.is_err());
    let (rows, _, calls) = client.window(200, 2_200).await.unwrap();
    assert_eq!(rows, bank.matching()[2_200..2_400]);
    assert_eq!(calls, 1);
}

#[tokio::test]
async fn failure_while_counting_keeps_the_window() {
    let bank = Bank::new(3_000);
    bank.simulated.fail_next([None, Some(UNAVAILABLE)]);
    let (rows, totals, _) = Client::new(&bank).window(200, 0).await.unwrap();
    assert_eq!(rows.len(), 200);
    assert_eq!(totals, more_than(200, true));
}

#[tokio::test]
async fn failed_window_keeps_the_cursors_it_learned() {
    let bank = Bank::new(3_000);
    let client = Client::new(&bank);
    bank.simulated.fail_next([None, None, Some(UNAVAILABLE)]);
    assert!(client.window(200, 2_500).await.is_err());
    let (rows, _, calls) = client.window(200, 2_500).await.unwrap();
    assert_eq!(rows, bank.matching()[2_500..2_700]);
    // The read continued at its last cursor.
    assert!(calls <= 2, "{calls} calls");
}

/// It may be that of a consent that has just ended.
#[tokio::test]
async fn empty_list_ends_and_is_read_again() {
    let bank = Bank::with_foreign(0, 0);
    let client = Client::new(&bank);
    for _ in 0..2 {
        let (rows, totals, calls) = client.window(1, 5).await.unwrap();
        assert_eq!((rows.len(), totals.total, calls), (0, 0, 1));
        assert!(!totals.has_more);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn windows_cover_any_list_once(
        rows in 0_u64..1_500,
        limit in 1_u32..300,
        foreign_every in 0_u64..6,
        empty_every in prop::sample::select(vec![0_usize, 2, 3, 5]),
        page_rows_max in 20_u32..400,
        row_cap in 1_u64..2_000,
    ) {
        // Windows of one row over a thousand rows prove nothing more and are slow.
        let limit = limit.max(u32::try_from(rows / 100).unwrap()).max(1);
        let foreign_every = if foreign_every == 1 { 0 } else { foreign_every };
        let mut bank = Bank::with_foreign(rows, foreign_every);
        (bank.simulated.rows_max, bank.simulated.empty_every) = (page_rows_max, empty_every);
        let mut client = Client::new(&bank);
        client.row_cap = row_cap;
        let (seen, _, _) = runtime().block_on(client.read_all(limit));
        let expected = bank.matching();
        prop_assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
        prop_assert_eq!(seen, expected);
    }

    /// Windows in any order equal skip and take, independent of earlier requests.
    #[test]
    fn windows_may_come_in_any_order(
        rows in 0_u64..2_000,
        windows in prop::collection::vec((1_u32..300, 0_u64..2_200), 1..8),
        foreign_every in prop::sample::select(vec![0_u64, 2, 7]),
    ) {
        let mut bank = Bank::with_foreign(rows, foreign_every);
        bank.simulated.rows_max = 250;
        let client = Client::new(&bank);
        let expected = bank.matching();
        for (limit, offset) in windows {
            let (kept, totals, _) = runtime().block_on(client.window(limit, offset)).unwrap();
            let from = usize::try_from(offset).unwrap().min(expected.len());
            let to = (from + limit as usize).min(expected.len());
            prop_assert_eq!(&kept[..], &expected[from..to]);
            if !totals.truncated { prop_assert_eq!(totals.total, expected.len() as u64); }
        }
    }
}
