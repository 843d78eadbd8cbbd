//! Windows over simulated lists of several accounts, compared with a merge of the whole lists.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bellbird_domain::{Bound, DateFilter, KeyId};
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::test_support::{NOW, Row, Simulated, UNAVAILABLE, World, at, runtime};

/// How the query treats a row of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Matches,
    /// Its day is before the range.
    Outside,
    /// The adapter skips it, because it has no date.
    Undated,
    /// Its time is after `to`, independent of its position.
    Later,
}

/// A broker with a list of rows for each account: (second, kind), newest first.
struct Broker {
    lists: Vec<Vec<(i64, Kind)>>,
    simulated: Simulated,
}

/// A client that pages through the trades of all accounts.
struct Client {
    simulated: Arc<Simulated>,
    world: World,
    context: Arc<ConnectionContext>,
    key_id: KeyId,
}

const DAY: i64 = 86_400;
const FROM: i64 = 1_000 * DAY;

/// Rows one minute apart.
fn one(rows: i64) -> Vec<(i64, Kind)> {
    (0..rows)
        .map(|row| (FROM + DAY * 900 - row * 60, Kind::Matches))
        .collect()
}

impl Broker {
    fn new(lists: Vec<Vec<(i64, Kind)>>) -> Self {
        let mut rows = Vec::new();
        for (at, list) in lists.iter().enumerate() {
            rows.extend(list.iter().enumerate().map(|(number, (second, kind))| Row {
                own_second: match kind {
                    Kind::Outside => Some(*second - 100_000 * DAY),
                    Kind::Later => Some(*second + DAY * 100),
                    Kind::Matches | Kind::Undated => None,
                },
                is_left_out: *kind == Kind::Undated,
                ..Row::new(&at.to_string(), format!("{at}.{number}"), *second)
            }));
        }
        let mut simulated = Simulated::broker(1_000, rows);
        simulated.filters_range = false;
        Self { lists, simulated }
    }

    /// The whole merged list.
    fn model(&self) -> Vec<String> {
        let mut rows: Vec<(i64, usize, usize)> = Vec::new();
        for (at, list) in self.lists.iter().enumerate() {
            let list = list.iter().enumerate();
            let matching = list.filter(|(_, row)| row.1 == Kind::Matches);
            rows.extend(matching.map(|(number, row)| (-row.0, at, number)));
        }
        rows.sort_unstable();
        let rows = rows.into_iter();
        rows.map(|(_, at, number)| format!("\"{at}.{number}\""))
            .collect()
    }

    fn client(self) -> Client {
        let simulated = Arc::new(self.simulated);
        let world = World::new(&[&simulated]);
        let names: Vec<String> = (0..self.lists.len()).map(|at| at.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut context = world.connection(&simulated, &names);
        // The lists are in the order of the accounts' ids.
        let accounts = &mut Arc::get_mut(&mut context).expect("not shared").accounts;
        accounts.sort_by_key(|account| account.id);
        for (account, name) in accounts.iter_mut().zip(names) {
            account.provider_account_id = name.to_owned();
        }
        let just_now = at(NOW).as_microsecond();
        context.refreshed_us.store(just_now, Ordering::Relaxed);
        Client {
            simulated,
            world,
            context,
            key_id: KeyId::new(),
        }
    }
}

impl Client {
    /// Another client of the same broker, for whom nothing is known.
    fn fresh(&self) -> Self {
        Self {
            simulated: Arc::clone(&self.simulated),
            world: World::new(&[&self.simulated]),
            context: Arc::clone(&self.context),
            key_id: KeyId::new(),
        }
    }

    async fn window(
        &self,
        dates: DateFilter,
        limit: u32,
        offset: u64,
    ) -> (Vec<String>, WindowTotals) {
        let found = self.try_window(dates, limit, offset).await;
        found.expect("the window is read")
    }

