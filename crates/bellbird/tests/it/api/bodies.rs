//! The body of every endpoint of `/v1` and of every kind of error, as snapshots. `cargo insta
//! accept` accepts a change.

use bellbird_domain::Plan;
use bellbird_sandbox::{ConsentState, Fault};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::database::execute;
use crate::support::harness::{App, Person, Response, Setup};
use crate::support::redact::redact;

/// A user of one connection at each provider, the broker last.
async fn person_with_all(app: &App) -> Person {
    let all = ["fiskil", "akahu", "snaptrade"].map(|name| app.spare_credentials(name));
    let plan = Plan::Professional;
    app.add_person("all@example.com", plan, &all.each_ref())
        .await
}

/// The status and the body, with the ids replaced in both.
fn shown(path: &str, answer: &Response) -> Value {
    let body = match answer.header("content-type") {
        Some("application/json") => answer.json(),
        _ => answer.text.lines().take(3).collect(),
    };
    let mut headers = serde_json::Map::new();
    for name in [
        "content-type",
        "bellbird-error",
        "retry-after",
        "allow",
        "www-authenticate",
    ] {
        headers.extend(
            answer
                .header(name)
                .map(|value| (name.to_owned(), value.into())),
        );
    }
    json!({"path": path, "status": answer.status.as_u16(), "headers": headers, "body": body})
}

#[tokio::test]
async fn bodies_of_all_endpoints() {
    let app = App::start(Setup::default()).await;
    let person = person_with_all(&app).await;
    let [fiskil, akahu, broker] = [0, 1, 2].map(|at| person.connections[at].id);
    let accounts = app.all_accounts(&person).await;
    let of = |connection: bellbird_domain::ConnectionId| {
        let id = connection.to_string();
        let found = accounts.iter().find(|account| account.connection_id == id);
        &found.expect("an account").id
    };
    let paths = [
        ("health", "/health".to_owned()),
        ("connections", "/v1/connections".to_owned()),
        ("accounts", "/v1/accounts?limit=3".to_owned()),
        ("me", "/v1/me".to_owned()),
        (
            "balances",
            format!(
                "/v1/balances?accountIds={},{},{}",
                of(fiskil),
                of(akahu),
                of(broker)
            ),
        ),
        ("categories", "/v1/categories".to_owned()),
        (
            "transactions_of_fiskil",
            format!("/v1/transactions?connectionId={fiskil}&limit=2"),
        ),
        (
            "transactions_of_akahu",
            format!("/v1/transactions?connectionId={akahu}&limit=2"),
        ),
        ("holdings", format!("/v1/holdings?connectionId={broker}")),
        (
            "trades",
            format!("/v1/trades?connectionId={broker}&limit=2"),
        ),
        (
            "transactions_csv",
            format!("/v1/export/transactions.csv?connectionId={fiskil}&from=2026-11-01"),
        ),
        (
            "transactions_jsonl",
            format!("/v1/export/transactions.jsonl?connectionId={akahu}&from=2026-11-01"),
        ),
        (
            "holdings_csv",
            format!("/v1/export/holdings.csv?connectionId={broker}"),
        ),
        (
            "trades_csv",
            format!("/v1/export/trades.csv?connectionId={broker}"),
        ),
    ];
    for (name, path) in paths {
        let answer = app.get_as(&person.key, &path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        insta::assert_json_snapshot!(name, redact(&shown(&path, &answer)));
    }
}

#[tokio::test]
async fn bodies_of_all_errors() {
    let app = App::start(Setup::with(|settings| {
        settings.api_context.metadata_per_minute = 1;
    }))
    .await;
    let person = person_with_all(&app).await;
    let connection = person.connections[0].id;
    let transactions = format!("/v1/transactions?connectionId={connection}");
    let unknown = "/v1/transactions?connectionId=00000000-0000-4000-8000-000000000000";
    let key = person.key.as_str();
    let mut errors = Vec::new();
    for (key, path) in [
        (key, "/v1/transactions"),
        (key, &format!("{transactions}&from=yesterday&limit=0")),
        ("bb_unknown", "/v1/accounts"),
        (&app.ben.key, "/v1/holdings"),
        (key, "/v1/nothing"),
        (key, unknown),
    ] {
        errors.push(shown(path, &app.get_as(key, path).await));
    }
    errors.push(shown(
        "/v1/accounts",
        &app.method_as(Method::POST, key, "/v1/accounts").await,
    ));
    let long = app
        .get_as(key, &format!("/v1/accounts?x={}", "a".repeat(17_000)))
        .await;
    errors.push(shown("a long path", &long));
    let headers = app
        .http
        .get(format!("{}/v1/accounts", app.url))
        .bearer_auth(key)
        .header("x-long", "a".repeat(70_000));
    errors.push(shown("long headers", &app.send(headers).await));

    app.fiskil().add_fault(Fault::status(503).at("/v1/banking"));
    errors.push(shown(
        "the provider fails",
        &app.get_as(key, &transactions).await,
    ));
    app.clear_faults();
    app.set_consent(&person.connections[0], ConsentState::Revoked)
        .await;
    app.refresh(person.user.id, connection).await;
    errors.push(shown(
        "the consent ended",
        &app.get_as(key, &transactions).await,
    ));

    execute(
        &app.shared.database,
        "UPDATE secrets SET sealed = substr(sealed, 1, 1)",
        "",
    )
    .await;
    let path = format!(
        "/v1/transactions?connectionId={}",
        app.olivia.connections[0].id
    );
    errors.push(shown("the secret cannot be opened", &app.get(&path).await));
    app.get("/v1/accounts").await;
    errors.push(shown("too many requests", &app.get("/v1/accounts").await));
    insta::assert_json_snapshot!("errors", redact(&errors.into()));
}
