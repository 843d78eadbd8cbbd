//! Windows over a simulated provider, compared with skip and take on the whole list.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bellbird_domain::{Account, AccountId, AccountType, Bound, ConnectionId, Currency, Decimal, UserId};
use bellbird_providers::{Banking, Cursor, PageRequest, PageRowSink};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use secrecy::SecretString;

use super::*;

/// A list with one row for each minute back in time. Every `foreign_every`th row is outside the query, every
/// `empty_every`th page is empty. A cursor is `row.empty_pages`.
struct SimulatedBank {
    account: Account,
    rows: u64,
    foreign_every: u64,
    empty_every: u32,
    page_rows_max: u32,
    calls: AtomicU32,
    expire_next_cursor: AtomicBool,
    fail_from_call: AtomicU32,
}

const NOW: i64 = 2_000_000_000;

impl SimulatedBank {
    fn new(rows: u64) -> Self {
        let account = Account {
            id: AccountId::new(),
            user_id: UserId::new(),
            connection_id: ConnectionId::new(),
            provider: "simulated".to_owned(),
            provider_account_id: "1".to_owned(),
            name: "Everyday".to_owned(),
            account_type: AccountType::Transaction,
            institution_name: None,
            number: None,
            currency: Currency::UNKNOWN,
        };
        Self {
            account,
            rows,
            foreign_every: 0,
            empty_every: 0,
            page_rows_max: 1_000,
            calls: AtomicU32::new(0),
            expire_next_cursor: AtomicBool::new(false),
            fail_from_call: AtomicU32::new(u32::MAX),
        }
    }

    fn is_foreign(&self, row: u64) -> bool {
        self.foreign_every > 0 && row.is_multiple_of(self.foreign_every)
    }

    fn matching(&self) -> Vec<String> {
        (0..self.rows).filter(|row| !self.is_foreign(*row)).map(|row| row.to_string()).collect()
    }
}

#[async_trait]
impl Banking for SimulatedBank {
    fn page_rows_max(&self) -> u32 {
        self.page_rows_max
    }

    async fn transactions(
        &self,
        _: &CallContext,
        _: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut PageRowSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if number >= self.fail_from_call.load(Ordering::Relaxed) {
            return Err(Error::unavailable("simulated failure"));
        }
        if page.cursor.is_some() && self.expire_next_cursor.swap(false, Ordering::Relaxed) {
            return Err(Error::unavailable("expired cursor"));
        }
        assert!((1..=self.page_rows_max).contains(&page.rows), "requested {} rows", page.rows);
        let (from, empty_pages) =
            match page.cursor.map(|cursor| cursor.0.split_once('.').expect("a cursor of this provider")) {
                Some((row, empty_pages)) => {
                    (row.parse::<u64>().expect("a row"), empty_pages.parse::<u32>().expect("a number"))
                }
                None => (0, 0),
            };
        if self.empty_every > 0 && number.is_multiple_of(self.empty_every) {
            return Ok(Some(Cursor(format!("{from}.{}", empty_pages + 1))));
        }
        let to = (from + u64::from(page.rows)).min(self.rows);
        for row in from..to {
            let minutes = i64::try_from(row).expect("small");
            let past = if self.is_foreign(row) { 60 * 24 * 365 * 40 } else { 0 };
            let instant = Timestamp::from_second(NOW).unwrap() - SignedDuration::from_mins(minutes + past);
            rows(Transaction {
                id: row.to_string().into(),
                account: &query.accounts[0],
                instant,
                day: None,
                seen_at: None,
                datetime: instant.to_string().into(),
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
            });
        }
        Ok((to < self.rows).then(|| Cursor(format!("{to}.0"))))
    }
}

/// A client that reads one list, with its cursor index.
struct Client<'p> {
    provider: &'p SimulatedBank,
    index: Mutex<CursorIndex>,
    interval: DateRange,
    row_cap: u64,
}

impl<'p> Client<'p> {
    fn new(provider: &'p SimulatedBank) -> Self {
        let from = Bound::Instant(Timestamp::from_second(NOW - 60 * 60 * 24 * 365 * 20).unwrap());
        let interval = DateRange { from, to: Bound::Instant(Timestamp::from_second(NOW).unwrap()) };
        Self {
            provider,
            index: Mutex::new(CursorIndex::new(interval, TimeZone::UTC, Timestamp::from_second(NOW).unwrap())),
            interval,
            row_cap: 5_000,
        }
    }

