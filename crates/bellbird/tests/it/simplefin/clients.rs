//! What known clients demand beyond the protocol: a function each, named after the client and its
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

use super::{SetError, access_url, account_set, ask, claim, new_token, posted, set_of};
use crate::support::database::execute;
use crate::support::harness::{App, Person, Setup, eventually};
use crate::support::process::names;

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

async fn actual_every_row_has_a_payee_and_at_least_two_places(app: &App) {
    let (account, provider_id) = app.busiest().await;
    for description in ["", " ", "WITHOUT MERCHANT"] {
        let row = json!({"description": description, "merchant": null});
        add_row(app, &provider_id, row);
    }
    app.advance_clock(SignedDuration::from_mins(1));
    let set = account_set(app, "").await;
    let payees: Vec<&str> = set.rows().into_iter().map(|row| &*row.payee).collect();
    assert!(payees.iter().all(|payee| !payee.trim().is_empty()));
    assert!(payees.contains(&"WITHOUT MERCHANT"));

    let amounts = [
        ("-10", "-10.00"),
        ("0", "0.00"),
        ("7.5", "7.50"),
        ("-1.234", "-1.234"),
    ];
    for (amount, _) in amounts {
        let row = json!({"amount": amount, "description": format!("AMOUNT {amount}")});
        add_row(app, &provider_id, row);
    }
    app.advance_clock(SignedDuration::from_mins(1));
    let set = account_set(app, &format!("?account={}", account.id)).await;
    for row in set.rows() {
        assert!(places(&row.amount).is_some_and(|places| places >= 2));
    }
    for (amount, sent) in amounts {
        let description = format!("AMOUNT {amount}");
        let mut rows = set.rows().into_iter();
        let row = rows.find(|row| row.description == description);
        assert_eq!(row.expect(amount).amount, sent);
    }
}

/// What no client changes comes first.
#[tokio::test]
async fn one_set_is_what_each_client_demands() {
    let app = App::start(Setup::default()).await;
    actual_balances_have_exactly_two_places(&app).await;
    actual_lists_are_arrays_in_every_account(&app).await;
    actual_access_url_needs_no_decoding(&app).await;
    actual_asks_with_pending_and_a_far_end(&app).await;
    firefly_setup_token_has_the_claim_path(&app).await;
    firefly_gets_the_requested_account_first(&app).await;
    home_assistant_asks_without_parameters(&app).await;
    sure_gets_both_generations_without_a_version(&app).await;
    goetta_finance_pending_zero_is_accepted(&app).await;
    securo_currencies_have_three_letters(&app).await;
    let (fiskil, akahu) = (app.person_at("fiskil").await, app.person_at("akahu").await);
    let broker = app.person_at("snaptrade").await;
    actual_rows_are_newest_first_by_posted(&app, [&fiskil, &akahu]).await;
    firefly_and_home_assistant_institution_has_domain_and_name(&app, [&akahu, &broker]).await;
    simplefin4py_finds_all_members(&app, &broker).await;
    actual_every_row_has_a_payee_and_at_least_two_places(&app).await;
    // Longer than balances, and what a provider has said of a consent, are cached.
    app.advance_own_clock(SignedDuration::from_mins(6));
    sure_account_without_a_balance_is_left_out_and_named(&app).await;
}

async fn actual_balances_have_exactly_two_places(app: &App) {
    for account in account_set(app, "").await.accounts {
        assert_eq!(places(&account.balance), Some(2), "{}", account.balance);
    }
}

async fn actual_lists_are_arrays_in_every_account(app: &App) {
    for query in [
        "",
        "?balances-only=1",
        "?start-date=0&end-date=1",
        "?account=unknown",
    ] {
        // A list that is absent or null cannot be read.
        account_set(app, query).await;
    }
}

async fn actual_rows_are_newest_first_by_posted(app: &App, people: [&Person; 2]) {
    for person in people {
        let provider = &person.connections[0].provider;
        for account in set_of(app, person, "?start-date=0").await.accounts {
            let rows = &account.transactions;
            let is_sorted = rows.is_sorted_by(|one, next| one.posted >= next.posted);
            assert!(is_sorted, "{provider} {}", account.name);
        }
    }
}

async fn actual_access_url_needs_no_decoding(app: &App) {
    let url = access_url(app, &app.olivia).await;
    let rest = url.strip_prefix("https://").unwrap();
    let (credentials, address) = rest.split_once('@').unwrap();
    assert_eq!(address, "bellbird.example/simplefin");
    assert_eq!(credentials.matches(':').count(), 1, "{url}");
    assert!(!credentials.contains(['%', '@', '/']), "{url}");
}

