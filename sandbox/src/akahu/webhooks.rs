//! Webhook subscriptions, the list of deliveries, and the signing keys
//! (docs/providers/akahu.md#webhooks,
//! #webhook-keys). The events themselves are in `webhook_events.rs`.

use std::sync::{Arc, OnceLock};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::call::{AppCall, UserCall, check_id};
use super::errors::Failure;
use super::respond::{done, iso, item, items, json};
use super::store::WebhookSubscription;
use super::{Akahu, ids};
use crate::members::Members;
use crate::webhooks::{Delivery, DeliveryState};

const TYPES: [&str; 5] = ["TOKEN", "ACCOUNT", "TRANSACTION", "TRANSFER", "PAYMENT"];
const STATUSES: [&str; 3] = ["SENT", "FAILED", "RETRY"];
/// The app's webhook URL until a test sets one. Apps agree it with Akahu out of band, so this one
/// is invented.
const URL: &str = "https://app.example.com/webhooks/akahu";
/// How many days of deliveries a call without `start` lists.
const EVENT_DAYS: i64 = 30;

impl WebhookSubscription {
    fn view<'a>(&'a self, url: &'a str, deliveries: &[Delivery]) -> SubscriptionView<'a> {
        let own = deliveries
            .iter()
            .filter(|delivery| delivery.event.subscription.as_ref() == Some(&self.id));
        let called = own
            .filter_map(|delivery| delivery.attempts.last())
            .map(|attempt| attempt.at)
            .max();
        SubscriptionView {
            _id: &self.id,
            kind: &self.kind,
            state: self.state.as_deref(),
            url,
            created_at: iso(self.created_at),
            updated_at: iso(self.created_at),
            last_called_at: called.map(iso),
        }
    }
}

#[derive(Serialize)]
struct SubscriptionView<'a> {
    _id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a str>,
    url: &'a str,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_called_at: Option<String>,
}

#[derive(Deserialize)]
struct SubscribeRequest {
    webhook_type: String,
    state: Option<String>,
}

#[derive(Serialize)]
struct SubscribeResponse<'a> {
    success: bool,
    item_id: &'a str,
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
    let response = json(&SubscribeResponse {
        success: true,
        item_id: &subscription.id,
    });
    call.akahu.store.write().users[call.user]
        .subscriptions
        .push(subscription);
    Ok(response)
}

