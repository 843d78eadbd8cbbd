//! `/v1/holdings` and `/v1/trades`: plans, categories, values, pages and caches.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use bellbird_domain::{Plan, TradeType};
use bellbird_sandbox::{ConsentState, Fault};
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{Account, Holding, Page, Pagination, Trade};
use crate::support::harness::{
    App, Database, Person, Response, Setup, assert_reconnect, eventually,
};
use crate::support::process::{names, text};
use crate::support::words::{assert_has, assert_starts};

const PROVIDER: &str = "snaptrade";
/// After it, neither holdings nor trades are cached.
const CACHE_TIME: SignedDuration = SignedDuration::from_secs(601);

/// A user with both connections of the sandbox's first person.
async fn investor(app: &App) -> Person {
    let all = app.credentials_of(PROVIDER);
    let (email, own) = ("mia@example.com", [&all[0], &all[1]]);
    let person = app.add_person(email, Plan::Professional, &own).await;
    app.reset_calls();
    person
}

/// Calls to every path that contains `part`.
fn calls(app: &App, part: &str) -> u64 {
    let calls = app.bank(PROVIDER).calls().into_iter();
    let of_part = calls.filter(|(path, _)| path.contains(part));
    of_part.map(|(_, count)| count).sum()
}

/// The first account, after adding `rows` trades to it.
async fn account_with_trades(app: &App, person: &Person, rows: u32) -> Account {
    let (account, at_provider) = app.accounts_by(person).await.swap_remove(0);
    app.bank(PROVIDER).fill(&at_provider, rows).unwrap();
    app.reset_calls();
    account
}

#[tokio::test]
async fn holdings_and_trades_are_checked_shaped_and_cached() {
    let app = App::start(Setup::default()).await;
    let mia = investor(&app).await;
    let connection = mia.connections[0].id;
    for resource in ["holdings", "trades"] {
        let path = format!("/v1/{resource}?connectionId={connection}");
        let read = async || app.get_as(&mia.key, &path).await;
        assert_eq!(read().await.status, 200);
        // The plan is checked before the parameters and the cache.
        let answer = app.get_as(&app.ben.key, &format!("/v1/{resource}")).await;
        answer.error(403);
        assert_eq!(answer.json()["error"]["code"], "professional_required");
        for (plan, code) in [
            (Plan::Developer, json!("professional_required")),
            (Plan::Saver, Value::Null),
        ] {
            app.set_plan(mia.user.id, plan).await;
            let answer = read().await;
            answer.error(403);
            assert_eq!(answer.json()["error"]["code"], code, "{plan}");
        }
        app.set_plan(mia.user.id, Plan::Professional).await;
        // Another user's connection is unknown.
        app.get(&path).await.error(404);
    }
    app.reset_calls();
    parameters_and_category_are_checked(&app, &mia).await;
    holdings_and_trades_have_the_documented_shape(&app, &mia).await;
    holdings_are_cached_per_connection(&app, &mia).await;
    concurrent_equal_reads_share_one_call(&app, &mia).await;
    retired_provider_endpoint_is_called_once(&app, &mia).await;
}

