//! Merged ranges over simulated lists, cut and continued anywhere, compared with a merge of the
//! whole lists.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bellbird_domain::{Bound, ConnectionCategory, DateFilter, Trade, Transaction};
use bellbird_providers::pages::{Trades, Transactions};
use jiff::civil::Date;
use proptest::prelude::*;

use super::*;
use crate::ConnectionContext;
use crate::test_support::{NOW, Row, Simulated, UNAVAILABLE, World, at, runtime};

const FAR: Duration = Duration::from_secs(25);
const ACCOUNTS: [&str; 3] = ["a", "b", "c"];

/// Two banks, the first with one account, the second with the others.
struct Setup {
    banks: [Arc<Simulated>; 2],
    world: World,
    contexts: [Arc<ConnectionContext>; 2],
}

/// So many rows of the accounts in turn, newest first, a second apart.
fn in_turn(count: usize) -> Vec<Row> {
    (0..count)
        .map(|number| Row::new(ACCOUNTS[number % 3], number, NOW - number as i64))
        .collect()
}

/// The ids of such rows.
fn numbers(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

fn newest_first(rows: &mut [Row]) {
    rows.sort_by_key(|row| -row.second);
}

impl Setup {
    fn with_delays(mut rows: Vec<Row>, rows_max: u32, delays: [Duration; 2]) -> Self {
        newest_first(&mut rows);
        let bank = |name, delay| {
            let bank = Simulated::new(name, ConnectionCategory::Banking, rows_max, rows.clone());
            Arc::new(bank.with_delay(delay))
        };
        let banks = [bank("first", delays[0]), bank("second", delays[1])];
        let world = World::new(&[&banks[0], &banks[1]]);
        let contexts = [
            world.connection(&banks[0], &ACCOUNTS[..1]),
            world.connection(&banks[1], &ACCOUNTS[1..]),
        ];
        Self {
            banks,
            world,
            contexts,
        }
    }

    fn new(rows: Vec<Row>, rows_max: u32) -> Self {
        Self::with_delays(rows, rows_max, [Duration::ZERO; 2])
    }

    /// The list of an account, or of all accounts of the connection.
    fn range(
        &self,
        context: &Arc<ConnectionContext>,
        id: Option<AccountId>,
    ) -> Range<Transactions> {
        let dates = DateFilter {
            from: Some(Bound::Instant(at(0))),
            to: Some(Bound::Instant(at(NOW))),
        };
        let (world, context) = (&self.world, Arc::clone(context));
        let range = world
            .reads
            .range(&world.caller, context, id, dates, at(NOW));
        range.unwrap()
    }

    /// A list for each account.
    fn ranges(&self) -> Vec<Range<Transactions>> {
        let mut ranges = Vec::new();
        for context in self.contexts.iter().rev() {
            for account in &context.accounts {
                ranges.push(self.range(context, Some(account.id)));
            }
        }
        ranges
    }

    /// Reads at most so many rows. Returns their ids.
    async fn read(
        &self,
        after: Option<MergedPosition>,
        rows_max: usize,
        stop_in: Duration,
    ) -> (Vec<String>, Outcome) {
        self.read_of(self.ranges(), after, rows_max, stop_in).await
    }

    async fn read_of(
        &self,
        ranges: Vec<Range<Transactions>>,
        after: Option<MergedPosition>,
        rows_max: usize,
        stop_in: Duration,
    ) -> (Vec<String>, Outcome) {
        let map =
            |row: &Transaction<'_>, day| id_of(row, day).filter(|_| row.description != "left out");
        let mut merged = Merged::new(ranges, after, Instant::now() + stop_in, map);
        let (call, mut ids) = (self.world.call(), Vec::new());
        while ids.len() < rows_max {
            match merged.next(&call).await {
                Ok(Some(id)) => ids.push(id),
                Ok(None) => return (ids, Outcome::of(&merged, false)),
                Err(PositionLost) => {
                    let mut outcome = Outcome::of(&merged, false);
                    outcome.is_lost = true;
                    return (ids, outcome);
                }
            }
        }
        (ids, Outcome::of(&merged, true))
    }
}

fn id_of(row: &Transaction<'_>, _: Date) -> Option<String> {
    Some(row.id.to_string())
}

struct Outcome {
    /// As it is in a cursor.
    position: Option<MergedPosition>,
    may_follow: bool,
    is_stopped: bool,
    is_lost: bool,
    failed: usize,
}

impl Outcome {
    fn of(merged: &Merged<'_, Transactions, String>, may_follow: bool) -> Self {
        let position = merged
            .position()
            .map(|position| position.to_string().parse().unwrap());
        let failed = merged
            .lists()
            .filter(|list| matches!(list.state, ListState::Failed(_)))
            .count();
        Self {
            position,
            may_follow,
            is_stopped: merged.is_stopped(),
            is_lost: false,
            failed,
        }
    }
}

/// Newest first, then by account.
fn model(rows: &[Row]) -> Vec<String> {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| (-row.second, row.account.clone()));
    rows.into_iter()
        .filter(|row| row.description != "left out")
        .map(|row| row.id)
        .collect()
}