    /// Reads one window. Returns its rows, the pagination fields, and the number of provider calls.
    async fn window(&self, limit: u32, offset: u64) -> Result<(Vec<String>, Extent, u32), Error> {
        let before = self.provider.calls.load(Ordering::Relaxed);
        let credentials = SecretString::from("");
        let deadline = Instant::now() + Duration::from_secs(25);
        let call = CallContext::new(deadline, Timestamp::from_second(NOW).unwrap());
        let accounts = std::slice::from_ref(&self.provider.account);
        let query = TransactionQuery { accounts, one_account: true, interval: &self.interval, zone: &TimeZone::UTC };
        let mut read = WindowRead {
            list: TransactionList { provider: self.provider, credentials: &credentials, query, until: None },
            call: &call,
            pages: TransactionPages::default(),
            window: Window::new(Page { limit, offset }, self.row_cap),
            index: &self.index,
        };
        let mut kept = Vec::new();
        read.complete(&mut |row, _| kept.push(row.id.to_string())).await?;
        read.count(deadline).await;
        let index = self.index.lock();
        let extent = read.window.extent(index.counted(), index.end());
        Ok((kept, extent, self.provider.calls.load(Ordering::Relaxed) - before))
    }

    /// Reads windows until the list ends. Returns the rows, the most calls for one window after the first, and all
    /// calls.
    async fn read_all(&self, limit: u32) -> (Vec<String>, u32, u32) {
        let (mut seen, mut most, mut all, mut offset) = (Vec::new(), 0, 0, 0);
        loop {
            let (rows, extent, calls) = self.window(limit, offset).await.unwrap();
            (most, all) = (most.max(if offset > 0 { calls } else { 0 }), all + calls);
            if extent.has_more {
                assert_eq!(rows.len(), limit as usize, "a short window although more rows follow, at {offset}");
            } else {
                assert!(!extent.truncated);
            }
            assert!(extent.total >= offset + rows.len() as u64 || rows.is_empty());
            seen.extend(rows);
            if !extent.has_more {
                assert_eq!(extent.total, seen.len() as u64, "the total is exact at the end");
                return (seen, most, all);
            }
            offset += u64::from(limit);
        }
    }
}

#[tokio::test]
async fn windows_cover_twelve_thousand_rows() {
    for limit in [200, 500] {
        let provider = SimulatedBank::new(12_000);
        let client = Client::new(&provider);
        let (seen, most, all) = client.read_all(limit).await;
        assert_eq!(seen, provider.matching());
        assert!(most <= 2, "{most} calls in one window");
        let windows = 12_000 / limit;
        let counting = 12_000_u32.div_ceil(1_000);
        assert!(all <= windows + counting, "{all} calls in all");
    }
}

#[tokio::test]
async fn each_window_costs_one_call_plus_one_count() {
    let provider = SimulatedBank::new(5_000);
    let (seen, _, all) = Client::new(&provider).read_all(200).await;
    assert_eq!(seen, provider.matching());
    assert_eq!(all, 25 + 5);
}

#[tokio::test]
async fn past_the_cap_the_total_is_a_lower_bound() {
    let provider = SimulatedBank::new(5_001);
    let client = Client::new(&provider);
    let (rows, extent, calls) = client.window(200, 0).await.unwrap();
    assert_eq!(rows.len(), 200);
    assert_eq!(extent, Extent { total: 5_000, has_more: true, truncated: true });
    assert_eq!(calls, 6);
    let (_, extent, calls) = client.window(200, 200).await.unwrap();
    assert_eq!(extent.total, 5_001, "the end was found");
    assert!(!extent.truncated);
    assert_eq!(calls, 2);
    let (rows, extent, calls) = client.window(200, 9_000).await.unwrap();
    assert!(rows.is_empty(), "the window lies behind the known end");
    assert_eq!(extent.total, 5_001);
    assert!(!extent.has_more);
    assert_eq!(calls, 0);
}