async fn parameters_and_category_are_checked(app: &App, mia: &Person) {
    let get = async |path: String| app.get_as(&mia.key, &path).await;
    let (bank, broker) = (app.olivia.connections[0].id, mia.connections[0].id);
    let bills = app.account("Bills").await.id;
    for resource in ["holdings", "trades"] {
        for query in ["", "?connectionId="] {
            let message = get(format!("/v1/{resource}{query}")).await.error(400);
            assert_eq!(message, "connectionId is required");
        }
        for query in [
            "1".to_owned(),
            bank.to_string(),
            format!("{broker}&accountId={broker}"),
            format!("{broker}&accountId=zz"),
            format!("{broker}&accountId="),
            format!("{broker}&accountId={bills}"),
        ] {
            let path = format!("/v1/{resource}?connectionId={query}");
            get(path).await.error(404);
        }
        // The category comes before the account.
        for account in ["", "&accountId=zz"] {
            let path = format!("/v1/{resource}?connectionId={bank}{account}");
            let message = app.get(&path).await.error(400);
            assert_has(&message, "must be a brokerage connection");
        }
        let path = format!("/v1/{resource}");
        let posted = app.http.post(format!("{}{path}", app.url));
        let answer = app.send(posted).await;
        answer.error(401);
        // An answer without a key does not show which methods exist.
        assert_eq!(answer.header("allow"), None);
        let answer = app.method_as(Method::POST, &mia.key, &path).await;
        answer.error(405);
        assert_eq!(answer.header("allow"), Some("GET,HEAD"));
    }
    let read = || app.all_transactions(broker).by(mia);
    for read in [read(), read().with("accountId", "zz")] {
        let message = read.send().await.error(400);
        assert_has(&message, "must be a banking connection");
    }
    let trades = || app.all_trades(broker).by(mia);
    let wrong = trades().from("2026-02-30").to("x").limit(0);
    let wrong = wrong.with("offset", -1).send().await;
    assert_has(&wrong.error(400), "date");
    assert_eq!(wrong.details().as_array().unwrap().len(), 4);
    assert_eq!(trades().limit(9_999).page().await.pagination.limit, 500);
    assert_eq!(app.fiskil().calls().len(), 0);
}

fn decimal(text: &str) -> bigdecimal::BigDecimal {
    text.parse().expect("a decimal")
}

/// All holdings of a response, which has no pagination.
fn holdings(response: &Response) -> Vec<Holding> {
    assert_eq!(names(&response.json()), ["data"]);
    response.rows()
}

async fn holdings_and_trades_have_the_documented_shape(app: &App, mia: &Person) {
    let (mut count, mut ids, mut multipliers) = (0, BTreeSet::new(), BTreeSet::new());
    for connection in &mia.connections {
        let read = app.all_holdings(connection.id).by(mia);
        let response = read.send().await;
        for holding in holdings(&response) {
            assert!(ids.insert(holding.id), "a repeated id");
            for required in [&holding.symbol, &holding.currency, &holding.account_name] {
                assert!(!required.is_empty());
            }
            if let Some(value) = &holding.market_value {
                // The value is quantity times price, times a whole multiplier, which is mostly 1.
                let price = holding.current_price.expect("a price of a value");
                let product = decimal(&holding.quantity) * decimal(&price);
                assert!(!value.ends_with(".0"));
                let value = decimal(value);
                let mut whole = [1, 10, 50, 100, 1_000].into_iter();
                let multiplier = whole.find(|times| product.clone() * *times == value);
                multipliers.insert(multiplier.expect("a product"));
            }
            count += 1;
        }
        assert_eq!(read.send().await.text, response.text, "ids are stable");
    }
    assert!(count > 10, "{count}");
    for common in [1, 100] {
        assert!(multipliers.contains(&common), "{multipliers:?}");
    }
    trades_have_the_documented_shape_and_order(app, mia).await;
}

