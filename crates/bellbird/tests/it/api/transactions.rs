//! `/v1/transactions`: rows, days, pages, the page map and the row cap.

use std::collections::BTreeSet;

use bellbird_domain::Category;
use bellbird_storage::UserChange;
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::harness::{Answer, App, Setup, eventually};

/// The path for one account.
fn path_of(account: &Value, rest: &str) -> String {
    let (connection, id) = (
        account["connectionId"].as_str().unwrap(),
        account["id"].as_str().unwrap(),
    );
    format!("/v1/transactions?connectionId={connection}&accountId={id}{rest}")
}

/// Reads an account page by page, from the newest row. Returns its rows, and the provider calls of
/// each page.
async fn read_all(app: &App, account: &Value, limit: usize) -> (Vec<Value>, Vec<u64>) {
    let (mut seen, mut calls, mut before) = (Vec::new(), Vec::new(), app.transaction_calls().await);
    let (mut exact, mut lower_bounds) = (Vec::new(), Vec::new());
    loop {
        let answer = app
            .get(&path_of(
                account,
                &format!("&from=2000-01-01&limit={limit}&offset={}", seen.len()),
            ))
            .await;
        let rows = answer.data();
        let after = app.transaction_calls().await;
        calls.push(after - before);
        before = after;
        let page = &answer.json()["pagination"];
        let more = page["hasMore"].as_bool().unwrap();
        assert!(
            !more || rows.len() == limit,
            "a short page, though more follow"
        );
        let truncated = answer.header("x-service-truncated").is_some();
        assert!(more || !truncated, "truncated, though no row follows");
        let totals = if truncated {
            &mut lower_bounds
        } else {
            &mut exact
        };
        totals.push(page["total"].as_u64().unwrap());
        seen.extend(rows);
        if !more {
            let total = seen.len() as u64;
            assert!(
                exact.iter().all(|shown| *shown == total),
                "{exact:?} of {total}"
            );
            assert!(
                lower_bounds.iter().all(|shown| *shown <= total),
                "{lower_bounds:?} of {total}"
            );
            return (seen, calls);
        }
    }
}

