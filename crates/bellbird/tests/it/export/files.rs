//! What a client asks for and gets: rows, headers, errors and limits.

use std::collections::BTreeSet;

use bellbird_domain::Plan;
use reqwest::Method;
use serde_json::{Value, json};

use super::json_lines;
use crate::support::harness::{App, Person, Setup};
use crate::support::process::text;
use crate::support::words::{assert_has, assert_starts};

/// Every file, with the plan that it needs.
const FILES: [(&str, &str); 10] = [
    (
        "transactions.csv",
        "text/csv; charset=utf-8; header=present",
    ),
    ("transactions.jsonl", "application/x-ndjson"),
    ("transactions.ofx", "application/x-ofx"),
    ("transactions.qif", "application/qif; charset=utf-8"),
    ("transactions.journal", "text/plain; charset=utf-8"),
    ("transactions.beancount", "text/plain; charset=utf-8"),
    ("trades.csv", "text/csv; charset=utf-8; header=present"),
    ("trades.jsonl", "application/x-ndjson"),
    ("holdings.csv", "text/csv; charset=utf-8; header=present"),
    ("holdings.jsonl", "application/x-ndjson"),
];

/// The rows of a file of JSON Lines.
async fn exported(app: &App, key: &str, file: &str) -> Vec<Value> {
    let answer = app.export(key, file).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    json_lines(&answer.text)
}

/// A bank account or a brokerage account of a user, with its connection.
struct Place {
    account: String,
    connection: String,
}

/// All rows of a list of `/v1`.
async fn rows_of_v1(app: &App, key: &str, path: &str) -> Vec<Value> {
    let mut rows = Vec::new();
    loop {
        // Holdings have no windows.
        let window = if path.contains("holdings") {
            String::new()
        } else {
            format!("&limit=500&offset={}", rows.len())
        };
        let page = app.get_as(key, &format!("{path}{window}")).await;
        rows.extend(page.data());
        if page.json()["pagination"]["hasMore"] != true {
            return rows;
        }
    }
}

/// Compares without printing all rows.
fn assert_same_rows(left: &[Value], right: &[Value]) {
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        assert_eq!(left, right);
    }
}

async fn busiest(app: &App) -> Place {
    let (account, _) = app.busiest().await;
    Place {
        account: account.id,
        connection: account.connection_id,
    }
}

#[tokio::test]
async fn rows_and_errors_are_those_of_v1() {
    let app = App::start(Setup::with_rows(300)).await;
    let bank = busiest(&app).await;
    wrong_parameters_say_what_to_do(&app, &bank).await;
    unknown_parameters_are_named(&app, &bank).await;
    another_users_ids_are_unknown_ids(&app, &bank).await;
    assert_eq!(app.transaction_calls(), 0, "no provider is called");
    let Place {
        account,
        connection,
    } = &bank;
    let range = "from=2000-01-01&to=2026-11-19";
    let of_account = format!("connectionId={connection}&accountId={account}&{range}");
    let of_connection = format!("connectionId={connection}&{range}");
    let key = &app.olivia.key;
    for query in [of_account, of_connection] {
        let expected = rows_of_v1(&app, key, &format!("/v1/transactions?{query}")).await;
        assert!(expected.len() > 200);
        let file = exported(&app, key, &format!("transactions.jsonl?{query}")).await;
        assert_same_rows(&file, &expected);
    }

    // Without ids, those of all bank accounts.
    let accounts = |rows: &[Value]| -> BTreeSet<String> {
        let ids = rows.iter().map(|row| text(row, "accountId").to_owned());
        ids.collect()
    };
    let mut expected = Vec::new();
    for connection in &app.olivia.connections {
        let query = format!("connectionId={}&from=2000-01-01", connection.id);
        expected.extend(rows_of_v1(&app, key, &format!("/v1/transactions?{query}")).await);
    }
    let file = app.export(key, "transactions.jsonl?from=2000-01-01").await;
    let rows = json_lines(&file.text);
    assert_eq!(rows.len(), expected.len());
    assert_eq!(accounts(&rows), accounts(&expected));
    assert!(accounts(&rows).len() > 1);
    let name = "attachment; filename=\"transactions_2000-01-01_2026-11-20.jsonl\"";
    assert_eq!(file.header("content-disposition"), Some(name));

    // Unless the format cannot hold them.
    let file = format!("transactions.qif?accountId={account}");
    let message = app.export(key, &file).await.error(400);
    assert_has(&message, "more than two decimals");
    assert_has(&message, "take ofx or csv");
    let investor = app.person_at("snaptrade").await;
    tables_have_the_rows_of_v1(&app, &investor).await;
}

