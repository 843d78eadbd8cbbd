//! What the tools return, compared with `/v1`.

use std::collections::{BTreeMap, BTreeSet};

use bellbird_domain::{ConnectionCategory, Plan};
use bellbird_sandbox::{ConsentState, Fault};
use bigdecimal::BigDecimal;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::list;
use crate::support::client::{Account, Holding, Trade, Transaction};
use crate::support::fields::assert_fields;
use crate::support::harness::{App, Person, Setup};
use crate::support::mcp::Mcp;
use crate::support::words::{assert_has, assert_lacks, assert_starts};

/// A user of all three providers, with the rows that have odd texts and amounts.
pub(super) async fn person_with_all(app: &App) -> Person {
    let (fiskil, akahu, brokers) = (
        app.credentials_of("fiskil"),
        app.credentials_of("akahu"),
        app.credentials_of("snaptrade"),
    );
    let all = [&fiskil[5], &akahu[0], &akahu[3], &brokers[0], &brokers[1]];
    app.add_person("all@example.com", Plan::Professional, &all)
        .await
}

/// The transactions of all accounts, by `/v1`.
async fn v1_transactions(app: &App, person: &Person, from: Option<&str>) -> Vec<Transaction> {
    let mut rows = Vec::new();
    for account in banking_accounts(app, person).await {
        let read = app.transactions(&account).by(person);
        let read = match from {
            Some(from) => read.from(from),
            None => read,
        };
        rows.extend(read.all(500).await);
    }
    rows
}

async fn banking_accounts(app: &App, person: &Person) -> Vec<Account> {
    let is_bank = |account: &Account| {
        person.connections.iter().any(|connection| {
            connection.category == ConnectionCategory::Banking
                && connection.id.to_string() == account.connection_id
        })
    };
    let accounts = app.accounts_by(person).await.into_iter();
    let accounts = accounts.map(|(account, _)| account);
    accounts.filter(is_bank).collect()
}

/// Rows as lines, without untrusted texts.
fn v1_facts(rows: &[Transaction]) -> BTreeSet<String> {
    let facts = |row: &Transaction| {
        let Transaction {
            id,
            account_id,
            date,
            amount,
            ..
        } = row;
        let category = row.category.as_deref().unwrap_or_default();
        format!("{account_id} {id} {date} {amount} {category}")
    };
    rows.iter().map(facts).collect()
}

fn mcp_facts(rows: &[Value]) -> BTreeSet<String> {
    let facts = |row: &Value| {
        ["account_id", "id", "day", "amount", "category"]
            .map(|name| row[name].as_str().unwrap_or_default())
            .join(" ")
    };
    rows.iter().map(facts).collect()
}

fn assert_same(rows: &[Value], expected: &[Transaction], what: &str) {
    assert_eq!(rows.len(), expected.len(), "{what}");
    let (found, wanted) = (mcp_facts(rows), v1_facts(expected));
    let only_in = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect();
    let (missing, invented): (Vec<String>, Vec<String>) =
        (only_in(&wanted, &found), only_in(&found, &wanted));
    assert_eq!(missing, [""; 0], "{what}");
    assert_eq!(invented, [""; 0], "{what}");
}

