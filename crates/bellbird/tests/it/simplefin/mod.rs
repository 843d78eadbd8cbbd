//! The SimpleFIN server, through the real listener. What each client demands is a function of its
//! own in `clients.rs`.

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
use serde::Deserialize;
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
    let url = format!("{}/simplefin/claim/{token}", app.url);
    app.send(app.http.post(url)).await
}

/// Claims a new token of the person. Returns the access URL.
async fn access_url(app: &App, person: &Person) -> String {
    let answer = claim(app, new_token(app, person.user.id).await.expose()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text
}

async fn ask_as(app: &App, key: &str, query: &str) -> Response {
    let url = format!("{}/simplefin/accounts{query}", app.url);
    let request = app.http.get(url).basic_auth("bellbird", Some(key));
    app.send(request).await
}

/// What Olivia's client gets.
async fn ask(app: &App, query: &str) -> Response {
    ask_as(app, &app.olivia.key, query).await
}

/// Olivia's account set.
async fn account_set(app: &App, query: &str) -> AccountSet {
    set_of(app, &app.olivia, query).await
}

async fn set_of(app: &App, person: &Person, query: &str) -> AccountSet {
    let answer = ask_as(app, &person.key, query).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.read()
}

/// What a client reads of an account set.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
struct AccountSet {
    accounts: Vec<SetAccount>,
    connections: Vec<SetConnection>,
    errors: Vec<String>,
    errlist: Vec<SetError>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SetAccount {
    id: String,
    name: String,
    currency: String,
    balance: String,
    available_balance: Option<String>,
    balance_date: i64,
    org: Org,
    #[serde(rename = "conn_id")]
    conn_id: String,
    transactions: Vec<SetRow>,
    holdings: Vec<Value>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Org {
    domain: String,
    name: String,
    sfin_url: String,
    id: String,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct SetConnection {
    conn_id: String,
    name: String,
    org_id: String,
    sfin_url: String,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct SetError {
    code: String,
    msg: String,
    conn_id: Option<String>,
    account_id: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct SetRow {
    id: String,
    posted: i64,
    transacted_at: i64,
    amount: String,
    currency: String,
    description: String,
    payee: String,
    memo: String,
    mcc: Option<String>,
    pending: bool,
    extra: RowExtra,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct RowExtra {
    datetime: String,
    category: Option<String>,
}

impl AccountSet {
    fn rows(&self) -> Vec<&SetRow> {
        let accounts = self.accounts.iter();
        accounts.flat_map(|account| &account.transactions).collect()
    }

    fn ids(&self) -> Vec<&str> {
        self.accounts.iter().map(|account| &*account.id).collect()
    }
}

/// The second that a row of this day has.
fn posted(day: &str) -> i64 {
    let day: jiff::civil::Date = day.parse().unwrap();
    let midnight = day.at(0, 0, 0, 0).in_tz("UTC").unwrap();
    midnight.timestamp().as_second() + SECOND_OF_DAY
}

/// An error that no client takes for an account set.
#[track_caller]
fn assert_plain(answer: &Response, status: u16) {
    let text = &answer.text;
    assert_eq!(answer.status, status, "{text}");
    let content_type = answer.header("content-type");
    assert_eq!(content_type, Some("text/plain; charset=utf-8"), "{text}");
    assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
    assert!(!text.is_empty() && answer.header("x-request-id").is_some());
}