#[tokio::test]
async fn every_file_has_its_type_its_name_and_options() {
    let app = App::start(Setup::with_rows(50)).await;
    let bank = busiest(&app).await;
    let investor = app.person_at("snaptrade").await;
    let broker = &investor.connections[0];
    let broker_account = &app.accounts_of(broker).await[0];
    for (file, content_type) in FILES {
        let is_bank = file.starts_with("transactions");
        let (key, account) = if is_bank {
            (&app.olivia.key, &bank.account)
        } else {
            (&investor.key, &broker_account.id)
        };
        // Before the rows whose amounts have three decimals, which QIF cannot say.
        let range = if is_bank { "&from=2026-11-19" } else { "" };
        let path = format!("/v1/export/{file}?accountId={account}{range}");
        for method in [Method::GET, Method::HEAD] {
            app.reset_calls();
            let answer = app.method_as(method.clone(), key, &path).await;
            assert_eq!(answer.status, 200, "{method} {file}: {}", answer.text);
            assert_eq!(answer.header("content-type"), Some(content_type), "{file}");
            assert_eq!(answer.header("content-length"), None, "{method} {file}");
            assert_eq!(answer.header("cache-control"), Some("private, no-store"));
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
            let name = answer.header("content-disposition").unwrap();
            let (resource, extension) = file.split_once('.').unwrap();
            assert_starts(name, "attachment; filename=\"");
            assert!(name.ends_with(&format!(".{extension}\"")), "{name}");
            assert_eq!(name.contains(&format!("_{resource}_")), !is_bank, "{name}");
            assert_has(name, "2026-11-20");
            let calls = app.fiskil().total_calls() + app.bank("snaptrade").total_calls();
            let is_head = method == Method::HEAD;
            assert_eq!(calls == 0, is_head, "{method} {file}: {calls} calls");
            assert!(answer.text.is_empty() || !is_head, "{file}");
        }
    }

    let csv = async |more: &str| {
        let file = format!("transactions.csv?accountId={}{more}", bank.account);
        app.export(&app.olivia.key, &file).await.text
    };
    let usual = csv("").await;
    for (options, begin) in [
        ("", "id,accountId,"),
        ("&layout=ynab", "Date,Payee,Memo,Outflow,Inflow\r\n"),
        ("&byteOrderMark=true", "\u{feff}id,"),
    ] {
        assert_starts(&csv(options).await, begin);
    }
    let defaults = "&byteOrderMark=false&quoteFormulas=false";
    assert_eq!(csv(defaults).await, usual);
}

async fn tables_have_the_rows_of_v1(app: &App, investor: &Person) {
    let (key, id) = (&investor.key, investor.connections[0].id);
    let sorted = |mut rows: Vec<Value>| {
        rows.sort_by_key(ToString::to_string);
        rows
    };
    for resource in ["trades", "holdings"] {
        let mut rows = rows_of_v1(app, key, &format!("/v1/{resource}?connectionId={id}")).await;
        let lines = exported(app, key, &format!("{resource}.jsonl?connectionId={id}")).await;
        assert_same_rows(&sorted(lines), &sorted(rows.clone()));
        let csv = app
            .export(key, &format!("{resource}.csv?connectionId={id}"))
            .await;
        assert_starts(&csv.text, "id,accountId,accountName,symbol,");
        let account = text(&rows[0], "accountId").to_owned();
        let lines = exported(app, key, &format!("{resource}.jsonl?accountId={account}")).await;
        rows.retain(|row| row["accountId"] == *account);
        assert_same_rows(&sorted(lines), &sorted(rows));
    }
    // The wrong kind of account names the files that it has.
    let account = &app.accounts_of(&investor.connections[0]).await[0].id;
    let file = format!("transactions.ofx?accountId={account}");
    let message = app.export(key, &file).await.error(400);
    assert_has(&message, "take trades or holdings");
}

