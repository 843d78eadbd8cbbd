//! `/v1/transactions`: rows, days, pages, the page map and the row cap.

use std::collections::BTreeSet;

use bellbird_domain::Category;
use bellbird_sandbox::Fault;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::support::client::{Account, Page, Pagination, Query, Transaction};
use crate::support::harness::{App, Setup, eventually};
use crate::support::words::assert_has;

/// Reads an account page by page, from the newest row. Returns its rows, and the provider calls of
/// each page.
async fn read_all(app: &App, account: &Account, limit: usize) -> (Vec<Transaction>, Vec<u64>) {
    let (mut seen, mut calls, mut before) = (Vec::new(), Vec::new(), app.transaction_calls());
    let (mut exact, mut lower_bounds) = (Vec::new(), Vec::new());
    loop {
        let read = app.transactions(account).from("2000-01-01").limit(limit);
        let response = read.offset(seen.len()).send().await;
        let truncated = response.header("x-service-truncated").is_some();
        let Page { rows, pagination } = response.read::<Page<Transaction>>();
        let after = app.transaction_calls();
        calls.push(after - before);
        before = after;
        let is_last = !pagination.has_more;
        let is_full = rows.len() == limit;
        assert!(is_last || is_full, "a short page, though more follow");
        assert!(!(is_last && truncated), "truncated, though no row follows");
        if truncated {
            lower_bounds.push(pagination.total);
        } else {
            exact.push(pagination.total);
        }
        seen.extend(rows);
        if is_last {
            let total = i64::try_from(seen.len()).unwrap();
            for shown in exact {
                assert_eq!(shown, total);
            }
            for shown in lower_bounds {
                assert!(shown <= total, "{shown} of {total}");
            }
            return (seen, calls);
        }
    }
}

#[tokio::test]
async fn rows_have_their_shape_range_days_and_pages() {
    let app = App::start(Setup::default()).await;
    let busiest = app.busiest().await;
    let account = &busiest.0;
    let all = app.transactions(account).from("2000-01-01");
    let response = all.limit(500).send().await;
    assert_eq!(response.cache(), Some("BYPASS"));
    assert!(response.header("deprecation").is_none());
    let rows = response.read::<Page<Transaction>>().rows;
    assert_eq!(rows.len(), 500);
    for row in &rows {
        assert_eq!(row.status, "posted");
        assert_eq!(row.account_id, account.id);
        assert_eq!(row.account_name, account.name);
        assert_eq!(row.currency, account.currency);
        let is_debit = row.amount.starts_with('-');
        assert_eq!(row.direction, if is_debit { "debit" } else { "credit" });
        let category = row.category.as_deref();
        assert!(category.is_none_or(|key| Category::from_key(key).is_some()));
        assert_eq!(row.date.len(), 10);
    }
    let newest_first = rows.is_sorted_by(|newer, older| newer.instant() >= older.instant());
    assert!(newest_first);
    all_accounts_at_once_are_deprecated(&app).await;
    date_range_may_be_absent_or_empty(&app, account).await;
    concurrent_equal_requests_share_one_call(&app, account).await;
    days_use_the_users_timezone(&app, &busiest).await;
    pending_rows_are_dropped_and_odd_ones_are_read(&app, &busiest).await;
    paging_is_stable_and_a_poll_sees_new_rows(&app, &busiest).await;
    many_lists_of_one_key_leave_the_map_of_another(&app, &busiest).await;
    changed_timezone_applies_during_a_slow_read(&app, account).await;
}

async fn all_accounts_at_once_are_deprecated(app: &App) {
    let connection = app.olivia.connections[0].id;
    let read = app.all_transactions(connection).from("2026-01-01");
    let response = read.limit(500).send().await;
    assert_eq!(response.header("deprecation"), Some("true"));
    let sunset = "Wed, 01 Sep 2027 00:00:00 GMT";
    assert_eq!(response.header("sunset"), Some(sunset));
    let link = response.header("link").unwrap();
    assert_has(link, "<https://bellbird.example/docs>; rel=\"deprecation\"");
    let own = app.accounts_of(&app.olivia.connections[0]).await;
    let own: BTreeSet<String> = own.into_iter().map(|account| account.id).collect();
    let rows = response.read::<Page<Transaction>>().rows;
    let seen: BTreeSet<String> = rows.into_iter().map(|row| row.account_id).collect();
    // Only accounts of this connection, though its end user has another one.
    assert!(seen.len() > 1 && seen.is_subset(&own), "{seen:?}");
    let rejected = app.all_transactions(connection).limit(0).send().await;
    rejected.error(400);
    assert!(rejected.header("deprecation").is_none());
}

