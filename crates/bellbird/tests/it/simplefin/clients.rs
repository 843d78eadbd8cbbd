//! What known clients demand beyond the protocol: a test each, named after the client and its
//! demand.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_domain::ConnectionStatus;
use bellbird_management::setup_tokens::CreatedSetupToken;
use bellbird_sandbox::ConsentState;
use jiff::SignedDuration;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{
    access_url, account_set, ask, ask_as, assert_plain, claim, list, new_token, posted, rows,
    set_of, text,
};
use crate::support::database::execute;
use crate::support::harness::{App, Setup, eventually};
use crate::support::process::names;
use crate::support::provider_spec::bank_names;

/// Whether it is a number with exactly or at least two places.
fn places(text: &str) -> Option<usize> {
    let (whole, fraction) = text.strip_prefix('-').unwrap_or(text).split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(whole) && is_number(fraction)).then_some(fraction.len())
}

fn add_row(app: &App, account: &str, members: Value) {
    let mut row = json!({"account_id": account, "amount": "-1.00", "description": "ROW"});
    row.as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    app.fiskil().add_row(&row).unwrap();
}

#[tokio::test]
async fn actual_every_row_has_a_payee() {
    let app = App::start(Setup::default()).await;
    let (_, provider_id) = app.busiest().await;
    for description in ["", " ", "WITHOUT MERCHANT"] {
        add_row(
            &app,
            &provider_id,
            json!({"description": description, "merchant": null}),
        );
    }
    app.advance_clock(SignedDuration::from_mins(1));
    let rows = rows(&account_set(&app, "").await);
    assert!(rows.iter().all(|row| !text(row, "payee").trim().is_empty()));
    assert!(rows.iter().any(|row| row["payee"] == "WITHOUT MERCHANT"));
}

#[tokio::test]
async fn actual_balances_have_exactly_two_places() {
    let app = App::start(Setup::default()).await;
    let set = account_set(&app, "").await;
    for account in list(&set, "accounts") {
        assert_eq!(places(text(account, "balance")), Some(2), "{account}");
    }
}

#[tokio::test]
async fn actual_amounts_have_at_least_two_places() {
    let app = App::start(Setup::default()).await;
    let (account, provider_id) = app.busiest().await;
    for amount in ["-10", "0", "7.5", "-1.234"] {
        add_row(
            &app,
            &provider_id,
            json!({"amount": amount, "description": format!("AMOUNT {amount}")}),
        );
    }
    app.advance_clock(SignedDuration::from_mins(1));
    let rows = rows(&account_set(&app, &format!("?account={}", account.id)).await);
    assert!(
        rows.iter()
            .all(|row| places(text(row, "amount")).is_some_and(|places| places >= 2))
    );
    for (amount, sent) in [
        ("-10", "-10.00"),
        ("0", "0.00"),
        ("7.5", "7.50"),
        ("-1.234", "-1.234"),
    ] {
        let row = rows
            .iter()
            .find(|row| text(row, "description") == format!("AMOUNT {amount}"))
            .expect(amount);
        assert_eq!(row["amount"], sent);
    }
}

#[tokio::test]
async fn actual_lists_are_arrays_in_every_account() {
    let app = App::start(Setup::default()).await;
    for query in [
        "",
        "?balances-only=1",
        "?start-date=0&end-date=1",
        "?account=unknown",
    ] {
        let set = account_set(&app, query).await;
        for name in ["errors", "errlist", "connections", "accounts"] {
            list(&set, name);
        }
        for account in list(&set, "accounts") {
            list(account, "transactions");
            list(account, "holdings");
        }
    }
}

#[tokio::test]
async fn actual_rows_are_newest_first_by_posted() {
    let app = App::start(Setup::default()).await;
    for provider in bank_names() {
        let person = app.person_at(provider).await;
        for account in list(&set_of(&app, &person, "?start-date=0").await, "accounts") {
            let times: Vec<i64> = list(account, "transactions")
                .iter()
                .map(|row| row["posted"].as_i64().unwrap())
                .collect();
            assert!(
                times.is_sorted_by(|one, next| one >= next),
                "{provider} {}",
                account["name"]
            );
        }
    }
}