async fn holdings_are_cached_per_connection(app: &App, mia: &Person) {
    app.advance_clock(CACHE_TIME);
    app.reset_calls();
    let accounts = app.accounts_by(mia).await;
    let connection = accounts[0].0.connection_id.clone();
    let own_accounts = accounts.iter();
    let own_accounts: Vec<&(Account, String)> = own_accounts
        .filter(|(account, _)| account.connection_id == connection)
        .collect();
    let each_once = own_accounts.len() as u64;
    let whole = format!("/v1/holdings?connectionId={connection}");
    let of_account = async |at: usize| {
        let read = app.holdings(&own_accounts[at].0).by(mia);
        read.send().await
    };
    let first = of_account(0).await;
    assert_eq!(first.cache(), Some("MISS"));
    assert_eq!(calls(app, "/positions/all"), each_once);
    app.advance_clock(SignedDuration::from_secs(75));
    let all = app.get_as(&mia.key, &whole).await;
    assert_eq!(all.cache(), Some("HIT"));
    assert_eq!(all.header("age"), Some("75"));
    let mut parts = Vec::new();
    for (at, (account, _)) in own_accounts.iter().enumerate() {
        let part = of_account(at).await;
        assert_eq!(part.cache(), Some("HIT"));
        let part = holdings(&part);
        assert!(part.iter().all(|holding| holding.account_id == account.id));
        parts.extend(part);
    }
    let ids = |rows: Vec<Holding>| BTreeSet::from_iter(rows.into_iter().map(|row| row.id));
    assert_eq!(ids(parts), ids(holdings(&all)));
    assert_eq!(calls(app, "/positions/all"), each_once);
    // After ten minutes.
    app.advance_clock(SignedDuration::from_secs(526));
    assert_eq!(app.get_as(&mia.key, &whole).await.cache(), Some("MISS"));

    // One failing account fails reads of the whole connection, but not reads of other accounts.
    app.advance_clock(CACHE_TIME);
    let positions = format!("/accounts/{}/positions", own_accounts[1].1);
    app.bank(PROVIDER)
        .add_fault(Fault::status(500).at(positions));
    let answer = app.get_as(&mia.key, &whole).await;
    answer.error(503);
    assert!(answer.header("retry-after").is_some());
    assert_eq!(of_account(0).await.cache(), Some("BYPASS"));
    of_account(1).await.error(503);
    app.clear_faults();
    assert_eq!(app.get_as(&mia.key, &whole).await.cache(), Some("MISS"));
}

async fn concurrent_equal_reads_share_one_call(app: &App, mia: &Person) {
    app.advance_clock(CACHE_TIME);
    app.reset_calls();
    let accounts = app.accounts_by(mia).await;
    let account = &accounts[0].0;
    let is_beside = |other: &Account| other.connection_id == account.connection_id;
    let beside = accounts.iter().filter(|(other, _)| is_beside(other));
    let account_count = beside.count();
    app.bank(PROVIDER)
        .add_fault(Fault::delay_ms(300).at("/accounts/"));
    let (holdings, trades) = (app.holdings(account).path(), app.trades(account).path());
    for (path, part, expected) in [
        (holdings, "/positions/all", account_count),
        (trades, "/activities", 1),
    ] {
        let reads = (0..8).map(|_| app.get_as(&mia.key, &path));
        let answers = futures_util::future::join_all(reads).await;
        for answer in &answers {
            assert_eq!(answer.status, 200);
            assert_eq!(answer.text, answers[0].text);
        }
        assert_eq!(calls(app, part), expected as u64, "{part}");
    }
    app.clear_faults();
}

