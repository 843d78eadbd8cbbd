//! `/snapTrade`: registers and deletes users (docs/providers/snaptrade.md#users).

use axum::response::Response;
use http::StatusCode;
use serde_json::json;
use uuid::Uuid;

use super::call::ClientCall;
use super::errors::Failure;
use crate::respond::json;

/// Registers a user. Only this response contains the secret.
pub(super) async fn register(call: ClientCall) -> Result<Response, Failure> {
    let id = call
        .text("userId")
        .filter(|id| !id.is_empty())
        .ok_or_else(Failure::unreadable)?;
    let mut store = call.snaptrade.store.write();
    if store.user_mut(id, call.now).is_some() {
        let detail = format!("User with the following userId already exist: '{id}'");
        return Err(Failure::new(StatusCode::BAD_REQUEST, "1010", detail));
    }
    let secret = Uuid::new_v4().to_string();
    store.add_user(id, secret.clone());
    Ok(json(&json!({"userId": id, "userSecret": secret})))
}

/// Deletes a user after a delay.
pub(super) async fn delete(call: ClientCall) -> Result<Response, Failure> {
    let id = call.query.get("userId").unwrap_or_default();
    let mut store = call.snaptrade.store.write();
    let number = store
        .user_mut(id, call.now)
        .ok_or_else(Failure::missing)?
        .number;
    store.delete_user(number, call.now);
    let detail = "User queued for deletion; please wait for webhook for confirmation.";
    Ok(json(
        &json!({"status": "deleted", "detail": detail, "userId": id}),
    ))
}