#[tokio::test]
async fn actual_access_url_needs_no_decoding() {
    let app = App::start(Setup::default()).await;
    let url = access_url(&app, &app.olivia).await;
    assert!(
        !url.contains('%') && url.matches('@').count() == 1 && url.matches("//").count() == 1,
        "{url}"
    );
    let (credentials, rest) = url
        .strip_prefix("https://")
        .unwrap()
        .split_once('@')
        .unwrap();
    assert_eq!(
        (credentials.matches(':').count(), rest),
        (1, "bellbird.example/simplefin")
    );
}

#[tokio::test]
async fn actual_errors_are_no_json() {
    let mut setup = Setup::default();
    setup.settings.interop.simplefin_per_minute = 2;
    let app = App::start(setup).await;
    assert_plain(&ask(&app, "?version=3").await, 400);
    assert_plain(&ask(&app, "?start-date=today").await, 400);
    let limited = ask(&app, "").await;
    assert_plain(&limited, 429);
    assert_eq!(limited.header("retry-after"), Some("30"));
    assert_plain(&ask_as(&app, "wrong", "").await, 403);
}

#[tokio::test]
async fn attention_text_is_that_of_actual_and_simplefin4py() {
    let app = App::start(Setup::default()).await;
    let connection = app.olivia.connections[0].clone();
    // The provider still responds.
    let sql = format!(
        "UPDATE connections SET status = 'pending_mfa' WHERE id = '{}'",
        connection.id
    );
    execute(&app.shared.database, &sql, "").await;
    let set = account_set(&app, "").await;
    let account = list(&set, "accounts")
        .iter()
        .find(|account| account["conn_id"] == connection.id.to_string());
    let name = text(&account.expect("shown")["org"], "name");
    let error = format!("Connection to {name} may need attention");
    assert!(
        list(&set, "errors").iter().any(|one| one == &error),
        "{set}"
    );
    let entry = &list(&set, "errlist")[0];
    assert_eq!(
        (text(entry, "code"), text(entry, "conn_id")),
        ("con.auth", connection.id.to_string().as_str())
    );
}

#[tokio::test]
async fn actual_asks_with_pending_and_a_far_end() {
    let app = App::start(Setup::default()).await;
    let (start, end) = (posted("2026-08-23"), posted("2026-12-01"));
    let with_pending = account_set(
        &app,
        &format!("?start-date={start}&end-date={end}&pending=1"),
    )
    .await;
    let without = account_set(&app, &format!("?start-date={start}&end-date={end}")).await;
    assert!(!rows(&with_pending).is_empty());
    assert_eq!(rows(&with_pending), rows(&without));
    assert!(
        rows(&with_pending)
            .iter()
            .all(|row| row["pending"] == false)
    );
}

#[tokio::test]
async fn firefly_setup_token_has_the_claim_path() {
    let app = App::start(Setup::default()).await;
    let created = CreatedSetupToken {
        token: new_token(&app, app.olivia.user.id).await,
        expires_at: app.clock.now(),
    };
    let text = created.text("https://bellbird.example/base");
    let url = String::from_utf8(STANDARD.decode(text.expose_secret()).unwrap()).unwrap();
    let rest = url
        .strip_prefix("https://")
        .unwrap()
        .split_once("/simplefin/claim/")
        .unwrap();
    assert!(!rest.0.is_empty() && rest.1 == created.token.expose());
    assert_eq!(claim(&app, rest.1).await.status, 200);
}

