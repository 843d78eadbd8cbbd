//! Ranges over simulated lists: rows that move, failures, and waits in paused time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bellbird_domain::{AccountId, Bound, ConnectionStatus, DateFilter};
use bellbird_providers::pages::{PAGES_MAX, RowKind, Trades, Transactions};
use bellbird_providers::{CallContext, Error};
use futures_util::{FutureExt as _, TryFutureExt as _};
use proptest::prelude::*;
use tokio::time::Instant;

use crate::test_support::{NOW, Row, Simulated, UNAVAILABLE, World, at, runtime};
use crate::{Attempts, ConnectionContext, Range, ReadError};

/// A bank with rows one minute apart.
fn bank(rows_max: u32, rows: i64) -> (Arc<Simulated>, World, Arc<ConnectionContext>) {
    let rows = (0..rows)
        .map(|number| Row::new("1", number, NOW - number * 60))
        .collect();
    let bank = Arc::new(Simulated::bank(rows_max, rows));
    let world = World::new(&[&bank]);
    let context = world.connection(&bank, &["1"]);
    (bank, world, context)
}

impl World {
    fn range_of<K: RowKind>(
        &self,
        context: &Arc<ConnectionContext>,
        account: Option<AccountId>,
        dates: DateFilter,
    ) -> Result<Range<K>, ReadError> {
        let context = Arc::clone(context);
        self.reads
            .range(&self.caller, context, account, dates, at(NOW))
    }

    fn range(&self, context: &Arc<ConnectionContext>) -> Range<Transactions> {
        let all = DateFilter::default();
        self.range_of(context, None, all).unwrap()
    }

    fn trades(&self, context: &Arc<ConnectionContext>) -> Range<Trades> {
        let all = DateFilter::default();
        self.range_of(context, None, all).unwrap()
    }
}

/// From one second to another, both before the present.
fn dates(from: i64, to: i64) -> DateFilter {
    DateFilter {
        from: Some(Bound::Instant(at(from))),
        to: Some(Bound::Instant(at(to))),
    }
}

/// The ids of the next page, and whether pages may follow.
async fn page(
    world: &World,
    range: &mut Range<Transactions>,
) -> Result<(Vec<String>, bool), ReadError> {
    page_of(&world.call(), range).await
}

async fn page_of(
    call: &CallContext,
    range: &mut Range<Transactions>,
) -> Result<(Vec<String>, bool), ReadError> {
    let mut ids = Vec::new();
    let more = range
        .next_page(call, &mut |row, _| ids.push(row.id.to_string()))
        .await?;
    Ok((ids, more))
}

async fn trade_page(
    world: &World,
    range: &mut Range<Trades>,
) -> Result<(Vec<String>, bool), ReadError> {
    trade_page_of(&world.call(), range).await
}

async fn trade_page_of(
    call: &CallContext,
    range: &mut Range<Trades>,
) -> Result<(Vec<String>, bool), ReadError> {
    let mut ids = Vec::new();
    let more = range
        .next_page(call, &mut |row, _| ids.push(row.symbol.to_string()))
        .await?;
    Ok((ids, more))
}

/// As [`page`], with further attempts until an hour from now. Also returns how long it took, in
/// seconds.
async fn retried_page(
    world: &World,
    range: &mut Range<Transactions>,
) -> (Result<Vec<String>, ReadError>, u64) {
    retried_page_until(Attempts::end_of_list(), world, range).await
}

async fn retried_page_until(
    give_up_at: Instant,
    world: &World,
    range: &mut Range<Transactions>,
) -> (Result<Vec<String>, ReadError>, u64) {
    let started = Instant::now();
    let new_call = || world.call();
    let mut attempts = Attempts::new(Some(give_up_at), &new_call);
    let outcome = attempts
        .run(range, |range, call| {
            page_of(call, range).map_ok(|(ids, _)| ids).boxed()
        })
        .await;
    (outcome, started.elapsed().as_secs())
}