#[tokio::test]
async fn at_the_cap_the_total_is_exact() {
    let provider = SimulatedBank::new(5_000);
    for limit in [1, 200, 499, 500] {
        let (_, extent, _) = Client::new(&provider).window(limit, 0).await.unwrap();
        assert_eq!(extent, Extent { total: 5_000, has_more: true, truncated: false }, "limit {limit}");
    }
}

#[tokio::test]
async fn far_window_without_an_index_is_complete() {
    let provider = SimulatedBank::new(12_000);
    let client = Client::new(&provider);
    let (rows, extent, calls) = client.window(200, 7_000).await.unwrap();
    assert_eq!(rows, provider.matching()[7_000..7_200]);
    assert!(extent.truncated || extent.total == 12_000);
    assert_eq!(calls, 12, "eight pages to the end of the window, four to the end of the list");
}

#[tokio::test]
async fn expired_cursor_restarts_the_read() {
    let provider = SimulatedBank::new(3_000);
    let client = Client::new(&provider);
    client.window(200, 0).await.unwrap();
    provider.expire_next_cursor.store(true, Ordering::Relaxed);
    let (rows, extent, _) = client.window(200, 1_000).await.unwrap();
    assert_eq!(rows, provider.matching()[1_000..1_200]);
    assert_eq!(extent.total, 3_000);
}

#[tokio::test]
async fn unavailable_provider_keeps_the_cursor_index() {
    let provider = SimulatedBank::new(3_000);
    let client = Client::new(&provider);
    client.window(200, 0).await.unwrap();
    provider.fail_from_call.store(0, Ordering::Relaxed);
    assert!(client.window(200, 2_000).await.is_err());
    provider.fail_from_call.store(u32::MAX, Ordering::Relaxed);
    let (rows, _, calls) = client.window(200, 2_200).await.unwrap();
    assert_eq!(rows, provider.matching()[2_200..2_400]);
    assert_eq!(calls, 1);
}

#[tokio::test]
async fn failure_while_counting_keeps_the_window() {
    let provider = SimulatedBank::new(3_000);
    provider.fail_from_call.store(2, Ordering::Relaxed);
    let (rows, extent, _) = Client::new(&provider).window(200, 0).await.unwrap();
    assert_eq!(rows.len(), 200);
    assert_eq!(extent, Extent { total: 200, has_more: true, truncated: true });
}

#[tokio::test]
async fn failed_window_keeps_the_cursors_it_learned() {
    let provider = SimulatedBank::new(3_000);
    let client = Client::new(&provider);
    provider.fail_from_call.store(3, Ordering::Relaxed);
    assert!(client.window(200, 2_500).await.is_err());
    provider.fail_from_call.store(u32::MAX, Ordering::Relaxed);
    let (rows, _, calls) = client.window(200, 2_500).await.unwrap();
    assert_eq!(rows, provider.matching()[2_500..2_700]);
    assert!(calls <= 2, "the read did not continue at its last cursor: {calls} calls");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn windows_cover_any_list_once(
        rows in 0_u64..1_500,
        limit in 1_u32..300,
        foreign_every in 0_u64..6,
        empty_every in prop::sample::select(vec![0_u32, 2, 3, 5]),
        page_rows_max in 20_u32..400,
        row_cap in 1_u64..2_000,
    ) {
        // Windows of one row over a thousand rows prove nothing more and are slow.
        let limit = limit.max(u32::try_from(rows / 100).unwrap()).max(1);
        let foreign_every = if foreign_every == 1 { 0 } else { foreign_every };
        let provider = SimulatedBank { foreign_every, empty_every, page_rows_max, ..SimulatedBank::new(rows) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut client = Client::new(&provider);
        client.row_cap = row_cap;
        let (seen, _, _) = runtime.block_on(client.read_all(limit));
        let expected = provider.matching();
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
        let provider = SimulatedBank { foreign_every, page_rows_max: 250, ..SimulatedBank::new(rows) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let client = Client::new(&provider);
        let expected = provider.matching();
        for (limit, offset) in windows {
            let (kept, extent, _) = runtime.block_on(client.window(limit, offset)).unwrap();
            let from = usize::try_from(offset).unwrap().min(expected.len());
            let to = (from + limit as usize).min(expected.len());
            prop_assert_eq!(&kept[..], &expected[from..to]);
            if !extent.truncated { prop_assert_eq!(extent.total, expected.len() as u64); }
        }
    }
}
