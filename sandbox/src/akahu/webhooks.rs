//! Webhook subscriptions and the signing keys (docs/providers/akahu.md#webhooks, #webhook-keys).
//! The events themselves are in `webhook_events.rs`.

use std::sync::LazyLock;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use axum::extract::Path;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{AppCall, UserCall, check_id};
use super::errors::Failure;
use super::ids;
use super::respond::{done, iso, item, items};
use super::store::WebhookSubscription;
use crate::respond::json as respond;
use crate::webhooks::Delivery;

const TYPES: [&str; 5] = ["TOKEN", "ACCOUNT", "TRANSACTION", "TRANSFER", "PAYMENT"];
/// The app's webhook URL until a test sets one. Apps agree it with Akahu out of band, so this one
/// is invented.
const URL: &str = "https://app.example.com/webhooks/akahu";

impl WebhookSubscription {
    fn view(&self, url: &str, deliveries: &[Delivery]) -> Value {
        let own = deliveries
            .iter()
            .filter(|delivery| delivery.event.subscription.as_ref() == Some(&self.id));
        let called = own
            .filter_map(|delivery| delivery.attempts.last())
            .map(|attempt| attempt.at)
            .max();
        let created_at = iso(self.created_at);
        let mut shown = json!({
            "_id": self.id, "type": self.kind, "url": url, "created_at": created_at,
            "updated_at": created_at,
        });
        if let Some(state) = &self.state {
            shown["state"] = state.as_str().into();
        }
        if let Some(at) = called {
            shown["last_called_at"] = iso(at).into();
        }
        shown
    }
}

#[derive(Deserialize)]
struct SubscribeRequest {
    webhook_type: String,
    state: Option<String>,
}

/// Subscribes to one type of a user's events.
pub(super) async fn subscribe(call: UserCall) -> Result<Response, Failure> {
    let request: Option<SubscribeRequest> = serde_json::from_slice(call.json_body()?).ok();
    let request = request.filter(|request| TYPES.contains(&request.webhook_type.as_str()));
    let request = request.ok_or_else(|| Failure::invalid("Invalid webhook_type"))?;
    let subscription = WebhookSubscription {
        id: ids::random("hook_"),
        kind: request.webhook_type,
        state: request.state,
        created_at: call.now,
    };
    let response = respond(&json!({"success": true, "item_id": subscription.id}));
    call.akahu.store.write().users[call.user]
        .subscriptions
        .push(subscription);
    Ok(response)
}

/// Lists a user's subscriptions. `last_called_at` is absent before the first call, which is a
/// sandbox choice.
pub(super) async fn list(call: UserCall) -> Response {
    let (url, deliveries) = (call.akahu.webhooks.url(), call.akahu.webhooks.deliveries());
    let store = call.akahu.store.read();
    let shown = store.users[call.user]
        .subscriptions
        .iter()
        .map(|subscription| subscription.view(url.as_deref().unwrap_or(URL), &deliveries));
    items(shown)
}

/// Ends a subscription.
pub(super) async fn unsubscribe(
    Path(id): Path<String>,
    call: UserCall,
) -> Result<Response, Failure> {
    check_id("hook_", &id)?;
    let subscriptions = &mut call.akahu.store.write().users[call.user].subscriptions;
    let index = subscriptions
        .iter()
        .position(|subscription| subscription.id == id)
        .ok_or_else(Failure::not_found)?;
    subscriptions.remove(index);
    Ok(done())
}

/// Ids are integers that grow with each rotation. The sandbox's key is never rotated.
const KEY_ID: u64 = 2;
/// The signing key, generated on first use, because RSA keys take a while.
static KEY: LazyLock<KeyPair> =
    LazyLock::new(|| KeyPair::generate(KeySize::Rsa2048).expect("a key can be made"));

/// The public key as PKCS#1 PEM.
fn public_key() -> String {
    let text = STANDARD.encode(KEY.public_key());
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    format!(
        "-----BEGIN RSA PUBLIC KEY-----\n{}\n-----END RSA PUBLIC KEY-----\n",
        lines.join("\n")
    )
}

/// Signs a body and returns the key's id and the signature in base64.
pub(super) fn sign(body: &[u8]) -> (u64, String) {
    let mut signature = vec![0; KEY.public_modulus_len()];
    let signed = KEY.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        body,
        &mut signature,
    );
    signed.expect("a key signs whatever it is given");
    (KEY_ID, STANDARD.encode(signature))
}

/// Shows the public key with this id if it is the current one.
pub(super) async fn key(Path(id): Path<String>, _: AppCall) -> Result<Response, Failure> {
    let id: u64 = id
        .parse()
        .map_err(|_| Failure::invalid("pathParams.id must be an integer"))?;
    if (1..KEY_ID).contains(&id) {
        return Err(Failure::invalid("This key has expired"));
    }
    if id != KEY_ID {
        return Err(Failure::not_found());
    }
    let key = tokio::task::spawn_blocking(public_key).await;
    key.map(item)
        .map_err(|_| Failure::of_status(StatusCode::INTERNAL_SERVER_ERROR))
}
