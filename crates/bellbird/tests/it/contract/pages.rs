//! Pages of rows.

use std::collections::BTreeSet;
use std::time::Duration;

use bellbird_domain::Account;
use bellbird_providers::{Kind, Page, PageRequest};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::fixture::{Fixture, Link, ReadRequest, Row, call_context, now, page, walk};

/// More than two pages at the provider with the smallest pages.
const ROWS: usize = 230;

/// A new account with rows that were added out of order, some at the same time; and the texts of
/// the rows.
fn account_with_unordered_rows(fixture: &Fixture, link: &Link) -> (Account, BTreeSet<String>) {
    let account = fixture.add_account(link, json!({}));
    // 37 is coprime to 200, so the times cover all 200 hours, in no order.
    let at = |number: usize| now() - SignedDuration::from_hours(((number * 37) % 200 + 1) as i64);
    let moments: Vec<Timestamp> = (0..ROWS).map(at).collect();
    fixture.add_rows(&account, &moments);
    (
        account,
        moments
            .iter()
            .enumerate()
            .map(|(number, at)| format!("{at} {number}"))
            .collect(),
    )
}

/// Asserts that all rows are there, each once, newest first.
fn assert_complete(rows: &[Row], expected: &BTreeSet<String>) {
    assert!(
        rows.is_sorted_by(|row, next| row.instant() >= next.instant()),
        "newest first"
    );
    let texts: BTreeSet<String> = rows.iter().map(|row| row.text.clone()).collect();
    assert_eq!(texts, *expected);
    assert_eq!(rows.len(), expected.len(), "each once");
}

promise! {
    pages_are_complete_and_end:

    async fn rows_come_newest_first_each_once_to_the_end(fixture) {
        let link = fixture.links().await.remove(0);
        let (account, expected) = account_with_unordered_rows(fixture, &link);
        for size in [ROWS as u32 / 7, ROWS as u32 / 2, 1_000] {
            let rows =
                walk(&*fixture.provider, &ReadRequest::all(&link.credentials, std::slice::from_ref(&account), size))
                    .await;
            assert_complete(&rows.expect("rows"), &expected);
        }
    }

    async fn a_page_is_one_call(fixture) {
        let link = fixture.links().await.remove(0);
        let (account, expected) = account_with_unordered_rows(fixture, &link);
        let request = ReadRequest::all(&link.credentials, std::slice::from_ref(&account), 50);
        let provider = fixture.adapter(Duration::from_secs(20)).await;
        let (mut rows, mut position, mut pages) = (Vec::new(), None, 0);
        loop {
            let call = call_context();
            position = page(&*provider, &call, &request, position.as_ref(), &mut rows).await.expect("a page");
            pages += 1;
            assert_eq!(call.calls(), 1);
            assert_eq!(fixture.calls().values().sum::<u64>(), pages);
            if position.is_none() {
                break;
            }
        }
        assert_complete(&rows, &expected);
        assert!(pages > 2);
    }

    async fn paging_ends_where_the_provider_ends(fixture) {
        let link = fixture.links().await.remove(0);
        let (account, expected) = account_with_unordered_rows(fixture, &link);
        let request = ReadRequest::all(&link.credentials, std::slice::from_ref(&account), 50);
        match fixture.provider.kind() {
            // A page without rows is not the end if it names a next page, wherever it occurs.
            Kind::Banking(_) => {
                let (mut rows, mut position, mut empty) = (Vec::new(), None, Vec::new());
                fixture.bank().empty_pages(1);
                for number in 1.. {
                    let before = rows.len();
                    let call = call_context();
                    position =
                        page(&*fixture.provider, &call, &request, position.as_ref(), &mut rows).await.expect("a page");
                    assert_eq!(call.calls(), 1, "a page without rows is valid and is not retried");
                    if rows.len() == before {
                        empty.push(number);
                    }
                    if position.is_none() {
                        break;
                    }
                    // The first three pages are empty, and from then on every other one.
                    if number == 3 {
                        fixture.bank().empty_pages(2);
                    }
                }
                fixture.bank().empty_pages(0);
                assert!(empty.starts_with(&[1, 2, 3, 5]), "{empty:?}");
                assert_complete(&rows, &expected);
            }
            // Past the end there are no rows, and the total stays the same.
            Kind::Brokerage(broker) => {
                let total = ROWS as u64;
                for (offset, rows) in [(0, 50), (total - 20, 20), (total, 0), (total + 1_000, 0)] {
                    let span = bellbird_domain::DateFilter::default();
                    let query = bellbird_providers::TradeQuery { account: &account, dates: &span, zone: &request.zone };
                    let mut given = 0;
                    let cursor = broker.trades_cursor(offset);
                    let page = PageRequest { cursor: Some(&cursor), rows: 50 };
                    let found =
                        broker.trades(&call_context(), &link.credentials, &query, page, &mut |_, _| given += 1).await;
                    let next = (offset + 50 < total).then(|| broker.trades_cursor(offset + 50));
                    assert_eq!(found, Ok(Page { next, total: Some(total) }), "{offset}");
                    assert_eq!(given, rows);
                }
            }
        }
    }

    async fn only_requested_accounts_are_returned(fixture) {
        let links = fixture.links().await;
        let link = &links[0];
        let accounts = [
            fixture.account_with_rows(link, 5),
            fixture.account_with_rows(link, 6),
            fixture.account_with_rows(link, 7),
        ];
        // An account under another consent of the same user.
        let elsewhere = fixture.account_with_rows(&links[1], 8);
        for (account, rows) in accounts.iter().zip([5, 6, 7]) {
            let given =
                walk(&*fixture.provider, &ReadRequest::all(&link.credentials, std::slice::from_ref(account), 3))
                    .await
                    .expect("rows");
            assert_eq!(given.len(), rows);
            assert!(given.iter().all(|row| row.account == account.id));
        }
        if matches!(fixture.provider.kind(), Kind::Banking(_)) {
            let two = [accounts[2].clone(), accounts[0].clone()];
            let given =
                walk(&*fixture.provider, &ReadRequest::all(&link.credentials, &two, 1_000)).await.expect("rows");
            assert!(given.is_sorted_by(|row, next| row.instant() >= next.instant()), "newest first");
            let count_of = |account: &Account| given.iter().filter(|row| row.account == account.id).count();
            assert_eq!(count_of(&two[0]), 7);
            assert_eq!(count_of(&two[1]), 5);
            assert_eq!(given.len(), 12);
        }
        let given = walk(&*fixture.provider, &ReadRequest::all(&links[1].credentials, &[elsewhere], 1_000))
            .await
            .expect("rows");
        assert_eq!(given.len(), 8);
    }

    async fn concurrent_reads_all_succeed(fixture) {
        let link = fixture.links().await.remove(0);
        let (account, expected) = account_with_unordered_rows(fixture, &link);
        let request = ReadRequest::all(&link.credentials, std::slice::from_ref(&account), 100);
        let walks = join_all((0..40).map(|_| walk(&*fixture.provider, &request))).await;
        for rows in walks {
            assert_complete(&rows.expect("rows"), &expected);
        }
    }
}