#[tokio::test]
async fn rows_sums_and_accounts_are_those_of_v1() {
    let app = App::start(Setup::with_rows(120)).await;
    let person = person_with_all(&app).await;
    let mcp = Mcp::new(&app, &person.key);
    let month = v1_transactions(&app, &person, None).await;
    let all = v1_transactions(&app, &person, Some("2000-01-01")).await;
    assert!(month.len() > 20, "{}", month.len());
    assert!(all.len() > month.len() + 100, "{}", all.len());
    for (arguments, expected) in [
        (json!({}), &month),
        (json!({"limit": 7}), &month),
        (json!({"from": "2000-01-01", "limit": 500}), &all),
        (
            json!({"from": "2000-01-01", "limit": 31, "detail": "full"}),
            &all,
        ),
    ] {
        let (rows, answers) = mcp
            .rows("list_transactions", "transactions", arguments.clone())
            .await;
        assert_same(&rows, expected, &arguments.to_string());
        assert!(answers > 1 || rows.len() <= 50, "{answers} answers");
    }

    let accounts = banking_accounts(&app, &person).await.into_iter();
    let currencies: BTreeMap<String, String> = accounts
        .map(|account| (account.id, account.currency))
        .collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group_of = |row: &Transaction, group_by: &str| match group_by {
        "category" => row.category.clone().unwrap_or_default(),
        "month" => row.date[..7].to_owned(),
        _ => row.account_id.clone(),
    };
    for group_by in ["category", "month", "account"] {
        let mut expected = Groups::new();
        for row in &all {
            let amount: BigDecimal = row.amount.parse().unwrap();
            let key = (currencies[&row.account_id].clone(), group_of(row, group_by));
            let (money_in, money_out, count) = expected.entry(key).or_default();
            if row.direction == "debit" {
                *money_out += &amount;
            } else {
                *money_in += &amount;
            }
            *count += 1;
        }
        let arguments = json!({"from": "2000-01-01", "group_by": group_by});
        let answer = mcp.call("summarize_transactions", arguments).await;
        assert_fields(&answer, &json!({"complete": true, "rows_read": all.len()}));
        let mut found = Groups::new();
        for group in list(&answer, "groups") {
            let sum = |name: &str| group[name].as_str().unwrap().parse::<BigDecimal>().unwrap();
            let (money_in, money_out) = (sum("money_in"), sum("money_out"));
            assert_eq!(&money_in + &money_out, sum("net"));
            let key = (text(&group["currency"]), text(&group["group"]));
            let count = group["count"].as_u64().unwrap();
            found.insert(key, (money_in, money_out, count));
        }
        assert_eq!(found, expected, "{group_by}");
    }
    holdings_trades_and_accounts_are_those_of_v1(&app, &person).await;
    failing_connection_leaves_the_others(&app, &person).await;
}

async fn full_rows_have_the_members_of_v1(app: &App, mcp: &Mcp<'_>) {
    let rows = mcp.transactions(json!({"detail": "full"})).await;
    let expected = v1_transactions(app, &app.olivia, None).await;
    let expected: BTreeMap<&str, &Transaction> =
        expected.iter().map(|row| (row.id.as_str(), row)).collect();
    assert_eq!(rows.len(), expected.len());
    assert!(rows.is_sorted_by(|one, next| one["day"].as_str() >= next["day"].as_str()));
    for row in &rows {
        let v1 = expected[row["id"].as_str().unwrap()];
        for (name, expected) in [
            ("datetime", Some(&v1.datetime)),
            ("direction", Some(&v1.direction)),
            ("description", Some(&v1.description)),
            ("merchant_name", v1.merchant_name.as_ref()),
            ("merchant_category_code", v1.merchant_category_code.as_ref()),
        ] {
            assert_eq!(row[name], json!(expected), "{name}");
        }
        assert!(row["payee"].is_null());
    }
}

#[tokio::test]
async fn arguments_select_rows_or_are_named() {
    let app = App::start(Setup::with_rows(200)).await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    let all = v1_transactions(&app, &app.olivia, Some("2000-01-01")).await;
    let account = all[0].account_id.as_str();
    let word = all[0].description.split(' ').next().unwrap().to_lowercase();
    let amount = |row: &Transaction| row.amount.parse::<BigDecimal>().unwrap();
    let text_of = |row: &Transaction| {
        let merchant = row.merchant_name.as_deref().unwrap_or_default();
        format!("{}\n{merchant}", row.description).to_lowercase()
    };
    type Condition<'c> = Box<dyn Fn(&Transaction) -> bool + 'c>;
    let cases: Vec<(Value, Condition<'_>)> = vec![
        (
            json!({"account_ids": [account]}),
            Box::new(|row| row.account_id == account),
        ),
        (
            json!({"direction": "credit"}),
            Box::new(|row| row.direction == "credit"),
        ),
        (
            json!({"category": "TRANSPORTATION"}),
            Box::new(|row| row.category.as_deref() == Some("TRANSPORTATION")),
        ),
        (
            json!({"text": word}),
            Box::new(|row| text_of(row).contains(&word)),
        ),
        (
            json!({"min_amount": "10", "max_amount": "50.00"}),
            Box::new(|row| {
                (BigDecimal::from(10)..=BigDecimal::from(50)).contains(&amount(row).abs())
            }),
        ),
    ];
    for (mut arguments, is_wanted) in cases {
        arguments["from"] = "2000-01-01".into();
        arguments["limit"] = 100.into();
        let expected: Vec<Transaction> = all.iter().filter(|row| is_wanted(row)).cloned().collect();
        assert!(
            !expected.is_empty() && expected.len() < all.len(),
            "{arguments}"
        );
        let rows = mcp.transactions(arguments.clone()).await;
        assert_same(&rows, &expected, &arguments.to_string());
        // The same filters count the same rows.
        arguments.as_object_mut().unwrap().remove("limit");
        let summary = mcp.call("summarize_transactions", arguments).await;
        let totals = list(&summary, "totals").iter();
        let counted: u64 = totals.filter_map(|total| total["count"].as_u64()).sum();
        assert_eq!(counted, expected.len() as u64);
    }
    full_rows_have_the_members_of_v1(&app, &mcp).await;
    bad_arguments_say_what_to_send(&app, &mcp).await;
}