/// Rows of several accounts with many equal times. One in five is left out by the filter.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    let row = (prop::sample::select(&ACCOUNTS[..]), 0_i64..12, 0_u8..5);
    prop::collection::vec(row, 0..70).prop_map(|rows| {
        let mut rows: Vec<Row> = rows
            .into_iter()
            .enumerate()
            .map(|(number, (account, second, kind))| {
                let description = if kind == 0 { "left out" } else { "" }.to_owned();
                Row {
                    description,
                    ..Row::new(account, number, NOW - second)
                }
            })
            .collect();
        newest_first(&mut rows);
        rows
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cut_anywhere_and_continued_is_the_whole(rows in rows(), rows_max in 1_u32..9, shown in 1_usize..20) {
        let expected = model(&rows);
        let seen = runtime().block_on(async {
            let setup = Setup::new(rows, rows_max);
            let (mut seen, mut position) = (Vec::new(), None);
            loop {
                let (ids, outcome) = setup.read(position, shown, FAR).await;
                assert!(!outcome.is_lost && !outcome.is_stopped && outcome.failed == 0);
                seen.extend(ids);
                position = outcome.position;
                if !outcome.may_follow {
                    return seen;
                }
            }
        });
        prop_assert_eq!(seen, expected);
    }

    /// Rows are posted and removed between two responses. No row comes twice and none is passed
    /// over, or the client has to begin again.
    #[test]
    fn changes_never_give_wrong_rows(
        rows in rows(),
        shown in 1_usize..20,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_i64..12, any::<bool>()), 1..6),
    ) {
        let (seen, remaining, is_lost) = runtime().block_on(async {
            let setup = Setup::new(rows.clone(), 5);
            let (mut seen, mut position, mut remaining) = (Vec::new(), None, model(&rows));
            let mut changes = changes.into_iter().enumerate();
            loop {
                let (ids, outcome) = setup.read(position, shown, FAR).await;
                seen.extend(ids);
                position = outcome.position;
                if !outcome.may_follow || outcome.is_lost {
                    return (seen, remaining, outcome.is_lost);
                }
                if let Some((number, (index, second, is_new))) = changes.next() {
                    if is_new {
                        let account = ACCOUNTS[index.index(3)];
                        let row = Row::new(account, format!("new {number}"), NOW - second);
                        setup.banks.iter().for_each(|bank| bank.post(row.clone()));
                    } else if !rows.is_empty() {
                        let gone = rows[index.index(rows.len())].id.clone();
                        setup.banks.iter().for_each(|bank| bank.rows.lock().retain(|row| row.id != gone));
                        remaining.retain(|id| *id != gone);
                    }
                }
            }
        });
        prop_assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "a row came twice");
        let missed: Vec<&String> = remaining.iter().filter(|id| !seen.contains(id)).collect();
        prop_assert!(is_lost || missed.is_empty(), "missed {:?}", missed);
    }
}

#[tokio::test]
async fn next_can_run_in_a_task() {
    let setup = Setup::new(vec![Row::new("a", 1, NOW)], 5);
    let read = tokio::spawn(async move { setup.read(None, 10, FAR).await.0 });
    assert_eq!(read.await.unwrap(), ["1"]);
}

#[tokio::test]
async fn later_pages_are_read_only_when_needed() {
    let setup = Setup::new(in_turn(100), 10);
    let (ids, outcome) = setup.read(None, 20, FAR).await;
    assert_eq!(ids, numbers(0..20));
    assert!(outcome.may_follow);
    let calls = setup.banks.each_ref().map(|bank| bank.calls.lock().len());
    assert_eq!(calls, [1, 2]);
}

#[tokio::test]
async fn failing_list_leaves_the_others() {
    let setup = Setup::new(in_turn(9), 2);
    setup.banks[0].fail_next([None, Some(UNAVAILABLE)]);
    let (ids, outcome) = setup.read(None, 100, FAR).await;
    // The third row of the first account is missing.
    assert_eq!(ids, ["0", "1", "2", "3", "4", "5", "7", "8"]);
    assert_eq!(outcome.failed, 1);
    assert!(!outcome.is_stopped);
}

