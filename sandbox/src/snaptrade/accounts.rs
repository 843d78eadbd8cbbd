//! Accounts, balances and positions (docs/providers/snaptrade.md#accounts to #positions).

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::call::UserCall;
use super::errors::Failure;
use crate::members::Members;
use crate::respond::json as respond;

/// Lists all accounts of the user, or of a connection.
pub(super) async fn list(id: Option<Path<String>>, call: UserCall) -> Result<Response, Failure> {
    let id = id.map(|Path(id)| id);
    let store = call.snaptrade.store.read();
    if let Some(id) = &id {
        store.connection(call.user, id, call.now)?;
    }
    let unlisted = call.snaptrade.unlisted.lock();
    let accounts = store
        .accounts_of(call.user, id.as_deref(), call.now)
        .filter(|account| !unlisted.contains(account.id.as_str()));
    Ok(respond(
        &accounts.map(|account| &account.members).collect::<Vec<_>>(),
    ))
}

/// Lists the balances, one entry per currency.
pub(super) async fn balances(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    let store = call.snaptrade.store.read();
    Ok(respond(&store.account(call.user, &id, call.now)?.balances))
}

/// Lists all positions in one response.
pub(super) async fn positions(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    let store = call.snaptrade.store.read();
    let account = store.account(call.user, &id, call.now)?;
    let as_of = account.as_of.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut body = Members::default();
    body.set("results", &account.positions);
    body.set("data_freshness", &json!({"as_of": as_of}));
    Ok(respond(&body))
}

/// Responds with 410: new customers of SnapTrade no longer get these endpoints
/// (docs/providers/snaptrade.md#api-generations).
pub(super) async fn retired(_: UserCall) -> Failure {
    Failure::of_status(StatusCode::GONE)
}
