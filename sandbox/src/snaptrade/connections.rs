//! `/authorizations`: lists, refreshes and deletes connections
//! (docs/providers/snaptrade.md#connections and #disabled-connections).

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::call::UserCall;
use super::errors::Failure;
use super::reference::brokerage;
use super::store::Connection;
use crate::clock::after;
use crate::respond::json;

/// How soon after a refresh another one gets 429, in seconds (a sandbox choice).
const REFRESH_SECONDS: i64 = 60;

fn view(base_url: &str, seed: u64, connection: &Connection) -> Value {
    let created = connection.created_at.to_string();
    json!({
        "id": connection.id,
        "created_date": created,
        "updated_date": created,
        "brokerage": brokerage(base_url, seed, connection.broker),
        "name": connection.name,
        "type": "read",
        "disabled": connection.disabled_at.is_some(),
        "disabled_date": connection.disabled_at.map(|at| at.to_string()),
        "meta": {},
        "is_eligible_for_payout": false,
        "data_freshness_mode": {"institution": "realtime", "snaptrade": "delayed"},
    })
}

/// Lists the user's connections.
pub(super) async fn list(call: UserCall) -> Response {
    let store = call.snaptrade.store.read();
    let base_url = &call.snaptrade.access.base_url;
    let connections = store.connections_of(call.user, call.now);
    json(
        &connections
            .map(|connection| view(base_url, store.seed, connection))
            .collect::<Value>(),
    )
}

/// Shows one connection.
pub(super) async fn show(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    let store = call.snaptrade.store.read();
    let connection = store.connection(call.user, &id, call.now)?;
    Ok(json(&view(
        &call.snaptrade.access.base_url,
        store.seed,
        connection,
    )))
}

/// Deletes a connection with a delay.
pub(super) async fn delete(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    let mut store = call.snaptrade.store.write();
    store
        .connection_mut(call.user, &id, call.now)?
        .delete(call.now);
    let detail = "Connection queued for deletion; please wait for webhook for confirmation.";
    Ok(json(&json!({"detail": detail, "connection_id": id})))
}

/// Requests fresh positions and balances. The order of the checks is a sandbox choice.
pub(super) async fn refresh(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    let now = call.now;
    let mut store = call.snaptrade.store.write();
    let connection = store.connection_mut(call.user, &id, now)?;
    if connection.disabled_at.is_some() {
        return Err(Failure::disabled());
    }
    let rest = SignedDuration::from_secs(REFRESH_SECONDS);
    if let Some(next_refresh_at) = connection.refreshed_at.map(|at| after(at, rest))
        && now < next_refresh_at
    {
        let detail = "Connection refreshed too recently. Please try again later.";
        let seconds = next_refresh_at.duration_since(now).as_secs() + 1;
        let failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, "throttled", detail);
        return Err(Failure {
            retry_after: Some(seconds),
            ..failure
        });
    }
    connection.refreshed_at = Some(now);
    for account in store.accounts_at(&id) {
        account.as_of = now;
    }
    let detail = format!("Connection {id} scheduled for refresh");
    Ok(json(&json!({"detail": detail})))
}