#[tokio::test(start_paused = true)]
async fn long_read_attempts_a_page_again() {
    let setup = Setup::new(in_turn(9), 2);
    setup.banks[0].fail_next([None, Some(UNAVAILABLE), Some(UNAVAILABLE)]);
    let stop_at = Instant::now() + Duration::from_secs(3_600);
    let mut merged = Merged::new(setup.ranges(), None, stop_at, id_of);
    let mut ids = Vec::new();
    let new_call = || setup.world.call();
    while let Some(id) = merged.next_with_retries(&new_call).await.unwrap() {
        ids.push(id);
    }
    assert_eq!((ids, merged.failed()), (numbers(0..9), 0));
}

#[tokio::test(start_paused = true)]
async fn silent_list_can_be_given_up() {
    let setup = Setup::with_delays(in_turn(9), 9, [Duration::from_secs(10), Duration::ZERO]);
    let stop_at = Instant::now() + Duration::from_secs(5);
    let mut merged = Merged::new(setup.ranges(), None, stop_at, id_of);
    let call = setup.world.call();
    assert_eq!(merged.next(&call).await, Ok(None));
    assert!(merged.is_stopped() && merged.fail_unread() && !merged.fail_unread());
    let mut ids = Vec::new();
    while let Some(id) = merged.next(&call).await.unwrap() {
        ids.push(id);
    }
    assert_eq!(ids, ["1", "2", "4", "5", "7", "8"], "those of the others");
    assert_eq!((merged.failed(), merged.is_stopped()), (1, false));
}

