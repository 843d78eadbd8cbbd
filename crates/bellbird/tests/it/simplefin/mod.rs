//! The SimpleFIN server, through the real listener. What each client demands is a test of its own
//! in `clients.rs`.

mod claims;
mod clients;
mod days;
mod errors;
mod hostile;
mod mapping;
mod slow;

use bellbird_domain::{SetupToken, UserId};
use bellbird_storage::{NewSetupToken, in_tx};
use jiff::SignedDuration;
use serde_json::Value;

use crate::support::harness::{App, Person, Response};

/// 10:59:00 UTC.
const SECOND_OF_DAY: i64 = 39_540;

/// A setup token that can be claimed for an hour.
async fn new_token(app: &App, user_id: UserId) -> SetupToken {
    let (token, now) = (bellbird_storage::new_setup_token(), app.clock.now());
    let expires_at = now + SignedDuration::from_hours(1);
    let new = NewSetupToken {
        user_id,
        token: &token,
        name: "Actual",
        expires_at,
    };
    in_tx!(app.storage, setup_tokens::insert(&new, now))
        .await
        .unwrap();
    token
}

async fn claim(app: &App, token: &str) -> Response {
    app.send(
        app.http
            .post(format!("{}/simplefin/claim/{token}", app.url)),
    )
    .await
}

/// Claims a new token of the person. Returns the access URL.
async fn access_url(app: &App, person: &Person) -> String {
    let answer = claim(app, new_token(app, person.user.id).await.expose()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text
}

async fn ask_as(app: &App, key: &str, query: &str) -> Response {
    app.send(
        app.http
            .get(format!("{}/simplefin/accounts{query}", app.url))
            .basic_auth("bellbird", Some(key)),
    )
    .await
}

/// What Olivia's client gets.
async fn ask(app: &App, query: &str) -> Response {
    ask_as(app, &app.olivia.key, query).await
}

/// Olivia's account set.
async fn account_set(app: &App, query: &str) -> Value {
    set_of(app, &app.olivia, query).await
}

async fn set_of(app: &App, person: &Person, query: &str) -> Value {
    let answer = ask_as(app, &person.key, query).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name]
        .as_array()
        .unwrap_or_else(|| panic!("{name} is no array in {value}"))
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} is no text in {value}"))
}

fn rows(set: &Value) -> Vec<Value> {
    list(set, "accounts")
        .iter()
        .flat_map(|account| list(account, "transactions"))
        .cloned()
        .collect()
}

/// The second that a row of this day has.
fn posted(day: &str) -> i64 {
    let day: jiff::civil::Date = day.parse().unwrap();
    day.at(0, 0, 0, 0)
        .in_tz("UTC")
        .unwrap()
        .timestamp()
        .as_second()
        + SECOND_OF_DAY
}

/// An error that no client takes for an account set.
fn assert_plain(answer: &Response, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; charset=utf-8"),
        "{}",
        answer.text
    );
    assert!(
        serde_json::from_str::<Value>(&answer.text).is_err(),
        "{}",
        answer.text
    );
    assert!(!answer.text.is_empty() && answer.header("x-request-id").is_some());
}