#[tokio::test]
async fn rows_have_the_documented_shape() {
    let app = App::start(Setup::default()).await;
    let (account, _) = app.busiest().await;
    let answer = app
        .get(&path_of(&account, "&from=2000-01-01&limit=500"))
        .await;
    assert_eq!(answer.header("x-cache"), Some("BYPASS"));
    assert!(answer.header("deprecation").is_none());
    let rows = answer.data();
    assert_eq!(rows.len(), 500);
    for row in &rows {
        assert_eq!(row.as_object().unwrap().len(), 13);
        assert_eq!(row["status"], "posted");
        assert_eq!(row["accountId"], account["id"]);
        assert_eq!(row["accountName"], account["name"]);
        assert_eq!(row["currency"], account["currency"]);
        let amount = row["amount"].as_str().unwrap();
        assert_eq!(
            row["direction"],
            if amount.starts_with('-') {
                "debit"
            } else {
                "credit"
            }
        );
        let category = &row["category"];
        assert!(category.is_null() || Category::from_key(category.as_str().unwrap()).is_some());
        assert_eq!(row["date"].as_str().unwrap().len(), 10);
    }
    let instants: Vec<jiff::Timestamp> = rows
        .iter()
        .map(|row| row["datetime"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(
        instants.is_sorted_by(|newer, older| newer >= older),
        "newest first"
    );
}

#[tokio::test]
async fn default_date_range_is_the_last_thirty_days() {
    let app = App::start(Setup::default()).await;
    let (account, _) = app.busiest().await;
    let rows = app.get(&path_of(&account, "")).await.data();
    assert!(!rows.is_empty());
    let now = app.clock.now();
    for row in &rows {
        let instant: jiff::Timestamp = row["datetime"].as_str().unwrap().parse().unwrap();
        assert!(instant <= now && instant >= now - SignedDuration::from_hours(720));
    }
    let all = app
        .get(&path_of(&account, "&from=2026-10-21T09:30:00Z"))
        .await
        .data();
    assert_eq!(all, rows, "720 hours ago, to the second");
}

/// Adds a row at the provider and returns its id.
async fn add(app: &App, provider_account_id: &str, row: Value) -> String {
    let mut row = row;
    row["account_id"] = json!(provider_account_id);
    if row.get("posting_date_time").is_none() && row["status"] != "PENDING" {
        // The sandbox's clock advances and the test's clock does not, so "now" there is in the
        // future here.
        row["posting_date_time"] = json!("2026-11-20T09:00:00Z");
    }
    let added = app.control(Method::POST, "/transactions", row).await;
    added["fiskil_id"].as_str().expect("an id").to_owned()
}

/// The row with this id, if the API returns it.
async fn shown(app: &App, account: &Value, rest: &str, id: &str) -> Option<Value> {
    let rows = app
        .get(&path_of(account, &format!("&limit=500{rest}")))
        .await
        .data();
    rows.into_iter().find(|row| row["id"] == id)
}

#[tokio::test]
async fn amounts_keep_the_providers_digits() {
    let app = App::start(Setup::default()).await;
    let (account, provider_id) = app.busiest().await;
    for (sent, expected, direction) in [
        ("84.30", "84.30", "credit"),
        ("-0.00", "0.00", "credit"),
        ("+15.20", "15.20", "credit"),
        ("-12.5", "-12.5", "debit"),
        (
            "-1234567890123456789012345678901234567890.123456789012345678901234567890",
            "-1234567890123456789012345678901234567890.123456789012345678901234567890",
            "debit",
        ),
        ("1e3", "1000", "credit"),
    ] {
        let id = add(
            &app,
            &provider_id,
            json!({"amount": sent, "description": "digits"}),
        )
        .await;
        let row = shown(&app, &account, "", &id).await.expect("the row");
        assert_eq!(
            (&row["amount"], &row["direction"]),
            (&json!(expected), &json!(direction)),
            "{sent}"
        );
    }
}

#[tokio::test]
async fn days_use_the_users_timezone() {
    let app = App::start(Setup::default()).await;
    let (account, provider_id) = app.busiest().await;
    // Half past midnight in Sydney, on the day on which daylight saving began; and a row with an
    // offset.
    let sydney = add(
        &app,
        &provider_id,
        json!({"amount": "-1.00", "description": "a", "posting_date_time": "2026-10-03T14:30:00Z"}),
    )
    .await;
    let offset = add(
        &app,
        &provider_id,
        json!({"amount": "-1.00", "description": "b", "posting_date_time": "2026-10-05T00:10:00+11:00"}),
    )
    .await;
    let from = "&from=2026-10-01&to=2026-10-31";
    assert_eq!(
        shown(&app, &account, from, &sydney).await.unwrap()["date"],
        "2026-10-04"
    );
    let row = shown(&app, &account, from, &offset).await.unwrap();
    assert_eq!(
        (&row["date"], &row["datetime"]),
        (&json!("2026-10-05"), &json!("2026-10-05T00:10:00+11:00"))
    );

    // Bounds that are days are the user's days, and inclusive.
    assert!(
        shown(&app, &account, "&from=2026-10-04&to=2026-10-04", &sydney)
            .await
            .is_some()
    );
    assert!(
        shown(&app, &account, "&from=2026-10-03&to=2026-10-03", &sydney)
            .await
            .is_none()
    );
    assert!(
        shown(&app, &account, "&from=2026-10-04&to=2026-10-04", &offset)
            .await
            .is_none()
    );
    // Bounds that are timestamps are instants, and inclusive.
    assert!(
        shown(
            &app,
            &account,
            "&from=2026-10-03T14:30:00Z&to=2026-10-03T14:30:00Z",
            &sydney
        )
        .await
        .is_some()
    );
    assert!(
        shown(&app, &account, "&from=2026-10-03T14:30:01Z", &sydney)
            .await
            .is_none()
    );
    assert!(
        shown(
            &app,
            &account,
            "&from=2026-10-01&to=2026-10-03T14:29:59Z",
            &sydney
        )
        .await
        .is_none()
    );
    let same_instant = "&from=2026-10-04T00:30:00%2B10:00&to=2026-10-04T00:30:00%2B10:00";
    assert!(shown(&app, &account, same_instant, &sydney).await.is_some());

    app.storage
        .users()
        .update(
            app.olivia.user.id,
            &UserChange {
                timezone: Some(Some("America/New_York")),
                ..UserChange::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(
        shown(&app, &account, from, &sydney).await.unwrap()["date"],
        "2026-10-03"
    );
    assert!(
        shown(&app, &account, "&from=2026-10-03&to=2026-10-03", &sydney)
            .await
            .is_some()
    );
}

#[tokio::test]
async fn pending_and_untimed_rows_are_dropped() {
    let app = App::start(Setup::default()).await;
    let (account, provider_id) = app.busiest().await;
    let pending = add(
        &app,
        &provider_id,
        json!({"amount": "-1.00", "description": "a", "status": "PENDING"}),
    )
    .await;
    let executed = add(
        &app,
        &provider_id,
        json!({"amount": "-1.00", "description": "b", "posting_date_time": null,
            "execution_date_time": "2026-11-19T01:00:00Z"}),
    )
    .await;
    let future = add(
        &app,
        &provider_id,
        json!({"amount": "-1.00", "description": "c", "posting_date_time": "2026-11-20T09:30:01Z"}),
    )
    .await;
    let unknown = add(
        &app,
        &provider_id,
        json!({"amount": "-1.00", "description": "d", "category": {"primary_category": "PETS"}}),
    )
    .await;
    assert!(shown(&app, &account, "", &pending).await.is_none());
    assert_eq!(
        shown(&app, &account, "", &executed).await.unwrap()["datetime"],
        "2026-11-19T01:00:00Z"
    );
    assert!(shown(&app, &account, "", &future).await.is_none());
    assert!(
        shown(&app, &account, "&to=2026-11-21", &future)
            .await
            .is_some(),
        "`to` may be in the future"
    );
    assert_eq!(
        shown(&app, &account, "", &unknown).await.unwrap()["category"],
        Value::Null
    );
}

#[tokio::test]
async fn reading_all_accounts_at_once_is_deprecated() {
    let app = App::start(Setup::default()).await;
    let connection = app.olivia.connections[0].id;
    let answer = app
        .get(&format!(
            "/v1/transactions?connectionId={connection}&from=2026-01-01&limit=500"
        ))
        .await;
    assert_eq!(answer.header("deprecation"), Some("true"));
    assert_eq!(
        answer.header("sunset"),
        Some("Wed, 01 Sep 2027 00:00:00 GMT")
    );
    assert!(
        answer
            .header("link")
            .unwrap()
            .contains("<https://bellbird.example/docs>; rel=\"deprecation\"")
    );
    let own: BTreeSet<String> = app
        .storage
        .accounts()
        .list_of_connection(app.olivia.user.id, connection)
        .await
        .unwrap()
        .iter()
        .map(|account| account.id.to_string())
        .collect();
    let seen: BTreeSet<String> = answer
        .data()
        .iter()
        .map(|row| row["accountId"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        seen.len() > 1 && seen.is_subset(&own),
        "only accounts of this connection, though its end user has another one"
    );
    let rejected = app
        .get(&format!(
            "/v1/transactions?connectionId={connection}&limit=0"
        ))
        .await;
    rejected.error(400);
    assert!(rejected.header("deprecation").is_none());
}

#[tokio::test]
async fn twelve_thousand_rows_are_paged_cheaply() {
    let app = App::start(Setup {
        rows: 12_000,
        ..Setup::default()
    })
    .await;
    let (account, _) = app.busiest().await;
    for limit in [200, 500] {
        app.reset_calls().await;
        let (rows, calls) = read_all(&app, &account, limit).await;
        assert_eq!(rows.len(), 12_000);
        let ids: BTreeSet<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), 12_000, "every row once");
        assert!(calls[1..].iter().all(|calls| *calls <= 2), "{calls:?}");
        let all: u64 = calls.iter().sum();
        assert!(
            all <= (12_000 / limit + 12) as u64,
            "{all} calls for pages of {limit}"
        );
    }
}

#[tokio::test]
async fn paging_5000_rows_by_200_costs_at_most_40_calls() {
    let app = App::start(Setup {
        rows: 5_000,
        ..Setup::default()
    })
    .await;
    let (account, _) = app.busiest().await;
    let (rows, calls) = read_all(&app, &account, 200).await;
    assert_eq!(rows.len(), 5_000);
    assert_eq!(calls.len(), 25, "pages");
    assert!(calls.iter().sum::<u64>() <= 40, "{calls:?}");
}

#[tokio::test]
async fn rows_past_the_cap_stay_reachable() {
    let app = App::start(Setup {
        rows: 5_001,
        ..Setup::default()
    })
    .await;
    let (account, _) = app.busiest().await;
    let first = app.get(&path_of(&account, "&from=2000-01-01")).await;
    assert_eq!(first.header("x-service-truncated"), Some("true"));
    assert_eq!(
        first.json()["pagination"],
        json!({"total": 5_000, "limit": 200, "offset": 0, "hasMore": true})
    );
    let second = app
        .get(&path_of(&account, "&from=2000-01-01&offset=200"))
        .await;
    assert_eq!(second.header("x-service-truncated"), None);
    assert_eq!(
        second.json()["pagination"],
        json!({"total": 5_001, "limit": 200, "offset": 200, "hasMore": true})
    );
    let beyond = app
        .get(&path_of(&account, "&from=2000-01-01&offset=6000"))
        .await;
    assert_eq!(
        beyond.json(),
        json!({"data": [], "pagination": {"total": 5_001, "limit": 200, "offset": 6_000, "hasMore": false}})
    );
}

#[tokio::test]
async fn paging_is_stable_and_a_poll_sees_new_rows() {
    let app = App::start(Setup::default()).await;
    let (account, provider_id) = app.busiest().await;
    let page = |offset: usize| {
        path_of(
            &account,
            &format!("&from=2026-01-01&limit=10&offset={offset}"),
        )
    };
    let first = app.get(&page(0)).await.data();
    app.clock
        .set(app.clock.now() + SignedDuration::from_secs(60));
    let new = add(
        &app,
        &provider_id,
        json!({"amount": "-3.00", "description": "new", "posting_date_time": "2026-11-20T09:30:30Z"}),
    )
    .await;
    let second = app.get(&page(10)).await.data();
    assert!(
        first.iter().all(|row| !second.contains(row)),
        "no row twice"
    );
    let polled = app.get(&page(0)).await.data();
    assert_eq!(polled[0]["id"], new);
    assert_eq!(polled[1..], first[..9]);
}

#[tokio::test]
async fn empty_pages_are_not_the_end() {
    let app = App::start(Setup {
        rows: 1_500,
        ..Setup::default()
    })
    .await;
    let (account, _) = app.busiest().await;
    app.control(Method::POST, "/pages", json!({"emptyEvery": 2}))
        .await;
    let (rows, _) = read_all(&app, &account, 400).await;
    assert_eq!(rows.len(), 1_500);
}

#[tokio::test]
async fn rejected_cursor_restarts_paging() {
    let app = App::start(Setup {
        rows: 1_500,
        ..Setup::default()
    })
    .await;
    let (account, _) = app.busiest().await;
    let page = |offset: usize| {
        path_of(
            &account,
            &format!("&from=2000-01-01&limit=100&offset={offset}"),
        )
    };
    app.get(&page(0)).await;
    let undisturbed = app.get(&page(300)).await;
    // All three attempts with the stored cursor fail. Reading from the start succeeds.
    app.fault(
        json!({"match": "/v1/banking/transactions", "kind": "status", "status": 503, "times": 3}),
    )
    .await;
    let restarted = app.get(&page(300)).await;
    assert_eq!(restarted.data(), undisturbed.data());
    assert_eq!(restarted.json()["pagination"]["total"], 1_500);
}

#[tokio::test]
async fn empty_interval_makes_no_provider_call() {
    let app = App::start(Setup::default()).await;
    let (account, _) = app.busiest().await;
    for rest in [
        "&from=2026-05-02&to=2026-05-01",
        "&from=2027-01-01",
        "&from=2026-05-01T00:00:01Z&to=2026-05-01T00:00:00Z",
    ] {
        let answer = app.get(&path_of(&account, rest)).await;
        assert_eq!(
            answer.json(),
            json!({"data": [], "pagination": {"total": 0, "limit": 200, "offset": 0, "hasMore": false}}),
            "{rest}"
        );
    }
    assert_eq!(app.transaction_calls().await, 0);
}

#[tokio::test]
async fn concurrent_equal_requests_share_one_call() {
    let app = App::start(Setup::default()).await;
    let (account, _) = app.busiest().await;
    app.fault(json!({"match": "/v1/banking/transactions", "kind": "delay", "delayMs": 300}))
        .await;
    let path = path_of(&account, "&limit=20&from=2026-11-01");
    let answers: Vec<Answer> =
        futures_util::future::join_all((0..10).map(|_| app.get(&path))).await;
    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 200 && answer.text == answers[0].text)
    );
    let ids: BTreeSet<&str> = answers
        .iter()
        .map(|answer| answer.header("x-request-id").unwrap())
        .collect();
    assert_eq!(ids.len(), 10, "each request has its own id");
    assert!(app.transaction_calls().await <= 2);
}

#[tokio::test]
async fn changed_timezone_applies_during_a_slow_read() {
    let app = App::start(Setup::default()).await;
    let (account, _) = app.busiest().await;
    let path = path_of(&account, "&from=2026-01-01&limit=500");
    app.fault(json!({"match": "/v1/banking/transactions", "kind": "delay", "delayMs": 1_500}))
        .await;
    let later = async {
        eventually(async || app.transaction_calls().await > 0).await;
        let change = UserChange {
            timezone: Some(Some("America/New_York")),
            ..UserChange::default()
        };
        app.storage
            .users()
            .update(app.olivia.user.id, &change)
            .await
            .unwrap();
        app.get(&path).await.data()
    };
    let (before, during) = tokio::join!(app.get(&path), later);
    app.clear_faults().await;
    let after = app.get(&path).await.data();
    assert_ne!(before.data(), after, "the days of some rows differ");
    assert_eq!(during, after);
}

#[tokio::test]
async fn cursor_indexes_are_measured_and_keyed_by_meaning() {
    let app = App::start(Setup {
        rows: 6_000,
        ..Setup::default()
    })
    .await;
    let (account, _) = app.busiest().await;
    let zeros = "0".repeat(6_000);
    for digits in 0..50 {
        let zeros = &zeros[digits..];
        app.get(&path_of(
            &account,
            &format!("&limit=1&from=2026-11-20T00:00:00.{zeros}Z"),
        ))
        .await
        .data();
    }
    let before = app.reads.cursor_index_bytes();
    assert!(before < 20_000, "one list in fifty spellings: {before}");
    let (rows, _) = read_all(&app, &account, 50).await;
    let grown = app.reads.cursor_index_bytes() - before;
    // A cursor for each window, of 30 bytes and more.
    assert!(grown > rows.len() as u64 / 50 * 30, "{grown}");
}

#[tokio::test]
async fn many_lists_of_one_key_leave_the_map_of_another() {
    let app = App::start(Setup::default()).await;
    let (account, provider_id) = app.busiest().await;
    let page = |offset: usize| {
        path_of(
            &account,
            &format!("&from=2026-01-01&limit=10&offset={offset}"),
        )
    };
    let first = app.get(&page(0)).await.data();
    let before = app.reads.cursor_index_bytes();
    for day in 0..200 {
        let to = jiff::civil::date(2020, 1, 1) + SignedDuration::from_hours(24 * day);
        let connection = app.ben.connections[0].id;
        app.get_as(
            &app.ben.key,
            &format!("/v1/transactions?connectionId={connection}&to={to}"),
        )
        .await
        .data();
    }
    let grown = app.reads.cursor_index_bytes() - before;
    assert!(grown < 200 * 100, "the maps of a few dozen lists: {grown}");
    app.clock
        .set(app.clock.now() + SignedDuration::from_secs(60));
    let new = json!({"amount": "-3.00", "description": "new", "posting_date_time": "2026-11-20T09:30:30Z"});
    add(&app, &provider_id, new).await;
    let second = app.get(&page(10)).await.data();
    assert!(
        first.iter().all(|row| !second.contains(row)),
        "no row twice"
    );
}

#[tokio::test]
async fn invalid_parameters_are_rejected() {
    let app = App::start(Setup::default()).await;
    let connection = app.olivia.connections[0].id;
    let details = |answer: &Answer| answer.json()["error"]["details"].clone();
    let date = "Must be a valid ISO 8601 date string (YYYY-MM-DD or YYYY-MM-DDTHH:mm:ssZ)";

    let answer = app.get("/v1/transactions").await;
    assert!(answer.error(400).contains("connectionId"));
    let answer = app
        .get(&format!(
            "/v1/transactions?connectionId={connection}&to=now&from=2026-02-30&limit=x&offset=-1"
        ))
        .await;
    assert!(answer.error(400).contains("date"));
    let expected = json!([
        format!("from: {date}"),
        format!("to: {date}"),
        "limit: Must be an integer between 1 and 500",
        "offset: Must be an integer of at least 0",
    ]);
    assert_eq!(details(&answer), expected);
    let clamped = app
        .get(&format!(
            "/v1/transactions?connectionId={connection}&limit=10000"
        ))
        .await;
    assert_eq!(clamped.json()["pagination"]["limit"], 500);
    for path in [
        "/v1/transactions?connectionId=nonsense".to_owned(),
        format!("/v1/transactions?connectionId={connection}&accountId="),
        format!("/v1/transactions?connectionId={connection}&accountId=nonsense"),
        format!(
            "/v1/transactions?connectionId={}",
            connection.to_string().replace('-', "")
        ),
    ] {
        app.get(&path).await.error(404);
    }
    let upper = app
        .get(&format!(
            "/v1/transactions?connectionId={}",
            connection.to_string().to_uppercase()
        ))
        .await;
    assert_eq!(upper.status, 200);
}
