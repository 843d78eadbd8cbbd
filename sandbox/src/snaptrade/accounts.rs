//! Accounts in SnapTrade's two formats, balances and positions
//! (docs/providers/snaptrade.md#accounts to #positions).

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::call::UserCall;
use super::errors::Failure;
use super::reference::brokerage_id;
use super::store::{Account, Store};
use crate::members::Members;
use crate::respond::json;

/// The accounts of the user, or of one of the user's connections.
fn chosen<'a>(
    store: &'a Store,
    call: &UserCall,
    connection: Option<&'a str>,
) -> Result<impl Iterator<Item = &'a Account>, Failure> {
    if let Some(id) = connection {
        store.connection(call.user, id, call.now)?;
    }
    Ok(store.accounts_of(call.user, connection, call.now))
}

/// Lists all accounts of the user, or of a connection.
pub(super) async fn list(id: Option<Path<String>>, call: UserCall) -> Result<Response, Failure> {
    let id = id.map(|Path(id)| id);
    let store = call.snaptrade.store.read();
    let unlisted = call.snaptrade.unlisted.lock();
    let accounts = chosen(&store, &call, id.as_deref())?
        .filter(|account| !unlisted.contains(account.id.as_str()));
    Ok(json(
        &accounts.map(|account| &account.members).collect::<Vec<_>>(),
    ))
}

/// Shows one account.
pub(super) async fn show(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    let store = call.snaptrade.store.read();
    Ok(json(&store.account(call.user, &id, call.now)?.members))
}

/// As [`list`], in the newer format.
pub(super) async fn list_tagged(
    id: Option<Path<String>>,
    call: UserCall,
) -> Result<Response, Failure> {
    let id = id.map(|Path(id)| id);
    let store = call.snaptrade.store.read();
    let accounts = chosen(&store, &call, id.as_deref())?;
    Ok(json(&results(
        accounts.map(|account| tagged(&store, account)),
    )))
}

/// Shows one account in the newer format.
pub(super) async fn show_tagged(
    Path(id): Path<String>,
    call: UserCall,
) -> Result<Response, Failure> {
    let store = call.snaptrade.store.read();
    let account = store.account(call.user, &id, call.now)?;
    Ok(json(&tagged(&store, account)))
}

/// Converts an account to the newer format (docs/providers/snaptrade.md#tagged-accounts).
fn tagged(store: &Store, account: &Account) -> Members {
    let old = &account.members;
    let kind = match old.text("account_category").as_deref() {
        Some("DEPOSIT") => "deposit",
        Some("LOC") => "line_of_credit",
        Some("ANNUITY") => "annuity",
        // Also for accounts without a category (docs/providers/snaptrade.md#accounts).
        _ => "investment",
    };
    let mut new = Members::default();
    new.set("kind", &kind);
    new.set("id", &account.id);
    new.set("connection_id", &account.connection_id);
    new.set("display_name", &old.get("name"));
    new.set(
        "masked_account_number",
        &masked(&old.text("number").unwrap_or_default()),
    );
    new.set("institution_account_id", &old.get("institution_account_id"));
    let connection = store.any_connection(&account.connection_id);
    new.set(
        "institution_id",
        &connection.map(|connection| brokerage_id(store.seed, connection.broker)),
    );
    new.set("opening_date", &old.get("opening_date"));
    new.set("raw_type", &old.get("raw_type"));
    new.set("net_value", &member(old.get("balance"), "total"));
    new.set("sync_status", &sync_status(old.get("sync_status"), kind));
    if kind == "investment" {
        let raw_type = old.text("raw_type").unwrap_or_default();
        let cash_or_margin = match raw_type.as_str() {
            "" | "Crypto" => "unknown",
            "Margin" => "margin",
            _ => "cash",
        };
        new.set("funding_date", &old.get("funding_date"));
        new.set("cash_or_margin", &cash_or_margin);
        new.set("is_paper", &old.get("is_paper"));
    }
    new
}

/// Keeps at most the last four characters.
fn masked(number: &str) -> String {
    let skipped = number.chars().count().saturating_sub(4);
    let last: String = number.chars().skip(skipped).collect();
    if number.starts_with('*') {
        number.to_owned()
    } else {
        format!("****{last}")
    }
}

/// A member of an object, with its exact text.
fn member(object: Option<&RawValue>, name: &str) -> Option<Box<RawValue>> {
    let members = Members::parse(object?.get().as_bytes()).ok()?;
    members.get(name).map(RawValue::to_owned)
}

fn sync_status(old: Option<&RawValue>, kind: &str) -> Value {
    let old: Value = old
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    let fetched = &old["holdings"]["last_successful_sync"];
    let mut new = json!({"transactions": old["transactions"], "balances": fetched});
    if kind == "investment" {
        new["orders"] = Value::Null;
        new["positions"] = fetched.clone();
    }
    new
}

/// Lists the balances, one entry per currency.
pub(super) async fn balances(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    let store = call.snaptrade.store.read();
    Ok(json(&store.account(call.user, &id, call.now)?.balances))
}

/// Lists all positions in one response.
pub(super) async fn positions(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    let store = call.snaptrade.store.read();
    let account = store.account(call.user, &id, call.now)?;
    let mut body = results(account.positions.iter().cloned());
    let as_of = account.as_of.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    body.set("data_freshness", &json!({"as_of": as_of}));
    Ok(json(&body))
}

fn results(items: impl Iterator<Item = Members>) -> Members {
    let mut body = Members::default();
    body.set("results", &items.collect::<Vec<_>>());
    body
}

/// Responds with 410: new customers of SnapTrade no longer get these endpoints
/// (docs/providers/snaptrade.md#api-generations).
pub(super) async fn retired(_: UserCall) -> Failure {
    Failure::of_status(StatusCode::GONE)
}
