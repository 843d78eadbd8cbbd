//! The control routes for webhooks, equal for every provider.

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
use super::{Delivery, DeliveryState, Sign, WebhookSource, set_destination};
use crate::control::{BadRequest, parse_body};
use crate::members::Members;

/// Limit for `copies`; more is a mistake.
const COPIES_MAX: usize = 100;

pub(super) fn routes<N: WebhookSource>(source: Arc<N>) -> Router {
    Router::new()
        .route(
            "/__control/webhooks",
            post(set::<N>).get(list::<N>).delete(clear::<N>),
        )
        .route("/__control/webhooks/resend", post(resend::<N>))
        .route("/__control/webhooks/send", post(send::<N>))
        .with_state(source)
}

/// An absent member keeps its value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookOptions {
    #[serde(default, deserialize_with = "present")]
    url: Option<Option<String>>,
    copies: Option<usize>,
    lose: Option<u64>,
    sign: Option<Sign>,
}

/// Distinguishes `null` from an absent member.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

async fn set<N: WebhookSource>(
    State(source): State<Arc<N>>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    const EXPECTED: &str = "{\"url\": \"http://127.0.0.1:8080/hooks\", \"copies\": 1, \"lose\": 0, \"sign\": \"right\"}";
    let request: WebhookOptions = parse_body(&body, EXPECTED)?;
    if request
        .copies
        .is_some_and(|copies| !(1..=COPIES_MAX).contains(&copies))
    {
        return Err(format!("\"copies\" must be from 1 to {COPIES_MAX}").into());
    }
    if let Some(url) = request.url {
        let destination = url.as_deref().map(Destination::parse).transpose()?;
        let is_elsewhere = destination
            .as_ref()
            .is_some_and(|destination| !destination.is_this_machine());
        if is_elsewhere && !source.webhook_queue().is_anywhere_allowed {
            return Err("\"url\" must be on this machine: start the sandbox with --webhooks-anywhere for others".into());
        }
        set_destination(&source, destination);
    }
    {
        let mut queue = source.webhook_queue().state.lock();
        queue.copies = request.copies.unwrap_or(queue.copies);
        queue.lose = request.lose.unwrap_or(queue.lose);
        queue.sign = request.sign.unwrap_or(queue.sign);
    }
    source.webhook_queue().wake.notify_one();
    Ok(list(State(source)).await)
}

async fn list<N: WebhookSource>(State(source): State<Arc<N>>) -> Response {
    let queue = source.webhook_queue().state.lock();
    let deliveries: Vec<Value> = queue.deliveries.iter().map(delivery_json).collect();
    let url = queue
        .destination
        .as_ref()
        .map(|destination| &destination.url);
    let body = json!({
        "url": url, "copies": queue.copies, "lose": queue.lose, "sign": queue.sign, "deliveries": deliveries,
    });
    Json(body).into_response()
}

fn delivery_json(delivery: &Delivery) -> Value {
    let statuses: Vec<Option<u16>> = delivery
        .attempts
        .iter()
        .map(|attempt| attempt.status)
        .collect();
    json!({
        "id": delivery.id,
        "event": delivery.event.name,
        "state": delivery.state,
        "attempts": delivery.attempts.len(),
        "statuses": statuses,
        "nextAttemptAt": delivery.is_pending().then(|| delivery.next_attempt_at.to_string()),
        "repeats": delivery.repeats,
        "body": delivery.event.body,
    })
}

/// Ids continue, so that an id never names another delivery.
async fn clear<N: WebhookSource>(State(source): State<Arc<N>>) -> StatusCode {
    source.webhook_queue().state.lock().deliveries.clear();
    StatusCode::NO_CONTENT
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResendRequest {
    id: u64,
}

/// Sends the bytes of the last attempt again. A delivery without an attempt goes out as new.
async fn resend<N: WebhookSource>(
    State(source): State<Arc<N>>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let request: ResendRequest = parse_body(&body, "{\"id\"}, an id of GET /__control/webhooks,")?;
    let now = source.clock().now();
    let id = {
        let mut queue = source.webhook_queue().state.lock();
        let known = queue
            .deliveries
            .iter()
            .find(|known| known.id == request.id)
            .cloned();
        let known =
            known.ok_or_else(|| BadRequest(format!("there is no delivery {}", request.id)))?;
        if queue.destination.is_none() {
            return Err(NO_DESTINATION.into());
        }
        queue.push(
            known.event,
            DeliveryState::Waiting,
            Some(request.id),
            known.sent,
            now,
        )
    };
    source.webhook_queue().wake.notify_one();
    created(id)
}

const NO_DESTINATION: &str = "there is no destination: POST /__control/webhooks {\"url\"}";

fn created(id: Option<u64>) -> Result<Response, BadRequest> {
    let id = id.ok_or("the queue is full")?;
    Ok((StatusCode::CREATED, Json(json!({"id": id}))).into_response())
}

async fn send<N: WebhookSource>(
    State(source): State<Arc<N>>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let mut given: Members = parse_body(&body, "{\"event\"} and the event's members")?;
    let name = given.take_text("event").ok_or("\"event\" is needed")?;
    if source.webhook_queue().url().is_none() {
        return Err(NO_DESTINATION.into());
    }
    let now = source.clock().now();
    let event = source.build_event(&name, given, now)?;
    created(source.webhook_queue().add(event, now))
}