#[tokio::test]
async fn firefly_and_home_assistant_institution_has_domain_and_name() {
    let app = App::start(Setup::default()).await;
    let mut domains = BTreeSet::new();
    for person in [
        &app.olivia,
        &app.person_at("akahu").await,
        &app.person_at("snaptrade").await,
    ] {
        let set = set_of(&app, person, "?balances-only=1").await;
        for account in list(&set, "accounts") {
            let org = &account["org"];
            let domain = text(org, "domain");
            assert!(
                domain.ends_with(".invalid") && !domain.contains(['_', '/', ' ']),
                "{domain}"
            );
            assert!(!text(org, "name").is_empty());
            assert_eq!(text(org, "sfin-url"), "https://bellbird.example/simplefin");
            assert!(account["balance-date"].is_i64());
            domains.insert(domain.to_owned());
        }
    }
    assert_eq!(domains.len(), 4, "institutions differ: {domains:?}");
}

#[tokio::test]
async fn firefly_gets_the_requested_account_first() {
    let app = App::start(Setup::default()).await;
    let all = account_set(&app, "?balances-only=1").await;
    let ids: Vec<&str> = list(&all, "accounts")
        .iter()
        .map(|account| text(account, "id"))
        .collect();
    let shown = app.get("/v1/accounts?limit=200").await.data();
    assert_eq!(
        ids,
        shown
            .iter()
            .map(|account| text(account, "id"))
            .collect::<Vec<_>>(),
        "in the order of /v1"
    );
    for id in ids {
        let one = account_set(&app, &format!("?account={id}")).await;
        let found: Vec<&str> = list(&one, "accounts")
            .iter()
            .map(|account| text(account, "id"))
            .collect();
        assert_eq!(found, [id]);
    }
}

/// In pieces of 44 days, some 470 requests an account.
#[tokio::test]
async fn firefly_windows_before_the_first_row_call_no_provider() {
    let app = App::start(Setup::with_rows(300)).await;
    let (account, _) = app.busiest().await;
    let id = account.id;
    let expected: BTreeSet<String> =
        rows(&account_set(&app, &format!("?account={id}&start-date=0")).await)
            .iter()
            .map(|row| text(row, "id").to_owned())
            .collect();
    assert!(expected.len() >= 300);
    app.reset_calls();
    let (mut found, mut start, mut requests) = (Vec::new(), 0, 0);
    while start < posted("2026-11-22") {
        let end = start + 44 * 86_400;
        let set = account_set(
            &app,
            &format!("?account={id}&pending=1&start-date={start}&end-date={end}"),
        )
        .await;
        assert_eq!(list(&set, "accounts").len(), 1);
        found.extend(rows(&set).iter().map(|row| text(row, "id").to_owned()));
        (start, requests) = (end, requests + 1);
    }
    assert!(requests > 470);
    assert_eq!(found.len(), expected.len(), "each row once");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    let calls = app.fiskil().total_calls();
    assert!(calls < 80, "{calls} provider calls for {requests} requests");
}

#[tokio::test]
async fn simplefin4py_finds_all_members() {
    let app = App::start(Setup::default()).await;
    let set = account_set(&app, "").await;
    let account = &list(&set, "accounts")[0];
    for name in [
        "id",
        "name",
        "currency",
        "balance",
        "available-balance",
        "balance-date",
        "org",
        "transactions",
    ] {
        assert!(account.get(name).is_some(), "{name}");
    }
    for row in rows(&set) {
        for name in [
            "id",
            "posted",
            "amount",
            "description",
            "payee",
            "memo",
            "transacted_at",
        ] {
            assert!(!row[name].is_null(), "{name}");
        }
        assert_eq!(
            row["posted"], row["transacted_at"],
            "both give the same day"
        );
    }
    let broker = app.person_at("snaptrade").await;
    let set = set_of(&app, &broker, "").await;
    let holdings: Vec<&Value> = list(&set, "accounts")
        .iter()
        .flat_map(|account| list(account, "holdings"))
        .collect();
    assert!(!holdings.is_empty());
    for holding in holdings {
        let mut names = names(holding);
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "cost_basis",
                "created",
                "currency",
                "description",
                "id",
                "market_value",
                "purchase_price",
                "shares",
                "symbol"
            ]
        );
    }
}