async fn trades_have_the_documented_shape_and_order(app: &App, mia: &Person) {
    let mut types = BTreeSet::new();
    for (account, _) in app.accounts_by(mia).await {
        for trade in app.trades(&account).by(mia).all(500).await {
            let Trade {
                id,
                trade_date,
                symbol,
                ..
            } = &trade;
            assert_starts(id, &format!("{trade_date}-{symbol}-"));
            let description = trade.description.as_deref().unwrap_or_default();
            assert!(id.ends_with(&format!("-{description}")), "{id}");
            for number in [&trade.quantity, &trade.price, &trade.total_amount] {
                decimal(number);
            }
            types.insert(trade.r#type);
        }
    }
    let all = TradeType::ALL.iter().map(|kind| kind.as_str().to_owned());
    assert_eq!(types, BTreeSet::from_iter(all), "all eight occur");

    // Those of several accounts are merged, newest first.
    for connection in &mia.connections {
        let merged = app.all_trades(connection.id).by(mia).all(150).await;
        let mut single: Vec<Trade> = Vec::new();
        for (account, _) in app.accounts_by(mia).await {
            if account.connection_id == connection.id.to_string() {
                single.extend(app.trades(&account).by(mia).all(500).await);
            }
        }
        let instant = |trade: &Trade| {
            let text = &trade.trade_date;
            text.parse::<jiff::Timestamp>()
                .unwrap_or_else(|_| format!("{text}T00:00:00Z").parse().expect("a day"))
        };
        single.sort_by_key(|trade| (Reverse(instant(trade)), trade.account_id.clone()));
        assert_eq!(merged, single);
    }
}

#[tokio::test]
async fn windows_of_trades_are_one_call_in_user_days_and_cached() {
    let app = App::start(Setup::default()).await;
    let mia = investor(&app).await;
    let account = account_with_trades(&app, &mia, 20_000).await;
    let mut seen = BTreeSet::new();
    for (offset, truncated) in [
        (0, true),
        (200, true),
        (14_800, true),
        (15_000, false),
        (19_800, false),
    ] {
        app.reset_calls();
        let read = app.trades(&account).by(&mia).limit(200).offset(offset);
        let response = read.send().await;
        let page = response.read::<Page<Trade>>();
        assert_eq!(page.rows.len(), 200);
        assert_eq!(app.bank(PROVIDER).total_calls(), 1, "{offset}");
        let is_truncated = response.header("x-service-truncated").is_some();
        assert_eq!(is_truncated, truncated, "{offset}");
        let last = offset == 19_800;
        let Pagination {
            has_more, total, ..
        } = page.pagination;
        assert_eq!((has_more, total), (!last, if last { 20_000 } else { -1 }));
        seen.extend(page.rows.into_iter().map(|trade| trade.trade_date));
    }
    assert!(seen.len() > 100);
    // The same page is served from the cache.
    app.reset_calls();
    let read = || app.trades(&account).by(&mia);
    let again = read().offset(200).send().await;
    assert_eq!(again.cache(), Some("HIT"));
    assert_eq!(again.header("x-service-truncated"), Some("true"));
    assert!(app.bank(PROVIDER).calls().is_empty());
    let past_end = read().offset(90_000_000).page().await;
    assert_eq!(past_end.rows, []);
    assert_eq!(past_end.pagination.total, 20_000);
    bounds_are_user_days_or_instants(&app, &mia).await;
    cache_is_per_timezone_and_key(&app, &mia).await;
}

async fn bounds_are_user_days_or_instants(app: &App, mia: &Person) {
    let (account, at_provider) = app.accounts_by(mia).await.swap_remove(0);
    app.bank(PROVIDER).fill(&at_provider, 3).unwrap();
    for (date, text) in [
        ("2026-10-30T00:00:00Z", "day before"),
        ("2026-10-31T00:00:00.000Z", "day"),
        ("2026-10-30T13:30:00Z", "first minutes in Sydney"),
        ("2026-10-31T12:59:59Z", "last second in Sydney"),
        ("2026-10-31T13:00:00Z", "next day in Sydney"),
        ("2026-11-01T00:00:00Z", "day after"),
    ] {
        let row =
            json!({"account": at_provider, "trade_date": date, "description": text, "type": "BUY"});
        app.bank(PROVIDER).add_row(&row).unwrap();
    }
    let between = |from: &str, to: &str| app.trades(&account).by(mia).from(from).to(to);
    let found = async |from: &str, to: &str| -> Vec<String> {
        let trades = between(from, to).rows().await.into_iter();
        trades.filter_map(|trade| trade.description).collect()
    };
    let of_the_day = ["last second in Sydney", "day", "first minutes in Sydney"];
    assert_eq!(found("2026-10-31", "2026-10-31").await, of_the_day);
    // The two instants are on either side of midnight in Sydney. A row with a day but no time
    // belongs to its whole day.
    let around_midnight = found("2026-10-31T12:59:59Z", "2026-10-31T13:00:00Z").await;
    assert_eq!(
        around_midnight.join(", "),
        "day after, next day in Sydney, last second in Sydney, day"
    );
    assert_eq!(found("2026-11-01", "2026-10-31").await, [""; 0]);
    let page = |total, limit, has_more| Pagination {
        total,
        limit,
        offset: 0,
        has_more,
    };
    let day = between("2026-10-31", "2026-10-31");
    assert_eq!(day.page().await.pagination, page(3, 200, false));
    assert_eq!(day.limit(2).page().await.pagination, page(-1, 2, true));
}

async fn cache_is_per_timezone_and_key(app: &App, mia: &Person) {
    let (account, at_provider) = app.accounts_by(mia).await.swap_remove(0);
    let row = json!({"account": at_provider, "trade_date": "2026-11-16T23:59:59Z", "description": "late", "type": "BUY"});
    app.bank(PROVIDER).add_row(&row).unwrap();
    // 17 November in Sydney, 16 November in Los Angeles.
    let read = app.trades(&account).by(mia).from("2026-11-17");
    let path = read.to("2026-11-17").path();
    let has_row = |response: &Response| {
        let mut trades = response.read::<Page<Trade>>().rows.into_iter();
        trades.any(|trade| trade.description.as_deref() == Some("late"))
    };
    let first = app.get_as(&mia.key, &path).await;
    assert!(has_row(&first));
    assert_eq!(app.get_as(&mia.key, &path).await.cache(), Some("HIT"));
    app.set_timezone(mia.user.id, "America/Los_Angeles").await;
    let elsewhere = app.get_as(&mia.key, &path).await;
    assert_eq!(elsewhere.cache(), Some("MISS"));
    assert!(!has_row(&elsewhere));
    // A warm cache serves no other user and no removed connection.
    let holdings = app.holdings(&account).path();
    assert_eq!(app.get_as(&mia.key, &holdings).await.status, 200);
    for path in [&path, &holdings] {
        app.get(path).await.error(404);
    }
    app.remove(mia.connections[0].id).await;
    app.remove(mia.connections[1].id).await;
    for path in [&path, &holdings] {
        app.get_as(&mia.key, path).await.error(404);
    }
}

#[tokio::test]
async fn disabled_connection_is_served_lost_one_is_503() {
    let setup = Setup {
        database: Database::Sqlite,
        ..Setup::default()
    };
    let app = App::start(setup).await;
    let credentials = app.credentials_of(PROVIDER).swap_remove(0);
    let email = "mia@example.com";
    let mia = app
        .add_person(email, Plan::Professional, &[&credentials])
        .await;
    let connection = mia.connections[0].id;
    let authorization = text(&credentials, "authorizationId");
    app.bank(PROVIDER)
        .set_consent(authorization, ConsentState::Expired)
        .unwrap();
    let trades = || app.all_trades(connection).by(&mia);
    // A read succeeds while the provider answers.
    trades().page().await;
    let called = app.bank(PROVIDER).calls().into_keys();
    let checks = called.filter(|path| path.starts_with("/authorizations/{"));
    assert_eq!(checks.count(), 1, "only the import checked the consent");

    let user = text(&credentials, "userId");
    app.bank(PROVIDER).set_user(user, false).unwrap();
    assert_reconnect(&trades().limit(3).send().await, "invalidated");
    eventually(async || {
        app.connections.jobs().run_due("refresh").await.unwrap();
        app.get_as(&mia.key, "/v1/connections").await.data()[0]["status"] == "revoked"
    })
    .await;
    assert_reconnect(&trades().limit(4).send().await, "revoked");
    let holdings = app.all_holdings(connection).by(&mia);
    assert_reconnect(&holdings.send().await, "revoked");
}

async fn retired_provider_endpoint_is_called_once(app: &App, mia: &Person) {
    app.advance_clock(CACHE_TIME);
    app.reset_calls();
    let account = app.accounts_by(mia).await.swap_remove(0).0;
    app.bank(PROVIDER)
        .add_fault(Fault::status(410).at("/accounts/"));
    app.trades(&account).by(mia).send().await.error(503);
    assert_eq!(calls(app, "/activities"), 1);
}