/// Money in, money out and the number of rows, by currency and group.
type Groups = BTreeMap<(String, String), (BigDecimal, BigDecimal, u64)>;

#[tokio::test]
async fn new_rows_are_those_that_no_sync_had_seen() {
    let app = App::start(Setup::default()).await;
    let person = person_with_all(&app).await;
    let mcp = Mcp::new(&app, &person.key);
    let banks: Vec<_> = person
        .connections
        .iter()
        .filter(|connection| connection.provider != "snaptrade")
        .collect();
    let sync = async || {
        for bank in &banks {
            app.sync(bank).await;
        }
        app.advance_clock(SignedDuration::from_mins(1));
    };
    sync().await;
    let since = app.clock.now().to_string();
    assert_eq!(new_rows(&mcp, &since).await, [] as [Value; 0]);
    let posted_at = app.clock.now() - SignedDuration::from_hours(60);
    for bank in &banks[..2] {
        app.add_row(bank, "POSTED LATE", posted_at).await;
    }
    assert_eq!(new_rows(&mcp, &since).await.len(), 2, "before a sync");
    sync().await;
    assert_eq!(new_rows(&mcp, &since).await.len(), 2, "after it");
    let later = app.clock.now().to_string();
    assert_eq!(new_rows(&mcp, &later).await, [] as [Value; 0]);
    rows_of_a_renewed_connection_are_not_new(&app).await;
}

async fn new_rows(mcp: &Mcp<'_>, since: &str) -> Vec<Value> {
    let arguments = json!({ "since": since });
    let rows = mcp.rows("list_new_transactions", "transactions", arguments);
    rows.await.0
}

/// A renewed consent gives every row another id, which only a sync recognises.
async fn rows_of_a_renewed_connection_are_not_new(app: &App) {
    let (person, connection) = app.linked_at("fiskil").await;
    let mcp = Mcp::new(app, &person.key);
    app.sync(&connection).await;
    app.advance_clock(SignedDuration::from_mins(1));
    let since = app.clock.now().to_string();
    app.renew_in_browser(&connection).await;
    app.add_row(&connection, "AFTER THE RENEWAL", app.clock.now())
        .await;
    app.advance_clock(SignedDuration::from_mins(1));
    let new = new_rows(&mcp, &since).await;
    assert_eq!(new.len(), 1, "{new:?}");
}