#[tokio::test]
async fn home_assistant_asks_without_parameters() {
    let app = App::start(Setup::default()).await;
    let set = account_set(&app, "").await;
    assert_eq!(
        list(&set, "accounts").len(),
        app.get("/v1/accounts?limit=200").await.data().len()
    );
    let mut ids: Vec<String> = rows(&set)
        .iter()
        .map(|row| text(row, "id").to_owned())
        .collect();
    let mut shown = Vec::new();
    for connection in &app.olivia.connections {
        let mut offset = 0;
        loop {
            let page = app
                .get(&format!(
                    "/v1/transactions?connectionId={}&limit=500&offset={offset}",
                    connection.id
                ))
                .await;
            shown.extend(page.data().iter().map(|row| text(row, "id").to_owned()));
            offset += 500;
            if page.json()["pagination"]["hasMore"] == false {
                break;
            }
        }
    }
    ids.sort();
    shown.sort();
    assert_eq!(ids, shown, "the last 30 days, as /v1");
}

#[tokio::test]
async fn sure_gets_both_generations_without_a_version() {
    let app = App::start(Setup::default()).await;
    let plain = account_set(&app, "?balances-only=1").await;
    for version in ["1", "2"] {
        let answer = account_set(&app, &format!("?balances-only=1&version={version}")).await;
        let names = |set: &Value| set.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&answer), names(&plain));
    }
    let account = &list(&plain, "accounts")[0];
    let connection = list(&plain, "connections")
        .iter()
        .find(|one| one["conn_id"] == account["conn_id"])
        .unwrap();
    assert_eq!(connection["name"], account["org"]["name"]);
    assert_eq!(connection["org_id"], account["org"]["id"]);
    assert_eq!(connection["sfin_url"], "https://bellbird.example/simplefin");
}

#[tokio::test]
async fn sure_account_without_a_balance_is_left_out_and_named() {
    let app = App::start(Setup::default()).await;
    let connection = app.olivia.connections[0].clone();
    app.set_consent(&connection, ConsentState::Revoked).await;
    let set = account_set(&app, "").await;
    assert!(
        !list(&set, "accounts").is_empty(),
        "the other connection is shown"
    );
    assert!(
        list(&set, "accounts")
            .iter()
            .all(|account| account["conn_id"] != connection.id.to_string())
    );
    let codes: Vec<&str> = list(&set, "errlist")
        .iter()
        .map(|entry| text(entry, "code"))
        .collect();
    let left_out = app.accounts_of(&connection).await.len();
    assert_eq!(
        codes.iter().filter(|code| **code == "con.auth").count(),
        1,
        "{codes:?}"
    );
    assert_eq!(
        codes.iter().filter(|code| **code == "act.failed").count(),
        left_out,
        "{codes:?}"
    );
    // Version 1 has the same texts, without the reason behind the text that simplefin4py compares
    // as a whole.
    let version_1 = |entry: &Value| match (text(entry, "code"), text(entry, "msg").split_once(": "))
    {
        ("con.auth", Some((attention, _))) => attention.to_owned(),
        _ => text(entry, "msg").to_owned(),
    };
    let texts: Vec<String> = list(&set, "errlist").iter().map(version_1).collect();
    assert_eq!(json!(texts), set["errors"]);
    // The read asks for a refresh, which finds out the status.
    eventually(async || {
        app.connections.jobs().run_due("refresh").await.unwrap();
        app.connections_of(app.olivia.user.id)
            .await
            .iter()
            .any(|one| one.status == ConnectionStatus::Revoked)
    })
    .await;
}

#[tokio::test]
async fn goetta_finance_pending_zero_is_accepted() {
    let app = App::start(Setup::default()).await;
    assert_eq!(
        rows(&account_set(&app, "?pending=0").await),
        rows(&account_set(&app, "?pending=1").await)
    );
}

#[tokio::test]
async fn securo_currencies_have_three_letters() {
    let app = App::start(Setup::default()).await;
    let set = account_set(&app, "?version=2").await;
    for holder in list(&set, "accounts").iter().chain(&rows(&set)) {
        assert!(text(holder, "currency").len() == 3, "{holder}");
    }
    assert!(!list(&set, "connections").is_empty() && list(&set, "errlist").is_empty());
}