async fn date_range_may_be_absent_or_empty(app: &App, account: &Account) {
    let rows = app.transactions(account).rows().await;
    assert!(!rows.is_empty());
    let now = app.clock.now();
    for row in &rows {
        let instant = row.instant();
        assert!(instant <= now && instant >= now - SignedDuration::from_hours(720));
    }
    let all = app.transactions(account).from("2026-10-21T09:30:00Z");
    let all = all.rows().await;
    assert_eq!(all, rows, "720 hours ago, to the second");

    app.reset_calls();
    let read = || app.transactions(account);
    for read in [
        read().from("2026-05-02").to("2026-05-01"),
        read().from("2027-01-01"),
        read()
            .from("2026-05-01T00:00:01Z")
            .to("2026-05-01T00:00:00Z"),
    ] {
        let pagination = Pagination {
            total: 0,
            limit: 200,
            offset: 0,
            has_more: false,
        };
        let (rows, path) = (Vec::new(), read.path());
        let expected = Page { rows, pagination };
        assert_eq!(read.page().await, expected, "{path}");
    }
    assert_eq!(app.transaction_calls(), 0);
    invalid_parameters_are_rejected(app).await;
}

async fn invalid_parameters_are_rejected(app: &App) {
    let connection = app.olivia.connections[0].id;
    let date = "Must be a valid ISO 8601 date string (YYYY-MM-DD or YYYY-MM-DDTHH:mm:ssZ)";

    let rejected = app.get("/v1/transactions").await;
    assert_has(&rejected.error(400), "connectionId");
    let read = || app.all_transactions(connection);
    let rejected = read().to("now").from("2026-02-30").with("limit", "x");
    let rejected = rejected.with("offset", "-1").send().await;
    assert_has(&rejected.error(400), "date");
    let expected = json!([
        format!("from: {date}"),
        format!("to: {date}"),
        "limit: Must be an integer between 1 and 500",
        "offset: Must be an integer of at least 0",
    ]);
    assert_eq!(rejected.details(), expected);
    assert_eq!(read().limit(10_000).page().await.pagination.limit, 500);
    app.get("/v1/transactions?connectionId=nonsense")
        .await
        .error(404);
    read().with("accountId", "").send().await.error(404);
    read().with("accountId", "nonsense").send().await.error(404);
    let without_hyphens = connection.to_string().replace('-', "");
    let path = format!("/v1/transactions?connectionId={without_hyphens}");
    app.get(&path).await.error(404);
    let upper = connection.to_string().to_uppercase();
    let path = format!("/v1/transactions?connectionId={upper}");
    assert_eq!(app.get(&path).await.status, 200);
}

/// Adds a row at the provider and returns its id.
fn add(app: &App, provider_account_id: &str, row: Value) -> String {
    let mut row = row;
    row["account_id"] = json!(provider_account_id);
    if row.get("posting_date_time").is_none() && row["status"] != "PENDING" {
        // The sandbox's clock advances and the test's clock does not, so "now" there is in the
        // future here.
        row["posting_date_time"] = json!("2026-11-20T09:00:00Z");
    }
    let added = app.fiskil().add_row(&row).unwrap();
    added["fiskil_id"].as_str().expect("an id").to_owned()
}

/// The row with this id, if the API returns it.
async fn shown(read: Query<'_, Transaction>, id: &str) -> Option<Transaction> {
    let rows = read.limit(500).rows().await;
    rows.into_iter().find(|row| row.id == id)
}