/// Lists a user's subscriptions. `last_called_at` is absent before the first call, which is a
/// sandbox choice.
pub(super) async fn list(call: UserCall) -> Response {
    let (url, deliveries) = (
        call.akahu.webhook_queue.url(),
        call.akahu.webhook_queue.deliveries(),
    );
    let store = call.akahu.store.read();
    let shown = store.users[call.user]
        .subscriptions
        .iter()
        .map(|subscription| subscription.view(url.as_deref().unwrap_or(URL), &deliveries));
    items(shown.collect::<Vec<_>>())
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

/// A delivery as Akahu lists it (docs/providers/akahu.md#webhooks).
#[derive(Serialize)]
struct DeliveryView {
    _id: String,
    /// The name in Akahu's OpenAPI document.
    #[serde(skip_serializing_if = "Option::is_none")]
    hook: Option<String>,
    /// The name in the official client's types.
    #[serde(skip_serializing_if = "Option::is_none")]
    _hook: Option<String>,
    status: &'static str,
    payload: Members,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failed_at: Option<String>,
}

/// Lists attempted deliveries, oldest first (a sandbox choice). A delivery before its first attempt
/// has no documented state and is left out.
pub(super) async fn events(call: AppCall) -> Result<Response, Failure> {
    let status = call.query.get("status");
    if status.is_some_and(|status| !STATUSES.contains(&status)) {
        return Err(Failure::invalid(
            "queryParams.status must be one of SENT, FAILED, RETRY",
        ));
    }
    let (start, end) = (call.instant("start")?, call.instant("end")?);
    let now = call.akahu.controls.clock.now();
    let start =
        start.unwrap_or_else(|| now.as_millisecond().saturating_sub(EVENT_DAYS * 86_400_000));
    let in_range = |delivery: &Delivery| {
        let at = delivery.created_at.as_millisecond();
        // Both ends are included (a sandbox choice).
        delivery.repeats.is_none() && at >= start && end.is_none_or(|end| at <= end)
    };
    let all = call
        .akahu
        .webhook_queue
        .deliveries()
        .into_iter()
        .filter(in_range)
        .filter_map(delivery_view);
    Ok(items(
        all.filter(|event| status.is_none_or(|status| event.status == status))
            .collect::<Vec<_>>(),
    ))
}

fn delivery_view(delivery: Delivery) -> Option<DeliveryView> {
    let status = match delivery.state {
        DeliveryState::Sent => "SENT",
        DeliveryState::Retry => "RETRY",
        DeliveryState::Failed => "FAILED",
        DeliveryState::Waiting | DeliveryState::Lost => return None,
    };
    let mut attempts = delivery.attempts.iter().rev();
    let failed = attempts.clone().find(|attempt| attempt.status != Some(200));
    Some(DeliveryView {
        _id: delivery.event.id,
        hook: delivery.event.subscription.clone(),
        _hook: delivery.event.subscription,
        status,
        payload: delivery.event.body,
        created_at: iso(delivery.created_at),
        updated_at: iso(attempts.next()?.at),
        last_failed_at: failed.map(|attempt| iso(attempt.at)),
    })
}

/// The current signing key. Its id is an integer that grows with each rotation.
pub(super) struct Keys(Mutex<Arc<Key>>);

/// Generated on first use, because RSA keys take a while.
struct Key {
    id: u64,
    pair: OnceLock<KeyPair>,
}

impl Default for Keys {
    fn default() -> Self {
        Self(Mutex::new(Key::new(1)))
    }
}

impl Key {
    fn new(id: u64) -> Arc<Self> {
        Arc::new(Self {
            id,
            pair: OnceLock::new(),
        })
    }

    fn pair(&self) -> &KeyPair {
        self.pair
            .get_or_init(|| KeyPair::generate(KeySize::Rsa2048).expect("a key can be made"))
    }

    /// The public key as PKCS#1 PEM.
    fn public(&self) -> String {
        let text = STANDARD.encode(self.pair().public_key());
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
}

impl Keys {
    fn current(&self) -> Arc<Key> {
        Arc::clone(&self.0.lock())
    }

    /// Signs a body and returns the key's id and the signature in base64. The first call generates
    /// the key and takes a while.
    pub(super) fn sign(&self, body: &[u8]) -> (u64, String) {
        let key = self.current();
        let pair = key.pair();
        let mut signature = vec![0; pair.public_modulus_len()];
        let signed = pair.sign(
            &RSA_PKCS1_SHA256,
            &SystemRandom::new(),
            body,
            &mut signature,
        );
        signed.expect("a key signs whatever it is given");
        (key.id, STANDARD.encode(signature))
    }
}

/// Shows the public key with this id if it is the current one.
pub(super) async fn key(Path(id): Path<String>, call: AppCall) -> Result<Response, Failure> {
    let id: u64 = id
        .parse()
        .map_err(|_| Failure::invalid("pathParams.id must be an integer"))?;
    let key = call.akahu.keys.current();
    if (1..key.id).contains(&id) {
        return Err(Failure::invalid("This key has expired"));
    }
    if id != key.id {
        return Err(Failure::not_found());
    }
    let key = tokio::task::spawn_blocking(move || key.public()).await;
    key.map(item)
        .map_err(|_| Failure::of_status(StatusCode::INTERNAL_SERVER_ERROR))
}

/// `POST /__control/keys/rotate`: a new key signs from now on, and the previous one expires.
pub(super) async fn rotate(State(akahu): State<Arc<Akahu>>) -> Response {
    let mut key = akahu.keys.0.lock();
    *key = Key::new(key.id + 1);
    Json(serde_json::json!({"id": key.id})).into_response()
}