async fn holdings_trades_and_accounts_are_those_of_v1(app: &App, person: &Person) {
    let mcp = Mcp::new(app, &person.key);
    let (mut holdings, mut trades) = (Vec::new(), Vec::new());
    for broker in &person.connections {
        if broker.category == ConnectionCategory::Brokerage {
            holdings.extend(app.all_holdings(broker.id).by(person).rows().await);
            trades.extend(app.all_trades(broker.id).by(person).all(500).await);
        }
    }
    assert!(holdings.len() > 3, "{}", holdings.len());
    assert!(trades.len() > 20, "{}", trades.len());
    let of_holding = |row: Holding| {
        json!({
            "id": row.id, "account_id": row.account_id, "symbol": row.symbol,
            "quantity": row.quantity, "currency": row.currency,
            "market_value": row.market_value, "unrealized_pnl": row.unrealized_pnl,
        })
    };
    let of_trade = |row: Trade| {
        json!({
            "account_id": row.account_id, "symbol": row.symbol, "quantity": row.quantity,
            "currency": row.currency, "total_amount": row.total_amount,
            "trade_date": row.trade_date, "type": row.r#type, "fees": row.fees,
        })
    };
    let holdings: Vec<Value> = holdings.into_iter().map(of_holding).collect();
    let trades: Vec<Value> = trades.into_iter().map(of_trade).collect();
    for (tool, member, expected) in [
        ("list_holdings", "holdings", holdings),
        ("list_trades", "trades", trades),
    ] {
        for limit in [17, 500] {
            let (rows, _) = mcp.rows(tool, member, json!({ "limit": limit })).await;
            // The tools show more members than these.
            let shown = rows.iter().map(|row| {
                let names = expected[0].as_object().unwrap().keys();
                names
                    .map(|name| (name.clone(), row[name].clone()))
                    .collect()
            });
            assert_eq!(sorted(shown), sorted(expected.iter().cloned()), "{tool}");
        }
    }

    let accounts = app.all_accounts(person).await;
    let balances = app.balances(person, &accounts).await;
    let answer = mcp.call("list_accounts", json!({})).await;
    let rows = list(&answer, "accounts");
    assert_eq!(rows.len(), accounts.len());
    let connections = list(&answer, "connections");
    assert_eq!(connections.len(), person.connections.len());
    for (row, account) in rows.iter().zip(&accounts) {
        let mut balances = balances.iter();
        let balance = balances.find(|balance| balance.account_id == account.id);
        let balance = balance.unwrap();
        let expected = json!({
            "id": account.id, "connection_id": account.connection_id, "type": account.r#type,
            "number": account.account_number, "current_balance": balance.current_balance,
            "available_balance": balance.available_balance,
        });
        assert_fields(row, &expected);
    }
    app.reset_calls();
    let without = json!({"include_balances": false});
    let answer = mcp.call("list_accounts", without).await;
    for row in list(&answer, "accounts") {
        assert_eq!(row["current_balance"], Value::Null);
    }
    assert_eq!(app.fiskil().total_calls(), 0);
}

