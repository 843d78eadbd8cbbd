//! Walks over a pretended provider, compared with skip and take on the whole list.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bellbird_domain::{Account, AccountId, AccountType, ConnectionId, Currency, Decimal, UserId};
use bellbird_providers::RowSink;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;

/// A list of rows, one a minute back in time. Every so many rows one is not the query's; every so many pages one is
/// empty. Cursors are row numbers.
struct Pretended {
    account: Account,
    rows: u64,
    foreign_every: u64,
    empty_every: u32,
    page_rows_max: u32,
    calls: AtomicU32,
    cursors_die: AtomicBool,
    fail_from_call: AtomicU32,
}

const NOW: i64 = 2_000_000_000;

impl Pretended {
    fn new(rows: u64) -> Self {
        let account = Account {
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
        };
        Self {
            account,
            rows,
            foreign_every: 0,
            empty_every: 0,
            page_rows_max: 1_000,
            calls: AtomicU32::new(0),
            cursors_die: AtomicBool::new(false),
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
impl Banking for Pretended {
    fn page_rows_max(&self) -> u32 {
        self.page_rows_max
    }

    async fn transactions(
        &self,
        _: &Call,
        _: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut RowSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if number >= self.fail_from_call.load(Ordering::Relaxed) {
            return Err(Error::unavailable("told to fail"));
        }
        if page.cursor.is_some() && self.cursors_die.swap(false, Ordering::Relaxed) {
            return Err(Error::unavailable("an old cursor"));
        }
        assert!((1..=self.page_rows_max).contains(&page.rows), "asked for {} rows", page.rows);
        let (from, mark) = match page.cursor.map(|cursor| cursor.0.split_once('.').expect("ours")) {
            Some((row, mark)) => (row.parse::<u64>().expect("a row"), mark.parse::<u32>().expect("a number")),
            None => (0, 0),
        };
        if self.empty_every > 0 && number.is_multiple_of(self.empty_every) {
            return Ok(Some(Cursor(format!("{from}.{}", mark + 1))));
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

/// One client walking one list.
struct Client<'p> {
    provider: &'p Pretended,
    map: Mutex<PageMap>,
    interval: Interval,
    row_cap: u64,
}

impl<'p> Client<'p> {
    fn new(provider: &'p Pretended) -> Self {
        let from = Bound::Instant(Timestamp::from_second(NOW - 60 * 60 * 24 * 365 * 20).unwrap());
        let interval = Interval { from, to: Bound::Instant(Timestamp::from_second(NOW).unwrap()) };
        Self {
            provider,
            map: Mutex::new(PageMap::new(interval, TimeZone::UTC, Timestamp::from_second(NOW).unwrap())),
            interval,
            row_cap: 5_000,
        }
    }

    async fn window(&self, limit: u32, offset: u64) -> Result<(Vec<String>, Extent, u32), Error> {
        let before = self.provider.calls.load(Ordering::Relaxed);
        let grant = SecretString::from("");
        let deadline = Instant::now() + Duration::from_secs(25);
        let call = Call::new(deadline, Timestamp::from_second(NOW).unwrap());
        let accounts = std::slice::from_ref(&self.provider.account);
        let mut walk = Walk {
            provider: self.provider,
            grant: &grant,
            call: &call,
            query: TransactionQuery { accounts, one_account: true, interval: &self.interval, zone: &TimeZone::UTC },
            window: Window::new(Page { limit, offset }, self.row_cap),
            map: &self.map,
        };
        let mut kept = Vec::new();
        walk.complete(&mut |row| kept.push(row.id.to_string())).await?;
        walk.count(deadline).await;
        let map = self.map.lock();
        let extent = walk.window.extent(map.counted(), map.end());
        Ok((kept, extent, self.provider.calls.load(Ordering::Relaxed) - before))
    }

    /// Walks in windows until there is no more; the most calls that a window cost, and all of them.
    async fn walk(&self, limit: u32) -> (Vec<String>, u32, u32) {
        let (mut seen, mut most, mut all, mut offset) = (Vec::new(), 0, 0, 0);
        loop {
            let (rows, extent, calls) = self.window(limit, offset).await.unwrap();
            (most, all) = (most.max(if offset > 0 { calls } else { 0 }), all + calls);
            if extent.has_more {
                assert_eq!(rows.len(), limit as usize, "a short page while there is more, at {offset}");
            } else {
                assert!(!extent.truncated);
            }
            assert!(extent.total >= offset + rows.len() as u64 || rows.is_empty());
            seen.extend(rows);
            if !extent.has_more {
                assert_eq!(extent.total, seen.len() as u64, "an exact total at the end");
                return (seen, most, all);
            }
            offset += u64::from(limit);
        }
    }
}

#[tokio::test]
async fn twelve_thousand_rows_in_windows() {
    for limit in [200, 500] {
        let provider = Pretended::new(12_000);
        let client = Client::new(&provider);
        let (seen, most, all) = client.walk(limit).await;
        assert_eq!(seen, provider.matching());
        assert!(most <= 2, "{most} calls in one window");
        let windows = 12_000 / limit;
        let counting = 12_000_u32.div_ceil(1_000);
        assert!(all <= windows + counting, "{all} calls in all");
    }
}

#[tokio::test]
async fn five_thousand_rows_cost_at_most_one_call_a_window_and_one_count() {
    let provider = Pretended::new(5_000);
    let (seen, _, all) = Client::new(&provider).walk(200).await;
    assert_eq!(seen, provider.matching());
    assert_eq!(all, 25 + 5);
}

#[tokio::test]
async fn past_the_cap_the_total_is_a_lower_bound() {
    let provider = Pretended::new(5_001);
    let client = Client::new(&provider);
    let (rows, extent, calls) = client.window(200, 0).await.unwrap();
    assert_eq!((rows.len(), extent.total, extent.has_more, extent.truncated, calls), (200, 5_000, true, true, 6));
    let (_, extent, calls) = client.window(200, 200).await.unwrap();
    assert_eq!((extent.total, extent.truncated, calls), (5_001, false, 2), "the end was found");
    let (rows, extent, calls) = client.window(200, 9_000).await.unwrap();
    assert_eq!((rows.len(), extent.total, extent.has_more, calls), (0, 5_001, false, 0), "behind a known end");
}

#[tokio::test]
async fn at_the_cap_the_total_is_exact() {
    let provider = Pretended::new(5_000);
    for limit in [1, 200, 499, 500] {
        let (_, extent, _) = Client::new(&provider).window(limit, 0).await.unwrap();
        assert_eq!(extent, Extent { total: 5_000, has_more: true, truncated: false }, "limit {limit}");
    }
}

#[tokio::test]
async fn a_far_window_without_a_map_is_still_complete() {
    let provider = Pretended::new(12_000);
    let client = Client::new(&provider);
    let (rows, extent, calls) = client.window(200, 7_000).await.unwrap();
    assert_eq!(rows, provider.matching()[7_000..7_200]);
    assert!(extent.truncated || extent.total == 12_000);
    assert_eq!(calls, 12, "eight pages to the window's end, four to the list's");
}

#[tokio::test]
async fn a_dead_cursor_starts_the_walk_again() {
    let provider = Pretended::new(3_000);
    let client = Client::new(&provider);
    client.window(200, 0).await.unwrap();
    provider.cursors_die.store(true, Ordering::Relaxed);
    let (rows, extent, _) = client.window(200, 1_000).await.unwrap();
    assert_eq!(rows, provider.matching()[1_000..1_200]);
    assert_eq!(extent.total, 3_000);
}

#[tokio::test]
async fn a_provider_that_is_down_does_not_cost_the_map() {
    let provider = Pretended::new(3_000);
    let client = Client::new(&provider);
    client.window(200, 0).await.unwrap();
    provider.fail_from_call.store(0, Ordering::Relaxed);
    assert!(client.window(200, 2_000).await.is_err());
    provider.fail_from_call.store(u32::MAX, Ordering::Relaxed);
    let (rows, _, calls) = client.window(200, 2_200).await.unwrap();
    assert_eq!((rows, calls), (provider.matching()[2_200..2_400].to_vec(), 1));
}

#[tokio::test]
async fn a_page_that_fails_while_counting_leaves_the_window() {
    let provider = Pretended::new(3_000);
    provider.fail_from_call.store(2, Ordering::Relaxed);
    let (rows, extent, _) = Client::new(&provider).window(200, 0).await.unwrap();
    assert_eq!(rows.len(), 200);
    assert_eq!(extent, Extent { total: 200, has_more: true, truncated: true });
}

#[tokio::test]
async fn a_page_that_fails_before_the_window_is_complete_keeps_what_was_learned() {
    let provider = Pretended::new(3_000);
    let client = Client::new(&provider);
    provider.fail_from_call.store(3, Ordering::Relaxed);
    assert!(client.window(200, 2_500).await.is_err());
    provider.fail_from_call.store(u32::MAX, Ordering::Relaxed);
    let (rows, _, calls) = client.window(200, 2_500).await.unwrap();
    assert_eq!(rows, provider.matching()[2_500..2_700]);
    assert!(calls <= 2, "went on from where it was: {calls} calls");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_list_is_walked_once(
        rows in 0_u64..1_500,
        limit in 1_u32..300,
        foreign_every in 0_u64..6,
        empty_every in prop::sample::select(vec![0_u32, 2, 3, 5]),
        page_rows_max in 20_u32..400,
        row_cap in 1_u64..2_000,
    ) {
        // Windows of one row over a thousand rows prove nothing more, and take long.
        let limit = limit.max(u32::try_from(rows / 100).unwrap()).max(1);
        let provider = Pretended { foreign_every: if foreign_every == 1 { 0 } else { foreign_every }, empty_every, page_rows_max, ..Pretended::new(rows) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut client = Client::new(&provider);
        client.row_cap = row_cap;
        let (seen, _, _) = runtime.block_on(client.walk(limit));
        let expected = provider.matching();
        prop_assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
        prop_assert_eq!(seen, expected);
    }

    /// Jumping about gives the same windows as skip and take, whatever was asked before.
    #[test]
    fn any_order_of_windows(
        rows in 0_u64..2_000,
        windows in prop::collection::vec((1_u32..300, 0_u64..2_200), 1..8),
        foreign_every in prop::sample::select(vec![0_u64, 2, 7]),
    ) {
        let provider = Pretended { foreign_every, page_rows_max: 250, ..Pretended::new(rows) };
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
