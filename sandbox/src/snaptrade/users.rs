//! `/snapTrade`: lists, registers and deletes the users of a key
//! (docs/providers/snaptrade.md#users).

use axum::response::Response;
use http::StatusCode;
use serde_json::json;
use uuid::Uuid;

use super::Key;
use super::call::ClientCall;
use super::errors::Failure;
use crate::respond::json;

/// Lists the ids of all users.
pub(super) async fn list(call: ClientCall) -> Response {
    let store = call.snaptrade.store.read();
    json(
        &store
            .users(call.key, call.now)
            .map(|user| user.id.as_str())
            .collect::<Vec<_>>(),
    )
}

/// Registers a user. Only this response contains the secret. The error for a personal key is a
/// sandbox choice.
pub(super) async fn register(call: ClientCall) -> Result<Response, Failure> {
    if call.key == Key::Personal {
        return Err(Failure::not_enabled());
    }
    let id = call
        .text("userId")
        .filter(|id| !id.is_empty())
        .ok_or_else(Failure::unreadable)?;
    let mut store = call.snaptrade.store.write();
    if store.user_mut(call.key, id, call.now).is_some() {
        let detail = format!("User with the following userId already exist: '{id}'");
        return Err(Failure::new(StatusCode::BAD_REQUEST, "1010", detail));
    }
    let secret = Uuid::new_v4().to_string();
    store.add_user(call.key, id, secret.clone());
    Ok(json(&json!({"userId": id, "userSecret": secret})))
}

/// Deletes a user after a delay.
pub(super) async fn delete(call: ClientCall) -> Result<Response, Failure> {
    let id = call.query.get("userId").unwrap_or_default();
    let mut store = call.snaptrade.store.write();
    let number = store
        .user_mut(call.key, id, call.now)
        .ok_or_else(Failure::missing)?
        .number;
    store.delete_user(number, call.now);
    let detail = "User queued for deletion; please wait for webhook for confirmation.";
    Ok(json(
        &json!({"status": "deleted", "detail": detail, "userId": id}),
    ))
}

/// Replaces the secret; the old one is invalid at once.
pub(super) async fn reset_secret(call: ClientCall) -> Result<Response, Failure> {
    let (Some(id), Some(secret)) = (call.text("userId"), call.text("userSecret")) else {
        return Err(Failure::unreadable());
    };
    let mut store = call.snaptrade.store.write();
    let user = store
        .user_mut(call.key, id, call.now)
        .filter(|user| user.secret == secret && !user.revoked);
    let user = user.ok_or_else(Failure::user)?;
    user.secret = Uuid::new_v4().to_string();
    Ok(json(&json!({"userId": id, "userSecret": user.secret})))
}