async fn days_use_the_users_timezone(app: &App, (account, provider_id): &(Account, String)) {
    // Half past midnight in Sydney, on the day on which daylight saving began; and a row with an
    // offset.
    let [sydney, offset] = ["2026-10-03T14:30:00Z", "2026-10-05T00:10:00+11:00"].map(|at| {
        let new = json!({"amount": "-1.00", "description": at, "posting_date_time": at});
        add(app, provider_id, new)
    });
    let between = |from: &str, to: &str| app.transactions(account).from(from).to(to);
    let october = || between("2026-10-01", "2026-10-31");
    assert_eq!(shown(october(), &sydney).await.unwrap().date, "2026-10-04");
    let row = shown(october(), &offset).await.unwrap();
    assert_eq!(row.date, "2026-10-05");
    assert_eq!(row.datetime, "2026-10-05T00:10:00+11:00");

    // Bounds that are days are the user's days. Those that are timestamps are instants. Both are
    // inclusive.
    for (from, to, id, is_shown) in [
        ("2026-10-04", "2026-10-04", &sydney, true),
        ("2026-10-03", "2026-10-03", &sydney, false),
        ("2026-10-04", "2026-10-04", &offset, false),
        (
            "2026-10-03T14:30:00Z",
            "2026-10-03T14:30:00Z",
            &sydney,
            true,
        ),
        ("2026-10-03T14:30:01Z", "2026-10-31", &sydney, false),
        ("2026-10-01", "2026-10-03T14:29:59Z", &sydney, false),
        (
            "2026-10-04T00:30:00+10:00",
            "2026-10-04T00:30:00+10:00",
            &sydney,
            true,
        ),
    ] {
        let found = shown(between(from, to), id).await;
        assert_eq!(found.is_some(), is_shown, "{from} to {to}");
    }

    app.set_timezone(app.olivia.user.id, "America/New_York")
        .await;
    assert_eq!(shown(october(), &sydney).await.unwrap().date, "2026-10-03");
    let day = between("2026-10-03", "2026-10-03");
    assert!(shown(day, &sydney).await.is_some());
    app.set_timezone(app.olivia.user.id, "Australia/Sydney")
        .await;
}

async fn pending_rows_are_dropped_and_odd_ones_are_read(
    app: &App,
    (account, provider_id): &(Account, String),
) {
    // `exact.rs` compares all other digits.
    let [pending, executed, future, unknown, exponent] = [
        json!({"amount": "-1.00", "description": "a", "status": "PENDING"}),
        json!({"amount": "-1.00", "description": "b", "posting_date_time": null,
            "execution_date_time": "2026-11-19T01:00:00Z"}),
        json!({"amount": "-1.00", "description": "c", "posting_date_time": "2026-11-20T10:30:01Z"}),
        json!({"amount": "-1.00", "description": "d", "category": {"primary_category": "PETS"}}),
        json!({"amount": "1e3", "description": "e"}),
    ]
    .map(|new| add(app, provider_id, new));
    let read = || app.transactions(account);
    assert_eq!(shown(read(), &pending).await, None);
    let row = shown(read(), &executed).await.unwrap();
    assert_eq!(row.datetime, "2026-11-19T01:00:00Z");
    assert_eq!(shown(read(), &future).await, None);
    // `to` may be in the future.
    let row = shown(read().to("2026-11-21"), &future).await;
    assert!(row.is_some());
    assert_eq!(shown(read(), &unknown).await.unwrap().category, None);
    let row = shown(read(), &exponent).await.unwrap();
    assert_eq!((&*row.amount, &*row.direction), ("1000", "credit"));
}

#[tokio::test]
async fn rows_up_to_the_cap_cost_40_calls_and_those_past_it_are_reachable() {
    let app = App::start(Setup::with_rows(5_000)).await;
    let (account, provider_id) = app.busiest().await;
    let (rows, calls) = read_all(&app, &account, 200).await;
    assert_eq!(rows.len(), 5_000);
    assert_eq!(calls.len(), 25, "pages");
    assert!(calls.iter().sum::<u64>() <= 40, "{calls:?}");

    // One more. No cursor of this list is known.
    let more = json!({"amount": "-1.00", "description": "past the cap"});
    add(&app, &provider_id, more);
    let read = |offset: usize| app.transactions(&account).from("1999-01-01").offset(offset);
    let page = |total, offset, has_more| Pagination {
        total,
        limit: 200,
        offset,
        has_more,
    };
    let first = read(0).send().await;
    assert_eq!(first.header("x-service-truncated"), Some("true"));
    let first = first.read::<Page<Transaction>>();
    assert_eq!(first.pagination, page(5_000, 0, true));
    let second = read(200).send().await;
    assert_eq!(second.header("x-service-truncated"), None);
    let second = second.read::<Page<Transaction>>();
    assert_eq!(second.pagination, page(5_001, 200, true));
    let beyond = read(6_000).page().await;
    assert_eq!(beyond.rows, []);
    assert_eq!(beyond.pagination, page(5_001, 6_000, false));
}