fn ids(numbers: impl IntoIterator<Item = i64>) -> Vec<String> {
    let numbers = numbers.into_iter();
    numbers.map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn range_is_read_page_by_page_until_the_end() {
    let (bank, world, context) = bank(4, 10);
    let mut range = world.range(&context);
    assert_eq!(bank.calls.lock().len(), 0, "none before the first page");
    assert_eq!(page(&world, &mut range).await.unwrap(), (ids(0..4), true));
    assert_eq!(page(&world, &mut range).await.unwrap(), (ids(4..8), true));
    assert_eq!(page(&world, &mut range).await.unwrap(), (ids(8..10), false));
    assert_eq!(page(&world, &mut range).await.unwrap(), (vec![], false));
    assert_eq!(bank.calls.lock().len(), 3, "no call behind the end");
    let refreshed_us = context.refreshed_us.load(Ordering::Relaxed);
    assert_eq!(refreshed_us, at(NOW).as_microsecond());
}

#[tokio::test]
async fn first_page_can_be_smaller() {
    let (bank, world, context) = bank(4, 10);
    let mut range = world.range(&context).with_first_page_rows(2);
    assert_eq!(page(&world, &mut range).await.unwrap().0, ids(0..2));
    assert_eq!(page(&world, &mut range).await.unwrap().0, ids(2..6));
    let mut range = world.range(&context).with_first_page_rows(0);
    assert_eq!(page(&world, &mut range).await.unwrap().0, ids(0..1));
    let sizes: Vec<u32> = bank.calls.lock().iter().map(|call| call.2).collect();
    assert_eq!(sizes, [2, 4, 1]);
}

#[tokio::test]
async fn range_is_that_of_the_transactions_endpoint() {
    const DAY: i64 = 86_400;
    let rows = [1, 0, -1, -30 * DAY, -30 * DAY - 1, -40 * DAY];
    let rows = rows.map(|seconds| Row::new("1", seconds, NOW + seconds));
    let bank = Arc::new(Simulated::bank(100, rows.to_vec()));
    let world = World::new(&[&bank]);
    let context = world.connection(&bank, &["1"]);
    let month = page(&world, &mut world.range(&context)).await.unwrap();
    assert_eq!(month, (ids([0, -1, -30 * DAY]), false));

    let (from, to) = (NOW - 50 * DAY, NOW - 2);
    let own = Some(context.accounts[0].id);
    let mut range = world.range_of(&context, own, dates(from, to)).unwrap();
    let (found, _) = page(&world, &mut range).await.unwrap();
    assert_eq!(found, ids([-30 * DAY, -30 * DAY - 1, -40 * DAY]));
    // One account is requested alone.
    let last = bank.calls.lock().last().unwrap().0.clone();
    assert_eq!(last.as_deref(), Some("1"));

    let mut range = world.range_of(&context, None, dates(to, from)).unwrap();
    let calls = bank.calls.lock().len();
    assert_eq!(page(&world, &mut range).await.unwrap(), (vec![], false));
    let after = bank.calls.lock().len();
    assert_eq!(after, calls, "an empty range costs no call");
}

#[tokio::test]
async fn other_accounts_and_categories_are_rejected() {
    let bank = Arc::new(Simulated::bank(1, vec![]));
    let broker = Arc::new(Simulated::broker(1, vec![]));
    let world = World::new(&[&bank, &broker]);
    let [banking, brokerage] = [&bank, &broker].map(|provider| world.connection(provider, &["1"]));
    let (unknown, all) = (Some(AccountId::new()), DateFilter::default());
    let transactions =
        |context, account| world.range_of::<Transactions>(context, account, all).err();
    let trades = |context, account| world.range_of::<Trades>(context, account, all).err();
    for error in [transactions(&banking, unknown), trades(&brokerage, unknown)] {
        assert!(matches!(error, Some(ReadError::NotFound)));
    }
    for error in [transactions(&brokerage, None), trades(&banking, None)] {
        assert!(matches!(error, Some(ReadError::WrongCategory)));
    }
}

#[tokio::test]
async fn row_that_moves_to_the_next_page_is_not_repeated() {
    let (bank, world, context) = bank(4, 10);
    let mut range = world.range(&context);
    assert_eq!(page(&world, &mut range).await.unwrap().0, ids(0..4));
    // Two rows move to the second page, and all of them are on it again for the third.
    bank.post(Row::new("1", "new", NOW));
    bank.post(Row::new("1", "newer", NOW));
    assert_eq!(page(&world, &mut range).await.unwrap().0, ids(4..6));
    assert_eq!(page(&world, &mut range).await.unwrap().0, ids(6..10));
}

#[tokio::test]
async fn row_first_seen_after_the_first_page_is_left_out() {
    let (bank, world, context) = bank(4, 10);
    // The provider's clock is ahead: a row of the first page was seen after the read began.
    bank.rows.lock()[0].seen_at = Some(NOW + 5);
    let mut range = world.range(&context);
    assert_eq!(page(&world, &mut range).await.unwrap().0, ids(0..4));
    for (id, seen_at) in [("late", NOW + 6), ("in time", NOW + 5)] {
        bank.post(Row {
            seen_at: Some(seen_at),
            ..Row::new("1", id, NOW - 5 * 60)
        });
    }
    let second = page(&world, &mut range).await.unwrap().0;
    assert_eq!(second, ["4", "5", "in time"]);
}

#[tokio::test]
async fn failed_page_is_read_again() {
    let (bank, world, context) = bank(4, 6);
    let mut range = world.range(&context);
    bank.fail_next([Some(UNAVAILABLE), None, Some(UNAVAILABLE)]);
    let failed = page(&world, &mut range).await;
    assert!(matches!(failed, Err(ReadError::Unavailable { .. })));
    assert_eq!(page(&world, &mut range).await.unwrap().0, ids(0..4));
    assert!(page(&world, &mut range).await.is_err());
    assert_eq!(page(&world, &mut range).await.unwrap().0, ids(4..6));
}

#[tokio::test]
async fn expired_cursor_fails_and_does_not_begin_again() {
    let (bank, world, context) = bank(4, 6);
    let mut range = world.range(&context);
    page(&world, &mut range).await.unwrap();
    bank.fail_next([Some(Error::Rejected { status: 400 })]);
    assert!(page(&world, &mut range).await.is_err());
    let offset = bank.calls.lock().last().unwrap().1;
    assert_eq!(offset, 4, "still the second page");
    let gone = Error::ReconnectNeeded(ConnectionStatus::Revoked);
    bank.fail_next([Some(gone)]);
    let Err(ReadError::Reconnect(status)) = page(&world, &mut range).await else {
        panic!("a page of a consent that has ended")
    };
    assert!(matches!(
        status,
        ConnectionStatus::Invalidated | ConnectionStatus::Revoked
    ));
}

#[tokio::test(start_paused = true)]
async fn endless_list_fails_for_good() {
    let (bank, world, context) = bank(1, i64::from(PAGES_MAX) + 1);
    let mut range = world.range(&context);
    for _ in 0..PAGES_MAX {
        assert!(page(&world, &mut range).await.unwrap().1);
    }
    let (outcome, seconds) = retried_page(&world, &mut range).await;
    assert!(outcome.is_err());
    assert_eq!(seconds, 0, "another attempt cannot help");
    assert_eq!(bank.calls.lock().len(), PAGES_MAX as usize);
}

#[tokio::test(start_paused = true)]
async fn three_attempts_are_made() {
    let (bank, world, context) = bank(4, 6);
    let mut range = world.range(&context);
    bank.fail_next([Some(UNAVAILABLE), Some(Error::Deadline), None]);
    let (outcome, seconds) = retried_page(&world, &mut range).await;
    assert_eq!(outcome.unwrap(), ids(0..4));
    assert_eq!(seconds, 4);

    let slow = Error::Unavailable {
        reason: "simulated",
        retry_after: Some(Duration::from_secs(30)),
    };
    bank.fail_next([Some(slow), Some(UNAVAILABLE), Some(UNAVAILABLE)]);
    let (outcome, seconds) = retried_page(&world, &mut range).await;
    assert!(matches!(outcome, Err(ReadError::Unavailable { .. })));
    assert_eq!(seconds, 32, "the provider's wait counts");
    let (same, _) = retried_page(&world, &mut range).await;
    assert_eq!(same.unwrap(), ids(4..6));

    let mut range = world.range(&context);
    bank.fail_next([Some(Error::Rejected { status: 400 })]);
    let (outcome, seconds) = retried_page(&world, &mut range).await;
    assert!(outcome.is_err());
    assert_eq!(seconds, 0, "a permanent failure is not tried again");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_budget_is_not_a_failed_attempt() {
    let (bank, world, context) = bank(4, 6);
    let mut range = world.range(&context);
    let used_up = |seconds| {
        Some(Error::BudgetUsedUp {
            retry_after: Duration::from_secs(seconds),
        })
    };
    bank.fail_next([used_up(10), used_up(0), used_up(20), used_up(5), None]);
    let (outcome, seconds) = retried_page(&world, &mut range).await;
    assert_eq!(outcome.unwrap(), ids(0..4));
    assert_eq!(seconds, 10 + 1 + 20 + 5);

    bank.fail_next([used_up(100), used_up(30)]);
    let (outcome, seconds) = retried_page(&world, &mut range).await;
    assert!(matches!(outcome, Err(ReadError::BudgetUsedUp { .. })));
    assert_eq!(seconds, 100, "the second wait would end after two minutes");
}

#[tokio::test(start_paused = true)]
async fn retries_end_an_hour_after_the_read_began() {
    let (bank, world, context) = bank(4, 6);
    let (mut range, give_up_at) = (world.range(&context), Attempts::end_of_list());
    tokio::time::advance(Duration::from_secs(3_590)).await;
    let retry_after = Duration::from_secs(10);
    bank.fail_next([Some(Error::BudgetUsedUp { retry_after })]);
    let (outcome, seconds) = retried_page_until(give_up_at, &world, &mut range).await;
    assert!(outcome.is_err());
    assert_eq!(seconds, 0);
    tokio::time::advance(Duration::from_secs(10)).await;
    let calls = bank.calls.lock().len();
    let (outcome, _) = retried_page_until(give_up_at, &world, &mut range).await;
    assert!(outcome.is_err());
    assert_eq!(bank.calls.lock().len(), calls);
}

#[tokio::test(start_paused = true)]
async fn trades_come_account_after_account() {
    let rows = (0..10)
        .map(|number| {
            let account = if number % 2 == 0 { "a" } else { "b" };
            Row::new(account, number, NOW - number)
        })
        .collect();
    let broker = Arc::new(Simulated::broker(4, rows));
    let world = World::new(&[&broker]);
    let context = world.connection(&broker, &["a", "b", "empty"]);
    let mut range = world.trades(&context);
    let mut pages = Vec::new();
    broker.fail_next([None, Some(UNAVAILABLE)]);
    loop {
        match trade_page(&world, &mut range).await {
            Ok((ids, more)) => {
                pages.push(ids.join(" "));
                if !more {
                    break;
                }
            }
            Err(_) => pages.push("failed".to_owned()),
        }
    }
    assert_eq!(pages, ["0 2 4 6", "failed", "8", "1 3 5 7", "9", ""]);
    let behind_the_end = trade_page(&world, &mut range).await.unwrap();
    assert_eq!(behind_the_end, (vec![], false));

    let own = Some(context.accounts[1].id);
    let three_seconds = dates(NOW - 3, NOW - 1);
    let mut range = world.range_of(&context, own, three_seconds).unwrap();
    let found = trade_page(&world, &mut range).await.unwrap();
    assert_eq!(found, (ids([1, 3]), false));
    let empty = dates(NOW - 1, NOW - 3);
    let mut range = world.range_of(&context, None, empty).unwrap();
    let found = trade_page(&world, &mut range).await.unwrap();
    assert_eq!(found, (vec![], false));
}

#[tokio::test(start_paused = true)]
async fn trades_that_change_meanwhile_fail_for_good() {
    let rows = (0..10)
        .map(|number| Row::new("a", number, NOW - number))
        .collect();
    let broker = Arc::new(Simulated::broker(4, rows));
    let world = World::new(&[&broker]);
    let context = world.connection(&broker, &["a"]);
    let mut range = world.trades(&context);
    broker.fail_next([Some(UNAVAILABLE), Some(UNAVAILABLE)]);
    let started = Instant::now();
    let new_call = || world.call();
    let mut attempts = Attempts::new(Some(Attempts::end_of_list()), &new_call);
    let first = attempts.run(&mut range, |range, call| trade_page_of(call, range).boxed());
    let (first, _) = first.await.unwrap();
    assert_eq!((first, started.elapsed().as_secs()), (ids(0..4), 4));
    broker.post(Row::new("a", "new", NOW));
    assert!(trade_page(&world, &mut range).await.is_err());
    let started = Instant::now();
    let second = attempts.run(&mut range, |range, call| trade_page_of(call, range).boxed());
    assert!(second.await.is_err());
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(broker.calls.lock().len(), 4, "not asked again");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Fewer rows than a page are posted between two pages, anywhere. Each row that was there is
    /// passed once, in order.
    #[test]
    fn posted_rows_neither_repeat_nor_hide_others(
        rows in 0_i64..80,
        rows_max in 3_u32..12,
        posted in prop::collection::vec((0_i64..80, 0_u32..3), 0..30),
    ) {
        let seen = runtime().block_on(async {
            let (bank, world, context) = bank(rows_max, rows);
            let (mut range, mut seen, mut posted) = (world.range(&context), Vec::new(), posted.into_iter().enumerate());
            loop {
                let (ids, more) = page(&world, &mut range).await.unwrap();
                seen.extend(ids);
                if !more {
                    return seen;
                }
                if let Some((number, (minute, count))) = posted.next() {
                    for copy in 0..count {
                        bank.post(Row::new("1", format!("new {number} {copy}"), NOW - minute * 60));
                    }
                }
            }
        });
        let mut unique = seen.clone();
        unique.sort();
        unique.dedup();
        prop_assert_eq!(unique.len(), seen.len(), "a row came twice");
        let old: Vec<String> = seen.into_iter().filter(|id| !id.starts_with("new")).collect();
        prop_assert_eq!(old, ids(0..rows));
    }
}