async fn wrong_parameters_say_what_to_do(
    app: &App,
    Place {
        account,
        connection,
    }: &Place,
) {
    let key = &app.olivia.key;
    let message = async |file: String| app.export(key, &file).await.error(400);
    for file in [
        "transactions.ofx".to_owned(),
        "transactions.qif".to_owned(),
        "transactions.csv?layout=ynab".to_owned(),
        format!("transactions.ofx?connectionId={connection}"),
        format!("transactions.qif?connectionId={connection}"),
        format!("transactions.csv?layout=ynab&connectionId={connection}"),
    ] {
        assert_has(&message(file).await, "add accountId");
    }
    let of_account = format!("accountId={account}");
    for (file, expected) in [
        (
            format!("transactions.csv?{of_account}&layout=wide&byteOrderMark=1"),
            json!([
                "layout: Must be ynab",
                "byteOrderMark: Must be true or false"
            ]),
        ),
        (
            format!("transactions.jsonl?{of_account}&layout=ynab&quoteFormulas=true"),
            json!([
                "layout: Must be given for csv only",
                "quoteFormulas: Must be given for csv only"
            ]),
        ),
    ] {
        let answer = app.export(key, &file).await;
        answer.error(400);
        assert_eq!(answer.details(), expected);
    }
    let no_date = format!("transactions.csv?{of_account}&from=2026-02-30");
    assert_eq!(message(no_date).await, "Invalid date parameters");
    for file in [
        format!("trades.csv?connectionId={connection}"),
        format!("holdings.csv?{of_account}"),
    ] {
        assert_eq!(
            message(file).await,
            "The connection must be a brokerage connection: of a banking connection, take transactions"
        );
    }
    app.export(key, "transactions.pdf").await.error(404);
    app.export(key, "balances.csv").await.error(404);
    let file = "/v1/export/transactions.csv";
    app.method_as(Method::POST, key, file).await.error(405);
}

async fn unknown_parameters_are_named(app: &App, Place { account, .. }: &Place) {
    let unknown = |name: &str, meant: &str| format!("{name}: unknown; did you mean {meant}?");
    let account_id = |name: &str| unknown(name, "accountId");
    let of_none = |name: &str, known: &str| {
        format!("{name}: unknown; known are connectionId, accountId, {known}")
    };
    let options = "byteOrderMark, quoteFormulas, partial";
    let many = "a".repeat(100);
    for (file, names) in [
        (
            format!("transactions.csv?acountId={account}"),
            vec![account_id("acountId")],
        ),
        (
            format!("transactions.jsonl?from=2026-11-01&account={account}&%61ccountid=1&x"),
            vec![
                account_id("account"),
                account_id("accountid"),
                of_none("x", &format!("from, to, layout, {options}")),
            ],
        ),
        (
            "trades.csv?layout=ynab".to_owned(),
            vec![of_none("layout", &format!("from, to, {options}"))],
        ),
        (
            "holdings.csv?from=2026-11-01".to_owned(),
            vec![of_none("from", options)],
        ),
        (
            format!("holdings.csv?{many}=1"),
            vec![of_none(&many[..60], options)],
        ),
        (
            format!("holdings.csv?{}", "x&".repeat(30)),
            vec![of_none("x", options); 20],
        ),
    ] {
        let (key, path) = (&app.olivia.key, format!("/v1/export/{file}"));
        let answer = app.get(&path).await;
        assert_eq!(answer.error(400), "Invalid query parameters");
        assert_eq!(answer.details(), json!(names), "{file}");
        let head = app.method_as(Method::HEAD, key, &path).await;
        assert_eq!(head.status, 400);
    }
}

async fn another_users_ids_are_unknown_ids(
    app: &App,
    Place {
        account,
        connection,
    }: &Place,
) {
    let unknown = "0191e7a0-7c3b-7def-8000-00aabbccddee";
    for (query, id) in [
        ("csv?accountId", account),
        ("csv?connectionId", connection),
        ("jsonl?accountId", account),
        ("jsonl?connectionId", connection),
        ("ofx?accountId", account),
    ] {
        let mut texts = BTreeSet::new();
        for id in [id.as_str(), unknown, "nonsense"] {
            let file = format!("transactions.{query}={id}");
            let answer = app.export(&app.ben.key, &file).await;
            answer.error(404);
            texts.insert(answer.text);
        }
        assert_eq!(texts.len(), 1, "{texts:?}");
    }
    // An own account of another connection.
    let mut connections = app.olivia.connections.iter().map(|own| own.id.to_string());
    let other = connections.find(|id| id != connection).unwrap();
    let file = format!("transactions.csv?connectionId={other}&accountId={account}");
    app.export(&app.olivia.key, &file).await.error(404);
}

#[tokio::test]
async fn key_plan_and_limit_are_those_of_v1() {
    let mut setup = Setup::default();
    setup.settings.api_context.live_per_minute = 2;
    let app = App::start(setup).await;
    let saver = app.add_person("saver@example.com", Plan::Saver, &[]).await;
    for (file, _) in FILES {
        let path = format!("/v1/export/{file}");
        app.get_without_key(&path).await.error(401);
    }
    let bank = async |key: &str| app.export(key, "transactions.csv").await;
    bank(&saver.key).await.error(403);
    let answer = app.export(&app.ben.key, "trades.csv").await;
    answer.error(403);
    assert_eq!(answer.json()["error"]["code"], "professional_required");
    bank(&app.ben.key).await;
    let rejected = bank(&app.ben.key).await;
    rejected.error(429);
    assert!(rejected.header("retry-after").is_some());
}
