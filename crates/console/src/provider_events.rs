//! `POST /webhooks/{provider}`: receives provider events. Log lines contain the provider and the
//! outcome, never the content of an event.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bellbird_api::http::body::{self, BodyError};
use bellbird_connections::{ReceiveError, Rejection};
use bellbird_storage::Chain;
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use serde_json::json;

use crate::error_page;
use crate::session::PathText;
use crate::state::Console;

const EVENT_BYTES_MAX: usize = 256 * 1024;
/// Smaller events, which are most, are read without a permit.
const SMALL_EVENT_BYTES_MAX: u64 = 16 * 1024;
/// `Retry-After` if an event could not be processed.
const RETRY_AFTER_SECONDS: &str = "30";
const NOT_CONFIGURED: &str = "This provider's events are not configured: check the URL, and set the provider's webhook secret";

/// `POST /webhooks/{provider}`
pub(crate) async fn receive(
    State(console): State<Console>,
    provider: PathText,
    headers: HeaderMap,
    event: Body,
) -> Response {
    let Ok(Path(provider)) = provider else {
        return error_page::json(StatusCode::NOT_FOUND, NOT_CONFIGURED);
    };
    let permits = console.event_permits(&provider);
    // Only large bodies need a permit while they are read, so that slow clients cannot block small
    // events.
    let large = content_length(&headers).is_none_or(|bytes| bytes > SMALL_EVENT_BYTES_MAX);
    let Ok(permit) = large.then(|| permits.reading.try_acquire()).transpose() else {
        return too_many_events();
    };
    let event = match body::read(&headers, event, EVENT_BYTES_MAX).await {
        Ok(event) => event,
        Err(error) => return event_body_error(error),
    };
    drop(permit);
    let Ok(_permit) = permits.running.try_acquire() else {
        return too_many_events();
    };
    match console
        .connections
        .provider_events()
        .receive(&provider, &headers, &event)
        .await
    {
        Ok(()) => {
            tracing::info!(provider, "provider event received");
            axum::Json(json!({ "received": true })).into_response()
        }
        Err(rejection) => rejection_response(&provider, &rejection),
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_many_events() -> Response {
    let response = error_page::json(
        StatusCode::SERVICE_UNAVAILABLE,
        "Too many events at the same time: send the event again",
    );
    ([(RETRY_AFTER, "1")], response).into_response()
}

fn event_body_error(error: BodyError) -> Response {
    let message = match error {
        BodyError::TooLarge => "The event is too large: the limit is 256 KiB",
        BodyError::TooSlow => "The event was not received in time: send it within 10 seconds",
        BodyError::Incomplete => "The event could not be read: send it again",
    };
    error_page::json(error.status(), message)
}

/// An unknown provider name is not logged, because the client chose it.
fn rejection_response(provider: &str, rejection: &ReceiveError) -> Response {
    let (status, message) = match rejection {
        ReceiveError::NotConfigured => (StatusCode::NOT_FOUND, NOT_CONFIGURED),
        ReceiveError::Rejected(reason) => {
            // Anyone can cause this, so it is a metric and only a debug line.
            tracing::debug!(provider, %reason, "provider event rejected");
            rejection_status(reason)
        }
        ReceiveError::Storage(error) => {
            tracing::error!(provider, error = %Chain(error), "could not store provider event");
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "The event could not be stored: send it again",
            )
        }
    };
    let response = error_page::json(status, message);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        return ([(RETRY_AFTER, RETRY_AFTER_SECONDS)], response).into_response();
    }
    response
}

fn rejection_status(reason: &Rejection) -> (StatusCode, &'static str) {
    match reason {
        Rejection::Forged => (
            StatusCode::UNAUTHORIZED,
            "The signature is not valid: check the webhook secret of this provider",
        ),
        Rejection::Stale => (
            StatusCode::UNAUTHORIZED,
            "The event is too old: check the clocks, and send it again with a new signature",
        ),
        Rejection::Malformed => (
            StatusCode::BAD_REQUEST,
            "The body is not a valid event: see the provider's documentation",
        ),
        Rejection::Unchecked(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The signature could not be checked: send the event again",
        ),
    }
}