#[tokio::test]
async fn attention_text_is_that_of_actual_and_simplefin4py() {
    let app = App::start(Setup::default()).await;
    let id = app.olivia.connections[0].id.to_string();
    // The provider still responds.
    let sql = format!("UPDATE connections SET status = 'pending_mfa' WHERE id = '{id}'");
    execute(&app.shared.database, &sql, "").await;
    let set = account_set(&app, "").await;
    let account = set.accounts.iter().find(|account| account.conn_id == id);
    let name = &account.expect("shown").org.name;
    let error = format!("Connection to {name} may need attention");
    assert!(set.errors.contains(&error), "{set:?}");
    assert_eq!(set.errlist[0].code, "con.auth");
    assert_eq!(set.errlist[0].conn_id, Some(id));
}

async fn actual_asks_with_pending_and_a_far_end(app: &App) {
    let (start, end) = (posted("2026-08-23"), posted("2026-12-01"));
    let query = format!("?start-date={start}&end-date={end}");
    let with_pending = account_set(app, &format!("{query}&pending=1")).await;
    let without = account_set(app, &query).await;
    assert!(!with_pending.rows().is_empty());
    assert_eq!(with_pending.rows(), without.rows());
    assert!(with_pending.rows().iter().all(|row| !row.pending));
}

async fn firefly_setup_token_has_the_claim_path(app: &App) {
    let created = CreatedSetupToken {
        token: new_token(app, app.olivia.user.id).await,
        expires_at: app.clock.now(),
    };
    let text = created.text("https://bellbird.example/base");
    let url = String::from_utf8(STANDARD.decode(text.expose_secret()).unwrap()).unwrap();
    let rest = url.strip_prefix("https://").unwrap();
    let (host, token) = rest.split_once("/simplefin/claim/").unwrap();
    assert!(!host.is_empty());
    assert_eq!(token, created.token.expose());
    assert_eq!(claim(app, token).await.status, 200);
}

async fn firefly_and_home_assistant_institution_has_domain_and_name(
    app: &App,
    [akahu, broker]: [&Person; 2],
) {
    let mut domains = BTreeSet::new();
    for person in [&app.olivia, akahu, broker] {
        for account in set_of(app, person, "?balances-only=1").await.accounts {
            let org = account.org;
            let is_domain = org.domain.ends_with(".invalid");
            let is_host = !org.domain.contains(['_', '/', ' ']);
            assert!(is_domain && is_host, "{}", org.domain);
            assert_ne!(org.name, "");
            assert_eq!(org.sfin_url, "https://bellbird.example/simplefin");
            domains.insert(org.domain);
        }
    }
    assert_eq!(domains.len(), 4, "institutions differ: {domains:?}");
}

async fn firefly_gets_the_requested_account_first(app: &App) {
    let all = account_set(app, "?balances-only=1").await;
    let shown = app.all_accounts(&app.olivia).await.into_iter();
    let in_order: Vec<String> = shown.map(|account| account.id).collect();
    assert_eq!(all.ids(), in_order, "in the order of /v1");
    for id in all.ids() {
        let one = account_set(app, &format!("?account={id}")).await;
        assert_eq!(one.ids(), [id]);
    }
}

/// In pieces of 44 days, some 470 requests an account.
#[tokio::test]
async fn firefly_windows_before_the_first_row_call_no_provider() {
    let app = App::start(Setup::with_rows(300)).await;
    let (account, _) = app.busiest().await;
    let of_account = format!("?account={}", account.id);
    let whole = account_set(&app, &format!("{of_account}&start-date=0")).await;
    let expected: BTreeSet<&str> = whole.rows().into_iter().map(|row| &*row.id).collect();
    assert!(expected.len() >= 300);
    app.reset_calls();
    let (mut found, mut start, mut requests) = (Vec::new(), 0, 0);
    while start < posted("2026-11-22") {
        let end = start + 44 * 86_400;
        let query = format!("{of_account}&pending=1&start-date={start}&end-date={end}");
        let set = account_set(&app, &query).await;
        assert_eq!(set.accounts.len(), 1);
        found.extend(set.rows().into_iter().map(|row| row.id.clone()));
        (start, requests) = (end, requests + 1);
    }
    assert!(requests > 470);
    assert_eq!(found.len(), expected.len(), "each row once");
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, expected);
    let calls = app.fiskil().total_calls();
    assert!(calls < 80, "{calls} provider calls for {requests} requests");
}