#[tokio::test(start_paused = true)]
async fn at_most_four_calls_run_at_once() {
    let bank = Simulated::new("first", ConnectionCategory::Banking, 5, vec![]);
    let bank = Arc::new(bank.with_delay(Duration::from_secs(1)));
    let world = World::new(&[&bank]);
    let accounts = ["1", "2", "3", "4", "5", "6"];
    let context = world.connection(&bank, &accounts);
    let range = |account: &bellbird_domain::Account| {
        let (context, id, all) = (Arc::clone(&context), account.id, DateFilter::default());
        let range = world
            .reads
            .range(&world.caller, context, Some(id), all, at(NOW));
        range.unwrap()
    };
    let ranges: Vec<Range<Transactions>> = context.accounts.iter().map(range).collect();
    let mut merged = Merged::new(ranges, None, Instant::now() + FAR, |_, _| Some(()));
    assert_eq!(merged.next(&world.call()).await, Ok(None));
    assert_eq!(bank.calls.lock().len(), 6);
    assert_eq!(bank.running_max.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn slow_list_stops_the_merge_where_it_is_known() {
    // Pages of four rows: the first account is known down to row 9 after ten seconds, and to row 21
    // after twenty.
    let setup = Setup::with_delays(in_turn(30), 4, [Duration::from_secs(10), Duration::ZERO]);
    let (ids, outcome) = setup.read(None, 100, Duration::from_secs(5)).await;
    // Nothing is certain.
    assert!(ids.is_empty() && outcome.is_stopped && outcome.position.is_none());
    let (ids, outcome) = setup.read(None, 100, Duration::from_secs(15)).await;
    assert_eq!(ids, numbers(0..10));
    assert!(outcome.is_stopped);
    assert_eq!(outcome.failed, 0);
    let long = Duration::from_secs(100);
    let (ids, outcome) = setup.read(outcome.position, 100, long).await;
    assert_eq!(ids, numbers(10..30));
    assert!(!outcome.is_stopped);
}

#[tokio::test(start_paused = true)]
async fn stopped_list_holds_rows_of_the_same_time_back() {
    let rows = (0..9)
        .map(|number| Row::new(ACCOUNTS[number / 6], number, NOW))
        .collect();
    let setup = Setup::with_delays(rows, 4, [Duration::from_secs(10), Duration::ZERO]);
    let (ids, outcome) = setup.read(None, 100, Duration::from_secs(15)).await;
    // More rows of the first account may be of this time.
    assert_eq!(ids, numbers(0..4));
    let long = Duration::from_secs(100);
    let (ids, outcome) = setup.read(outcome.position, 100, long).await;
    assert_eq!((ids, outcome.is_lost), (numbers(4..9), false));
}

#[tokio::test(start_paused = true)]
async fn stopped_search_continues_behind_the_rows_that_it_left_out() {
    const WEEK: i64 = 7 * 86_400;
    let left_out = |number| Row {
        description: "left out".to_owned(),
        ..Row::new("a", number, NOW - number * WEEK)
    };
    let found = Row::new("a", "found", NOW - 20 * WEEK);
    let rows = (0..20).map(left_out).chain([found]).collect();
    let setup = Setup::with_delays(rows, 4, [Duration::from_secs(10), Duration::ZERO]);
    let stop_in = Duration::from_secs(35);
    let (ids, outcome) = setup.read(None, 100, stop_in).await;
    assert!(ids.is_empty() && outcome.is_stopped);
    let eleven_weeks_ago = MergedPosition {
        instant: at(NOW - 11 * WEEK),
        shown: None,
    };
    assert_eq!(outcome.position, Some(eleven_weeks_ago));
    let (ids, outcome) = setup.read(outcome.position, 100, stop_in).await;
    assert_eq!((ids, outcome.is_stopped), (vec!["found".to_owned()], false));
}

#[tokio::test(start_paused = true)]
async fn rest_is_counted_and_says_if_there_is_more() {
    let setup = Setup::with_delays(in_turn(30), 4, [Duration::from_secs(10), Duration::ZERO]);
    let after_three = async |stop_in: u64, fail: bool| {
        let stop_at = Instant::now() + Duration::from_secs(stop_in);
        let mut merged = Merged::new(setup.ranges(), None, stop_at, id_of);
        for _ in 0..3 {
            assert!(merged.next(&setup.world.call()).await.unwrap().is_some());
        }
        let position = merged.position();
        if fail {
            setup.banks[0].fail_next([Some(UNAVAILABLE)]);
        }
        let rest = merged.count_rest(&setup.world.call()).await;
        let next = merged.next(&setup.world.call()).await;
        assert_eq!(next, Ok(None), "counted rows are dropped");
        (rest, position)
    };
    let all = Rest {
        rows: 27,
        is_exact: true,
    };
    let (rest, position) = after_three(100, false).await;
    assert_eq!(rest, all);
    // The position of the last row is known before.
    assert_eq!(setup.read(position, 1, FAR).await.0, ["3"]);
    let without_later_pages = Rest {
        rows: 3 + 9 + 9,
        is_exact: false,
    };
    for (stop_in, fail) in [(15, false), (100, true)] {
        let (rest, _) = after_three(stop_in, fail).await;
        assert_eq!(rest, without_later_pages, "{stop_in}");
    }
}

#[tokio::test]
async fn changed_rows_of_the_same_time_are_lost() {
    let rows: Vec<Row> = (0..6).map(|number| Row::new("a", number, NOW)).collect();
    let setup = Setup::new(rows, 2);
    let (ids, outcome) = setup.read(None, 3, FAR).await;
    assert_eq!(ids, ["0", "1", "2"]);
    let position = outcome.position;
    assert_eq!(setup.read(position, 9, FAR).await.0, ["3", "4", "5"]);
    let bank = &setup.banks[0];
    let assert_lost = async |rows_max, why: &str| {
        let (_, outcome) = setup.read(position, rows_max, FAR).await;
        assert!(outcome.is_lost, "{why}");
    };
    bank.rows.lock().insert(0, Row::new("a", "new", NOW));
    assert_lost(9, "another row came first").await;
    bank.rows.lock().drain(..2);
    assert_lost(9, "a row is gone").await;
    bank.rows.lock().drain(2..);
    assert_lost(9, "the list ends before").await;
    let older = (1..9).map(|older| Row::new("a", older, NOW - older));
    bank.rows.lock().extend(older);
    assert_lost(1, "an older row comes before").await;
    bank.rows.lock().clear();
    assert_lost(9, "no row is left").await;
}

/// The bank posts at midnight, and rows of its accounts alternate. Each limit ends the pages of the
/// one list elsewhere.
#[tokio::test]
async fn list_of_all_accounts_is_continued_between_rows_of_one_time() {
    const DAY: i64 = 86_400;
    let row = |number: usize| {
        let second = NOW - number as i64 / 8 * DAY;
        Row::new(ACCOUNTS[1 + number % 2], number, second)
    };
    let setup = Setup::new((0..80).map(row).collect(), 1_000);
    for limit in 1..80_u32 {
        let (mut seen, mut position) = (Vec::new(), None);
        loop {
            let range = setup.range(&setup.contexts[1], None);
            let ranges = vec![range.with_first_page_rows(limit + 1)];
            let read = setup.read_of(ranges, position, limit as usize, FAR);
            let (ids, outcome) = read.await;
            assert!(!outcome.is_lost, "limit {limit}");
            seen.extend(ids);
            position = outcome.position;
            if !outcome.may_follow {
                break;
            }
        }
        assert_eq!(seen, numbers(0..80), "limit {limit}");
    }
}

#[tokio::test]
async fn late_row_comes_once() {
    let setup = Setup::new(vec![], 2);
    let row = |account: &str, second: i64| {
        let id = format!("{account}{second}");
        Row::new(account, id, NOW - second)
    };
    let of_first = [10, 20, 15, 30].map(|second| row("a", second));
    let of_second = [17, 20, 21].map(|second| row("b", second));
    for bank in &setup.banks {
        let mut rows = bank.rows.lock();
        rows.extend(of_first.iter().chain(&of_second).cloned());
    }
    let expected = ["a10", "b17", "a20", "a15", "b20", "b21", "a30"];
    // A list is in its provider's order.
    assert_eq!(setup.read(None, 9, FAR).await.0, expected);
    // The next page begins with a later row, which the first read has not seen.
    let before_late = setup.read(None, 3, FAR).await.1.position;
    let (ids, _) = setup.read(before_late, 9, FAR).await;
    assert_eq!(ids, expected[3..], "not passed over");
    let after_late = setup.read(None, 4, FAR).await.1.position;
    let (ids, outcome) = setup.read(after_late, 9, FAR).await;
    assert_eq!(ids, expected[4..]);
    assert!(!outcome.is_lost);
}

#[tokio::test]
async fn trades_of_accounts_are_merged_and_continued() {
    let rows = (0..20)
        .map(|number| Row::new(ACCOUNTS[number % 3], number, NOW - number as i64 / 4))
        .collect();
    let broker = Arc::new(Simulated::broker(3, rows));
    let world = World::new(&[&broker]);
    let context = world.connection(&broker, &ACCOUNTS);
    let (mut seen, mut position) = (Vec::new(), None);
    loop {
        let (caller, context, all) = (&world.caller, Arc::clone(&context), DateFilter::default());
        let range = world
            .reads
            .range::<Trades>(caller, context, None, all, at(NOW));
        let range = range.unwrap();
        let map = |row: &Trade<'_>, _| Some(row.symbol.to_string());
        let mut merged = Merged::new(vec![range], position, Instant::now() + FAR, map);
        assert_eq!(merged.lists().count(), 3);
        let before = seen.len();
        for _ in 0..7 {
            seen.extend(merged.next(&world.call()).await.unwrap());
        }
        position = merged.position();
        if seen.len() < before + 7 {
            break;
        }
    }
    let mut expected: Vec<usize> = (0..20).collect();
    expected.sort_by_key(|number| (number / 4, number % 3));
    let expected: Vec<String> = expected.iter().map(usize::to_string).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn enough_rows_stop_the_merge_where_it_is_known() {
    let setup = Setup::new(in_turn(30), 2);
    let read = async |after, rows_max| {
        let merged = Merged::new(setup.ranges(), after, Instant::now() + FAR, id_of);
        let mut merged = merged.with_rows_max(rows_max);
        let (call, mut ids) = (setup.world.call(), Vec::new());
        while let Some(id) = merged.next(&call).await.unwrap() {
            ids.push(id);
        }
        (ids, merged.position(), merged.is_stopped())
    };
    let (mut seen, position, is_stopped) = read(None, 12).await;
    assert!(is_stopped && (6..12).contains(&seen.len()), "{seen:?}");
    let (rest, _, is_stopped) = read(position, u64::MAX).await;
    assert!(!is_stopped);
    seen.extend(rest);
    assert_eq!(seen, numbers(0..30));
}

#[tokio::test(start_paused = true)]
async fn lists_that_are_awaited_are_known() {
    let delays = [Duration::from_secs(10), Duration::ZERO];
    let setup = Setup::with_delays(in_turn(9), 9, delays);
    let seen = Mutex::new(Vec::new());
    let map = |row: &Transaction<'_>, _| {
        seen.lock().push(row.id.to_string());
        Some(())
    };
    let mut merged = Merged::new(setup.ranges(), None, Instant::now() + FAR, map);
    let (awaited, call) = (merged.awaited(), setup.world.call());
    let next = merged.next(&call);
    tokio::pin!(next);
    let second = Duration::from_secs(1);
    assert!(tokio::time::timeout(second, &mut next).await.is_err());
    let slow = &setup.contexts[0];
    let slow = (slow.connection.id, Some(slow.accounts[0].id));
    assert_eq!(awaited.lock().iter().collect::<Vec<_>>(), [&slow]);
    assert_eq!(seen.lock().len(), 6, "those of the other lists");
    assert_eq!(next.await, Ok(Some(())));
    assert!(awaited.lock().is_empty());
}