    async fn try_window(
        &self,
        dates: DateFilter,
        limit: u32,
        offset: u64,
    ) -> Result<(Vec<String>, WindowTotals), ReadError> {
        let query = QueryKey {
            key_id: self.key_id,
            connection_id: self.context.connection.id,
            account_id: None,
            dates,
        };
        let page = Page { limit, offset };
        let (call, key) = (self.world.call(), WindowKey { query, page });
        let write: WriteTrade =
            |trade, out| out.extend_from_slice(format!("\"{}\"", trade.symbol).as_bytes());
        let reads = &self.world.reads;
        let found = reads
            .trades(&call, &self.world.caller, &self.context, key, write)
            .await?;
        let text = String::from_utf8(found.rows).expect("text");
        let are_whole = text.is_empty() || text.split(',').all(|row| row.len() > 4);
        assert!(are_whole, "broken row: {text}");
        let rows = text.split(',').filter(|row| !row.is_empty());
        Ok((rows.map(str::to_owned).collect(), found.totals))
    }
}

fn from_start() -> DateFilter {
    DateFilter {
        from: Some(Bound::Instant(at(FROM))),
        to: None,
    }
}

fn both_ends() -> DateFilter {
    DateFilter {
        to: Some(Bound::Instant(Timestamp::MAX)),
        ..from_start()
    }
}

#[tokio::test]
async fn one_account_window_costs_one_call_anywhere() {
    let broker = Broker::new(vec![one(20_000)]);
    let (model, client) = (broker.model(), broker.client());
    for dates in [DateFilter::default(), from_start()] {
        for offset in [0, 200, 12_345, 19_900] {
            let (rows, totals) = client.fresh().window(dates, 200, offset).await;
            let at = offset as usize;
            assert_eq!(rows, model[at..(at + 200).min(20_000)]);
            assert_eq!(client.simulated.take_calls(), 1, "{offset}");
            assert_eq!(totals.has_more, offset < 19_800);
            assert_eq!(totals.truncated, offset < 15_000, "{offset}");
            if !totals.has_more {
                assert_eq!(totals.total, 20_000);
            }
        }
    }
}

#[tokio::test]
async fn far_window_skips_rows_filtered_by_to() {
    let mut list = one(20_000);
    // Rows of the day after `to` come first, and one stands among the matching rows.
    for later in (0..120).chain([130]) {
        list[later].1 = Kind::Later;
    }
    let broker = Broker::new(vec![list]);
    let (model, client) = (broker.model(), broker.client());
    let newest = at(FROM + DAY * 900 - 120 * 60);
    let dates = DateFilter {
        from: None,
        to: Some(Bound::Instant(newest)),
    };
    for (offset, calls) in [(0, 2), (200, 3), (10_000, 3), (19_878, 3)] {
        let (rows, _) = client.fresh().window(dates, 200, offset).await;
        let from = (offset as usize).min(model.len());
        let to = (from + 200).min(model.len());
        assert_eq!(rows, model[from..to], "{offset}");
        assert!(client.simulated.take_calls() <= calls, "{offset}");
    }
}

#[tokio::test]
async fn exactly_the_cap_is_not_truncated() {
    let client = Broker::new(vec![one(5_000)]).client();
    let (_, totals) = client.window(DateFilter::default(), 200, 0).await;
    assert!(totals.has_more);
    assert!(!totals.truncated);
}

#[tokio::test]
async fn behind_the_end_the_total_is_exact() {
    let client = Broker::new(vec![one(300)]).client();
    let expected = WindowTotals {
        total: 300,
        has_more: false,
        truncated: false,
    };
    let all = DateFilter::default();
    for (dates, calls) in [(all, 1), (from_start(), 3), (both_ends(), 3)] {
        for _ in 0..2 {
            let (rows, totals) = client.fresh().window(dates, 200, 5_000).await;
            assert!(rows.is_empty(), "{dates:?}");
            assert_eq!(totals, expected, "{dates:?}");
            assert!(client.simulated.take_calls() <= calls, "{dates:?}");
        }
    }
}

#[tokio::test]
async fn exhausted_account_costs_no_further_call() {
    let row = |second: i64| (FROM + second, Kind::Matches);
    let broker = Broker::new(vec![
        (0..1_000).rev().map(|second| row(second * 60)).collect(),
        (0..5).rev().map(|second| row(70_000 + second)).collect(),
    ]);
    let (model, client) = (broker.model(), broker.client());
    let (_, first) = client.window(DateFilter::default(), 200, 0).await;
    assert!(first.has_more);
    assert_eq!(client.simulated.take_calls(), 2);
    let (rows, _) = client.window(DateFilter::default(), 200, 200).await;
    assert_eq!(rows, model[200..400]);
    assert_eq!(client.simulated.take_calls(), 1);
}

/// Two accounts with rows one minute apart. All rows of the first are newer than those of the
/// second.
fn stacked(above: i64, below: i64) -> Broker {
    let list = |rows: i64, from: i64| {
        (0..rows)
            .map(|row| (FROM + from - row * 60, Kind::Matches))
            .collect()
    };
    Broker::new(vec![list(above, DAY * 900), list(below, DAY * 400)])
}

#[tokio::test]
async fn far_window_over_several_accounts_is_complete() {
    let broker = stacked(4_500, 1_000);
    let (model, client) = (broker.model(), broker.client());
    for (offset, limit) in [(4_497, 6), (5_000, 10), (3_000, 200), (5_400, 500)] {
        let (client, all) = (client.fresh(), DateFilter::default());
        let (rows, _) = client.window(all, limit, offset).await;
        let from = offset as usize;
        let to = (from + limit as usize).min(model.len());
        assert_eq!(rows, model[from..to], "{offset}");
    }
}

#[tokio::test]
async fn two_large_accounts_cost_two_calls_a_window() {
    let (client, all) = (stacked(20_000, 20_000).client(), DateFilter::default());
    for window in 0..5 {
        client.window(all, 200, window * 200).await;
        assert!(client.simulated.take_calls() <= 2, "{window}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_accounts_are_read_at_once() {
    let mut broker = Broker::new((0..6).map(|_| one(10)).collect());
    broker.simulated = broker.simulated.with_delay(Duration::from_secs(1));
    let client = broker.client();
    let (rows, _) = client.window(DateFilter::default(), 200, 0).await;
    assert_eq!(rows.len(), 60);
    assert_eq!(client.simulated.running_max.load(Ordering::Relaxed), 6);
}

#[tokio::test]
async fn filtered_rows_shift_no_window() {
    let mut list = one(1_000);
    for undated in [0, 1, 350] {
        list[undated].1 = Kind::Undated;
    }
    let broker = Broker::new(vec![list]);
    let (model, client) = (broker.model(), broker.client());
    // One window is skipped and one overlaps. Neither shifts the other windows.
    for offset in [0_u64, 400, 300, 200, 400, 600, 997, 5_000, 800] {
        let (rows, totals) = client.window(DateFilter::default(), 200, offset).await;
        let known = [0, 200, 997, 5_000].contains(&offset);
        let at = (offset as usize).min(model.len());
        if known {
            assert_eq!(rows, model[at..(at + 200).min(model.len())], "{offset}");
        }
        if !totals.has_more && known {
            let is_exact = totals.total == 997 || offset == 5_000;
            assert!(is_exact, "{offset}: {}", totals.total);
        }
    }
    let client = client.fresh();
    let mut all = Vec::new();
    while all.len() < 997 {
        let offset = all.len() as u64;
        all.extend(client.window(DateFilter::default(), 200, offset).await.0);
    }
    assert_eq!(all, model);
    client.simulated.take_calls();
    let (rows, totals) = client.window(DateFilter::default(), 200, 5_000).await;
    assert!(rows.is_empty());
    assert_eq!(totals.total, 997);
    assert_eq!(client.simulated.take_calls(), 0, "the end is known");
}

#[tokio::test]
async fn window_is_served_when_has_more_is_unknown() {
    let mut list = one(300);
    // The row that would show whether more follow is skipped.
    list[200].1 = Kind::Undated;
    let client = Broker::new(vec![list]).client();
    client.simulated.fail_next([None, Some(UNAVAILABLE)]);
    let (rows, totals) = client.window(DateFilter::default(), 200, 0).await;
    assert_eq!(rows.len(), 200);
    assert!(totals.has_more);
    assert!(totals.truncated);
}

impl Client {
    /// Reads all windows, and lets a row vanish at the provider before some of them. Returns what
    /// came.
    async fn all_while_rows_vanish(
        &self,
        dates: DateFilter,
        limit: u32,
        vanish: &[Option<usize>],
    ) -> Vec<String> {
        let mut all = Vec::new();
        for window in 0.. {
            let (rows, totals) = self.window(dates, limit, all.len() as u64).await;
            all.extend(rows);
            if !totals.has_more {
                break;
            }
            if let Some(Some(row)) = vanish.get(window) {
                let mut rows = self.simulated.rows.lock();
                let at = row % rows.len().max(1);
                if at < rows.len() {
                    rows.remove(at);
                }
            }
        }
        all
    }

    /// What the provider still lists.
    fn listed(&self) -> Vec<String> {
        let rows = self.simulated.rows.lock();
        let ids = rows.iter().map(|row| format!("\"{}\"", row.id));
        ids.collect()
    }
}

#[tokio::test]
async fn row_that_vanishes_between_windows_loses_no_other() {
    for lists in [vec![one(1_000)], vec![one(600), one(400)]] {
        let accounts = lists.len();
        let client = Broker::new(lists).client();
        // One that came already, two, one that is still to come, and the first one.
        let vanish = [Some(3), Some(7), None, Some(990), Some(0)];
        let all = client
            .all_while_rows_vanish(DateFilter::default(), 200, &vanish)
            .await;
        assert!(client.listed().iter().all(|row| all.contains(row)));
        assert!(all.len() <= 1_000 + vanish.len(), "{}", all.len());
        assert!(client.simulated.take_calls() <= accounts * (6 + vanish.len()));
    }
}

/// A client whose provider takes a second for each page of a hundred rows.
fn slow_client() -> Client {
    let mut broker = Broker::new(vec![one(1_000)]);
    broker.simulated = broker.simulated.with_delay(Duration::from_secs(1));
    broker.simulated.rows_max = 100;
    broker.client()
}

#[tokio::test(start_paused = true)]
async fn list_that_changes_between_the_pages_of_a_window_is_read_again() {
    for is_posted in [true, false] {
        let client = slow_client();
        let change = async {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            if is_posted {
                let newest = Row::new("0", "newest", FROM + DAY * 950);
                client.simulated.post(newest);
            } else {
                client.simulated.rows.lock().remove(50);
            }
        };
        let (window, ()) = tokio::join!(client.window(DateFilter::default(), 200, 0), change);
        assert_eq!(window.0, client.listed()[..200], "{is_posted}");
        let (rows, _) = client.window(DateFilter::default(), 200, 200).await;
        assert_eq!(rows, client.listed()[200..400], "{is_posted}");
    }
}

#[tokio::test(start_paused = true)]
async fn list_that_keeps_changing_fails() {
    let client = slow_client();
    let changes = async {
        for number in 0..100 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let second = FROM + DAY * 950 + number;
            client.simulated.post(Row::new("0", number, second));
        }
    };
    let (window, ()) = tokio::join!(client.try_window(DateFilter::default(), 200, 0), changes);
    assert!(matches!(
        window,
        Err(ReadError::Unavailable {
            is_transient: true,
            ..
        })
    ));
    let calls = client.simulated.take_calls();
    assert!(calls <= 3 * READS_MAX, "{calls} calls");
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![8 => Just(Kind::Matches), 1 => Just(Kind::Outside), 1 => Just(Kind::Undated)]
}

fn list() -> impl Strategy<Value = Vec<(i64, Kind)>> {
    prop::collection::vec((FROM..FROM + 40, kinds()), 0..60).prop_map(|mut rows| {
        rows.sort_by_key(|row| -row.0);
        rows
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Paging with `offset + limit` returns every row once, in order, with the exact total at the
    /// end, for any page size of the provider.
    #[test]
    fn windows_equal_the_merged_list(
        lists in prop::collection::vec(list(), 1..4),
        limit in 1_u32..30,
        rows_max in 1_u32..40,
        has_end in any::<bool>(),
    ) {
        let mut provider = Broker::new(lists);
        provider.simulated.rows_max = rows_max;
        let dates = if has_end { both_ends() } else { from_start() };
        let model = provider.model();
        let client = provider.client();
        runtime().block_on(async {
            let mut all = Vec::new();
            loop {
                let (rows, totals) = client.window(dates, limit, all.len() as u64).await;
                let is_full = rows.len() == limit as usize;
                prop_assert!(is_full || !totals.has_more, "a short window although more rows follow");
                prop_assert!(rows.len() <= limit as usize);
                all.extend(rows);
                if !totals.has_more {
                    prop_assert_eq!(totals.total, model.len() as u64);
                    break;
                }
            }
            prop_assert_eq!(&all, &model);
            Ok(())
        })?;
    }

    /// Rows that vanish meanwhile make others come twice, and lose none.
    #[test]
    fn rows_that_vanish_lose_no_others(
        lists in prop::collection::vec(list(), 1..4),
        limit in 1_u32..30,
        rows_max in 1_u32..40,
        has_end in any::<bool>(),
        vanish in prop::collection::vec(prop::option::of(0_usize..200), 0..30),
    ) {
        let matching = |list: Vec<(i64, Kind)>| list.into_iter().filter(|row| row.1 == Kind::Matches).collect();
        let mut provider = Broker::new(lists.into_iter().map(matching).collect());
        provider.simulated.rows_max = rows_max;
        let dates = if has_end { both_ends() } else { from_start() };
        let client = provider.client();
        let all = runtime().block_on(client.all_while_rows_vanish(dates, limit, &vanish));
        for row in client.listed() {
            prop_assert!(all.contains(&row), "{row} of {all:?}");
        }
    }

    /// A single window without an index is correct if every row matches.
    #[test]
    fn window_without_a_map_is_correct(
        lists in prop::collection::vec(list(), 1..4),
        limit in 1_u32..30,
        offset in 0_u64..150,
        rows_max in 1_u32..40,
    ) {
        let matching = |list: Vec<(i64, Kind)>| list.into_iter().filter(|row| row.1 == Kind::Matches).collect();
        let mut provider = Broker::new(lists.into_iter().map(matching).collect());
        provider.simulated.rows_max = rows_max;
        let model = provider.model();
        let client = provider.client();
        for dates in [DateFilter::default(), from_start(), both_ends()] {
            let (rows, totals) = runtime().block_on(client.fresh().window(dates, limit, offset));
            let expected: Vec<String> = model.iter().skip(offset as usize).take(limit as usize).cloned().collect();
            prop_assert_eq!(rows, expected);
            prop_assert_eq!(totals.has_more, offset + u64::from(limit) < model.len() as u64);
            if !totals.has_more {
                prop_assert_eq!(totals.total, model.len() as u64);
            }
        }
    }
}
