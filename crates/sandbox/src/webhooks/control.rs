//! The part of the control interface that is about webhooks: the same for every provider.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::post::Destination;
use super::{Delivery, Notifier, Sign, Standing, listen};
use crate::control::{Misuse, read};
use crate::members::Members;

/// More copies of one event than this are a mistake.
const COPIES_MAX: usize = 100;

pub(super) fn routes<N: Notifier>(notifier: Arc<N>) -> Router {
    Router::new()
        .route("/__control/webhooks", post(set::<N>).get(list::<N>).delete(forget::<N>))
        .route("/__control/webhooks/resend", post(resend::<N>))
        .route("/__control/webhooks/send", post(send::<N>))
        .with_state(notifier)
}

/// What is absent stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    #[serde(default, deserialize_with = "given")]
    url: Option<Option<String>>,
    copies: Option<usize>,
    lose: Option<u64>,
    sign: Option<Sign>,
}

/// Tells `null` from nothing.
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

async fn set<N: Notifier>(State(notifier): State<Arc<N>>, body: Bytes) -> Result<Response, Misuse> {
    const EXPECTED: &str =
        "{\"url\": \"http://127.0.0.1:8080/hooks\", \"copies\": 1, \"lose\": 0, \"sign\": \"right\"}";
    let ask: Ask = read(&body, EXPECTED)?;
    if ask.copies.is_some_and(|copies| !(1..=COPIES_MAX).contains(&copies)) {
        return Err(format!("\"copies\" must be from 1 to {COPIES_MAX}").into());
    }
    if let Some(url) = ask.url {
        listen(&notifier, url.as_deref().map(Destination::parse).transpose()?);
    }
    {
        let mut queue = notifier.outbox().queue.lock();
        queue.copies = ask.copies.unwrap_or(queue.copies);
        queue.lose = ask.lose.unwrap_or(queue.lose);
        queue.sign = ask.sign.unwrap_or(queue.sign);
    }
    notifier.outbox().wake.notify_one();
    Ok(list(State(notifier)).await)
}

async fn list<N: Notifier>(State(notifier): State<Arc<N>>) -> Response {
    let queue = notifier.outbox().queue.lock();
    let deliveries: Vec<Value> = queue.deliveries.iter().map(shown).collect();
    let url = queue.destination.as_ref().map(|destination| &destination.url);
    let answer = json!({
        "url": url, "copies": queue.copies, "lose": queue.lose, "sign": queue.sign, "deliveries": deliveries,
    });
    Json(answer).into_response()
}

fn shown(delivery: &Delivery) -> Value {
    let statuses: Vec<Option<u16>> = delivery.attempts.iter().map(|attempt| attempt.status).collect();
    json!({
        "id": delivery.id,
        "event": delivery.event.name,
        "state": delivery.standing,
        "attempts": delivery.attempts.len(),
        "statuses": statuses,
        "dueAt": delivery.is_open().then(|| delivery.due.to_string()),
        "repeats": delivery.repeats,
        "body": delivery.event.body,
    })
}

/// Numbers go on, so that an id is never another delivery's.
async fn forget<N: Notifier>(State(notifier): State<Arc<N>>) -> StatusCode {
    notifier.outbox().queue.lock().deliveries.clear();
    StatusCode::NO_CONTENT
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResendAsk {
    id: u64,
}

/// The last attempt's bytes once more; what was never attempted goes out for the first time.
async fn resend<N: Notifier>(State(notifier): State<Arc<N>>, body: Bytes) -> Result<Response, Misuse> {
    let ask: ResendAsk = read(&body, "{\"id\"}, an id of GET /__control/webhooks,")?;
    let now = notifier.clock().now();
    let id = {
        let mut queue = notifier.outbox().queue.lock();
        let known = queue.deliveries.iter().find(|known| known.id == ask.id).cloned();
        let known = known.ok_or_else(|| Misuse(format!("there is no delivery {}", ask.id)))?;
        if queue.destination.is_none() {
            return Err(NOWHERE.into());
        }
        queue.push(known.event, Standing::Waiting, Some(ask.id), known.sent, now)
    };
    notifier.outbox().wake.notify_one();
    answer(id)
}

const NOWHERE: &str = "there is no destination: POST /__control/webhooks {\"url\"}";

fn answer(id: Option<u64>) -> Result<Response, Misuse> {
    let id = id.ok_or("the queue is full")?;
    Ok((StatusCode::CREATED, Json(json!({"id": id}))).into_response())
}

async fn send<N: Notifier>(State(notifier): State<Arc<N>>, body: Bytes) -> Result<Response, Misuse> {
    let mut given: Members = read(&body, "{\"event\"} and the event's members")?;
    let name = given.take_text("event").ok_or("\"event\" is needed")?;
    if notifier.outbox().url().is_none() {
        return Err(NOWHERE.into());
    }
    let now = notifier.clock().now();
    let event = notifier.describe(&name, given, now)?;
    answer(notifier.outbox().add(event, now))
}