/// Rows as lines, in an order of their own.
fn sorted(rows: impl Iterator<Item = Value>) -> Vec<String> {
    let mut lines: Vec<String> = rows.map(|row| row.to_string()).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn answers_end_at_their_size_and_go_on() {
    let app = App::start(Setup::with_rows(1_500)).await;
    let mcp = Mcp::new(&app, &app.olivia.key);
    let arguments = json!({"from": "2000-01-01", "limit": 500});
    let result = mcp.result("list_transactions", arguments.clone()).await;
    let shown = result["structuredContent"]["shown"].as_u64().unwrap();
    assert!((40..500).contains(&shown), "{shown} rows");
    let size = result.to_string().len();
    assert!(size > 36_000, "the size is used: {size} bytes");
    let text = result["content"][0]["text"].as_str().unwrap();
    let cursor = result["structuredContent"]["next_cursor"].as_str().unwrap();
    // The text says how to go on.
    assert_has(text.lines().next().unwrap(), cursor);
    let begin = format!("{shown} of at least {} transactions", shown + 1);
    assert_starts(text, &begin);
    let (rows, answers) = mcp
        .rows("list_transactions", "transactions", arguments)
        .await;
    assert!(rows.len() > 1_500 && answers > 10);
    let month = mcp.call("list_transactions", json!({})).await;
    let counted = v1_transactions(&app, &app.olivia, None).await.len();
    assert_eq!(month["total"], counted, "a short range is counted");
}

async fn failing_connection_leaves_the_others(app: &App, person: &Person) {
    // Longer than balances are cached.
    app.advance_own_clock(SignedDuration::from_mins(6));
    let mcp = Mcp::new(app, &person.key);
    app.bank("akahu")
        .add_fault(Fault::status(503).at("/v1/").times(1000));
    let answer = mcp.call("list_transactions", json!({})).await;
    assert!(answer["shown"].as_u64().unwrap() > 0, "{answer}");
    let problems = list(&answer, "problems");
    assert!(!list(&problems[0], "account_ids").is_empty(), "{answer}");
    assert_has(problems[0]["message"].as_str().unwrap(), "call again in");
    assert!(answer["total"].is_null() && answer["at_least"].is_u64());
    let summary = mcp.call("summarize_transactions", json!({})).await;
    assert_eq!(summary["complete"], false);
    assert!(summary["rows_read"].as_u64().unwrap() > 0);
    assert_eq!(list(&summary, "problems").len(), problems.len());
    let of_akahu = problems
        .iter()
        .flat_map(|problem| list(problem, "account_ids"));
    let of_akahu: Vec<&Value> = of_akahu.collect();
    for tool in ["list_transactions", "summarize_transactions"] {
        let result = mcp.result(tool, json!({ "account_ids": of_akahu })).await;
        let text = result["content"][0]["text"].to_string();
        assert_has(&text, "NOT complete");
        assert_has(&text, "of the last 30 days");
        assert_has(&text, "does not respond");
        assert_lacks(&text, "shorter range");
    }
    let accounts = mcp.call("list_accounts", json!({})).await;
    let mut rows = list(&accounts, "accounts").iter();
    assert!(rows.any(|row| row["current_balance"].is_string()));
    assert!(!list(&accounts, "problems").is_empty());
    app.clear_faults();
    let consent = &person.connections[0];
    app.set_consent(consent, ConsentState::Revoked).await;
    let answer = mcp.call("list_transactions", json!({})).await;
    let text = answer["problems"].to_string();
    assert_has(&text, "must reconnect");
}

#[tokio::test]
async fn plan_and_limits_are_those_of_v1() {
    let app = App::start(Setup::with(|settings| {
        settings.api_context.live_per_minute = 2;
        settings.api_context.balances_per_minute = 1;
    }))
    .await;
    let ben = Mcp::new(&app, &app.ben.key);
    let text = ben.failure("list_holdings", json!({})).await;
    assert_has(&text, "Professional plan");
    let summary = ben.call("summarize_transactions", json!({})).await;
    assert_eq!(summary["complete"], true);
    let text = ben.failure("list_transactions", json!({})).await;
    assert_eq!(text, "Too many requests: call again in 30 seconds");
    // One limit for both.
    let rejected = app.get_as(&app.ben.key, "/v1/transactions").await;
    assert_eq!(rejected.status, 429);
    ben.call("list_accounts", json!({})).await;
    let text = ben.failure("list_accounts", json!({})).await;
    assert_has(&text, "call again in 60 seconds");
    let without = json!({"include_balances": false});
    ben.call("list_accounts", without).await;
    let saver = app.add_person("saver@example.com", Plan::Saver, &[]).await;
    let answer = Mcp::new(&app, &saver.key).legacy("ping", json!({})).await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.json()["error"]["code"], 403);
}

async fn bad_arguments_say_what_to_send(app: &App, mcp: &Mcp<'_>) {
    let bad = json!({"from": "yesterday", "limit": 1000, "direction": "out", "min_amount": 5, "account": "x"});
    let text = mcp.failure("list_transactions", bad).await;
    for part in [
        "from: must be a day",
        "limit: must be an integer between 1 and 500",
        "direction: must be one of credit, debit",
        "min_amount: must be a decimal number",
        "account: is not an argument",
    ] {
        assert_has(&text, part);
    }
    // A null is as no argument, whatever its name.
    for tool in ["list_transactions", "summarize_transactions"] {
        mcp.call(tool, json!({"account": null, "from": null})).await;
    }
    let foreign = app.accounts_of(&app.ben.connections[0]).await[0].id.clone();
    let unknown = "0191e7a0-7c3b-7def-8000-00aabbccddee";
    app.reset_calls();
    for tool in [
        "list_transactions",
        "summarize_transactions",
        "list_holdings",
        "list_trades",
    ] {
        let of = |id: &str| json!({"account_ids": [id]});
        let answer = mcp.failure(tool, of(&foreign)).await;
        assert_has(&answer, "do not exist");
        for id in [unknown, "mine"] {
            assert_eq!(mcp.failure(tool, of(id)).await, answer);
        }
    }
    // No provider is called for another user's ids.
    assert_eq!(app.fiskil().total_calls(), 0);
    let own = &app.accounts_of(&app.olivia.connections[0]).await[0].id;
    let arguments = json!({"account_ids": [own]});
    let text = mcp.failure("list_holdings", arguments).await;
    assert_has(&text, "Use list_transactions");
}