async fn paging_is_stable_and_a_poll_sees_new_rows(
    app: &App,
    (account, provider_id): &(Account, String),
) {
    let read = app.transactions(account).from("2026-01-01").limit(10);
    let page = async |offset: usize| read.clone().offset(offset).rows().await;
    let first = page(0).await;
    app.advance_own_clock(SignedDuration::from_secs(60));
    let new = json!({"amount": "-3.00", "description": "new", "posting_date_time": "2026-11-20T09:30:30Z"});
    let new = add(app, provider_id, new);
    let second = page(10).await;
    for row in &first {
        assert!(!second.contains(row), "twice: {row:?}");
    }
    let polled = page(0).await;
    assert_eq!(polled[0].id, new);
    assert_eq!(polled[1..], first[..9]);
}

async fn concurrent_equal_requests_share_one_call(app: &App, account: &Account) {
    app.reset_calls();
    // Longer than a slow machine takes to begin all of them.
    let slow = Fault::delay_ms(5_000).at("/v1/banking/transactions");
    app.fiskil().add_fault(slow.times(1));
    let read = app.transactions(account).limit(20).from("2026-11-01");
    let responses = futures_util::future::join_all((0..10).map(|_| read.send())).await;
    let mut ids = BTreeSet::new();
    for response in &responses {
        assert_eq!(response.status, 200);
        assert_eq!(response.text, responses[0].text);
        ids.insert(response.header("x-request-id").unwrap());
    }
    assert_eq!(ids.len(), 10, "each request has its own id");
    assert!(app.transaction_calls() <= 2);
}

async fn changed_timezone_applies_during_a_slow_read(app: &App, account: &Account) {
    let read = app.transactions(account).from("2026-01-01").limit(500);
    app.fiskil()
        .add_fault(Fault::delay_ms(1_500).at("/v1/banking/transactions"));
    app.reset_calls();
    let later = async {
        eventually(async || app.transaction_calls() > 0).await;
        app.set_timezone(app.olivia.user.id, "America/New_York")
            .await;
        read.rows().await
    };
    let (before, during) = tokio::join!(read.rows(), later);
    app.clear_faults();
    let after = read.rows().await;
    assert_ne!(before, after, "the days of some rows differ");
    assert_eq!(during, after);
}

#[tokio::test]
async fn cursor_indexes_are_measured_and_keyed_by_meaning() {
    let app = App::start(Setup::with_rows(6_000)).await;
    let (account, _) = app.busiest().await;
    let zeros = "0".repeat(6_000);
    for digits in 0..50 {
        let zeros = &zeros[digits..];
        let from = format!("2026-11-20T00:00:00.{zeros}Z");
        app.transactions(&account).limit(1).from(from).rows().await;
    }
    let before = app.reads.cursor_index_bytes();
    assert!(before < 20_000, "one list in fifty spellings: {before}");
    let (rows, _) = read_all(&app, &account, 50).await;
    let grown = app.reads.cursor_index_bytes() - before;
    // A cursor for each window, of 30 bytes and more.
    assert!(grown > rows.len() as u64 / 50 * 30, "{grown}");
}

async fn many_lists_of_one_key_leave_the_map_of_another(
    app: &App,
    (account, provider_id): &(Account, String),
) {
    let read = app.transactions(account).from("2026-01-01").limit(10);
    let page = async |offset: usize| read.clone().offset(offset).rows().await;
    let first = page(0).await;
    let before = app.reads.cursor_index_bytes();
    for day in 0..200 {
        let to = jiff::civil::date(2020, 1, 1) + SignedDuration::from_hours(24 * day);
        let connection = app.ben.connections[0].id;
        let read = app.all_transactions(connection).to(to).by(&app.ben);
        read.rows().await;
    }
    let grown = app.reads.cursor_index_bytes() - before;
    assert!(grown < 200 * 100, "the maps of a few dozen lists: {grown}");
    app.advance_own_clock(SignedDuration::from_secs(60));
    let new = json!({"amount": "-3.00", "description": "new", "posting_date_time": "2026-11-20T09:30:30Z"});
    add(app, provider_id, new);
    let second = page(10).await;
    for row in &first {
        assert!(!second.contains(row), "twice: {row:?}");
    }
}
