//! Subscriptions and keys of webhooks (akahu.md 7). Nothing is delivered yet.

use std::sync::OnceLock;

use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use axum::extract::Path;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::call::{AppCall, UserCall, check_id, done, iso, item, items, json};
use super::errors::Failure;
use super::ids;

const TYPES: [&str; 5] = ["TOKEN", "ACCOUNT", "TRANSACTION", "TRANSFER", "PAYMENT"];
const STATUSES: [&str; 3] = ["SENT", "FAILED", "RETRY"];
/// Where the app's webhooks go: agreed with Akahu out of band, so invented here.
const URL: &str = "https://app.example.com/webhooks/akahu";
/// The key that signs now: an integer, larger ones are newer.
const KEY_ID: u64 = 1;

/// A subscription of a user's.
pub(super) struct Hook {
    id: String,
    kind: String,
    state: Option<String>,
    created_at: Timestamp,
}

impl Hook {
    fn shown(&self) -> Shown<'_> {
        Shown {
            _id: &self.id,
            kind: &self.kind,
            state: self.state.as_deref(),
            url: URL,
            created_at: iso(self.created_at),
            updated_at: iso(self.created_at),
        }
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    _id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a str>,
    url: &'static str,
    created_at: String,
    updated_at: String,
}

#[derive(Deserialize)]
struct Subscription {
    webhook_type: String,
    state: Option<String>,
}

#[derive(Serialize)]
struct Subscribed<'a> {
    success: bool,
    item_id: &'a str,
}

/// Subscribes to one type of a user's events.
pub(super) async fn subscribe(call: UserCall) -> Result<Response, Failure> {
    let asked: Option<Subscription> = serde_json::from_slice(call.json_body()?).ok();
    let asked = asked.filter(|asked| TYPES.contains(&asked.webhook_type.as_str()));
    let asked = asked.ok_or_else(|| Failure::invalid("Invalid webhook_type"))?;
    let hook = Hook { id: ids::random("hook_"), kind: asked.webhook_type, state: asked.state, created_at: call.now };
    let answer = json(&Subscribed { success: true, item_id: &hook.id });
    call.akahu.store.write().users[call.user].hooks.push(hook);
    Ok(answer)
}

/// A user's subscriptions. None was ever called, so `last_called_at` is not there: ours.
pub(super) async fn list(call: UserCall) -> Response {
    let store = call.akahu.store.read();
    items(store.users[call.user].hooks.iter().map(Hook::shown).collect::<Vec<_>>())
}

/// Ends a subscription.
pub(super) async fn unsubscribe(Path(id): Path<String>, call: UserCall) -> Result<Response, Failure> {
    check_id("hook_", &id)?;
    let hooks = &mut call.akahu.store.write().users[call.user].hooks;
    let index = hooks.iter().position(|hook| hook.id == id).ok_or_else(Failure::not_found)?;
    hooks.remove(index);
    Ok(done())
}

/// What was delivered: nothing yet.
pub(super) async fn events(call: AppCall) -> Result<Response, Failure> {
    if call.query.get("status").is_some_and(|status| !STATUSES.contains(&status)) {
        return Err(Failure::invalid("queryParams.status must be one of SENT, FAILED, RETRY"));
    }
    call.instant("start")?;
    call.instant("end")?;
    Ok(items(Vec::<()>::new()))
}

/// The key of webhook signatures. Made when it is first asked for, because that takes a while.
#[derive(Default)]
pub(super) struct Keys(OnceLock<KeyPair>);

impl Keys {
    /// The public key in PEM (PKCS#1).
    fn public(&self) -> String {
        let pair = self.0.get_or_init(|| KeyPair::generate(KeySize::Rsa2048).expect("a key can be made"));
        let text = STANDARD.encode(pair.public_key());
        let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN RSA PUBLIC KEY-----\n{}\n-----END RSA PUBLIC KEY-----\n", lines.join("\n"))
    }
}

/// The public key of that number; there is one.
pub(super) async fn key(Path(id): Path<String>, call: AppCall) -> Result<Response, Failure> {
    let id: u64 = id.parse().map_err(|_| Failure::invalid("pathParams.id must be an integer"))?;
    if id != KEY_ID {
        return Err(Failure::not_found());
    }
    let akahu = call.akahu;
    let key = tokio::task::spawn_blocking(move || akahu.keys.public()).await;
    key.map(item).map_err(|_| Failure::of_status(StatusCode::INTERNAL_SERVER_ERROR))
}