async fn simplefin4py_finds_all_members(app: &App, broker: &Person) {
    // What is read of an account and of a row is there.
    let set = account_set(app, "").await;
    for row in set.rows() {
        assert_eq!(row.posted, row.transacted_at, "both give the same day");
    }
    let account = &ask(app, "").await.json()["accounts"][0];
    assert!(account.get("available-balance").is_some(), "also if null");
    let set = set_of(app, broker, "").await;
    let holdings = set.accounts.iter().flat_map(|account| &account.holdings);
    let holdings: Vec<&Value> = holdings.collect();
    assert!(!holdings.is_empty());
    for holding in holdings {
        let mut names = names(holding);
        names.sort_unstable();
        assert_eq!(
            names.join(" "),
            "cost_basis created currency description id market_value purchase_price shares symbol"
        );
    }
}

async fn home_assistant_asks_without_parameters(app: &App) {
    let set = account_set(app, "").await;
    let accounts = app.all_accounts(&app.olivia).await;
    assert_eq!(set.accounts.len(), accounts.len());
    let mut shown = Vec::new();
    for connection in &app.olivia.connections {
        let rows = app.all_transactions(connection.id).all(500).await;
        shown.extend(rows.into_iter().map(|row| row.id));
    }
    let mut ids: Vec<&str> = set.rows().into_iter().map(|row| &*row.id).collect();
    ids.sort_unstable();
    shown.sort_unstable();
    assert_eq!(ids, shown, "the last 30 days, as /v1");
}

async fn sure_gets_both_generations_without_a_version(app: &App) {
    let plain = ask(app, "?balances-only=1").await.json();
    for version in ["1", "2"] {
        let answer = ask(app, &format!("?balances-only=1&version={version}")).await;
        assert_eq!(names(&answer.json()), names(&plain));
    }
    let set = account_set(app, "?balances-only=1").await;
    let account = &set.accounts[0];
    let mut connections = set.connections.iter();
    let connection = connections.find(|one| one.conn_id == account.conn_id);
    let connection = connection.unwrap();
    assert_eq!(connection.name, account.org.name);
    assert_eq!(connection.org_id, account.org.id);
    assert_eq!(connection.sfin_url, "https://bellbird.example/simplefin");
}

async fn sure_account_without_a_balance_is_left_out_and_named(app: &App) {
    let connection = &app.olivia.connections[0];
    app.set_consent(connection, ConsentState::Revoked).await;
    let set = account_set(app, "").await;
    assert!(!set.accounts.is_empty(), "the other connection is shown");
    for account in &set.accounts {
        assert_ne!(account.conn_id, connection.id.to_string());
    }
    let left_out = app.accounts_of(connection).await.len();
    for (code, expected) in [("con.auth", 1), ("act.failed", left_out)] {
        let count = set
            .errlist
            .iter()
            .filter(|error| error.code == code)
            .count();
        assert_eq!(count, expected, "{code}: {:?}", set.errlist);
    }
    // Version 1 has the same texts, without the reason behind the text that simplefin4py compares
    // as a whole.
    let version_1 = |error: &SetError| match (&*error.code, error.msg.split_once(": ")) {
        ("con.auth", Some((attention, _))) => attention.to_owned(),
        _ => error.msg.clone(),
    };
    let texts: Vec<String> = set.errlist.iter().map(version_1).collect();
    assert_eq!(texts, set.errors);
    // The read asks for a refresh, which finds out the status.
    eventually(async || {
        app.connections.jobs().run_due("refresh").await.unwrap();
        let connections = app.connections_of(app.olivia.user.id).await;
        let mut statuses = connections.iter().map(|one| one.status);
        statuses.any(|status| status == ConnectionStatus::Revoked)
    })
    .await;
}

async fn goetta_finance_pending_zero_is_accepted(app: &App) {
    let without = account_set(app, "?pending=0").await;
    let with = account_set(app, "?pending=1").await;
    assert_eq!(without.rows(), with.rows());
}

async fn securo_currencies_have_three_letters(app: &App) {
    let set = account_set(app, "?version=2").await;
    let of_accounts = set.accounts.iter().map(|account| &account.currency);
    let rows = set.rows();
    let of_rows = rows.iter().map(|row| &row.currency);
    for currency in of_accounts.chain(of_rows) {
        assert_eq!(currency.len(), 3, "{currency}");
    }
    assert!(!set.connections.is_empty());
    assert_eq!(set.errlist, []);
}
