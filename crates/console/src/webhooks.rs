//! Where providers send their events. A log line says which provider's it was and what became of it, nothing of what it
//! says.

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bellbird_connections::{NotTaken, Refused};
use bellbird_storage::Chain;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::body::{self, Unread};
use crate::{Console, refusal};

/// Longest event, in bytes.
const EVENT_BYTES_MAX: usize = 256 * 1024;
/// Most events are smaller, and are read in whatever number there are connections.
const SMALL_BYTES_MAX: u64 = 16 * 1024;
/// When what could not be taken is to be sent again.
const SENT_AGAIN_AFTER_SECONDS: u64 = 30;
const NOT_OFFERED: &str =
    "No events are received here under this name: check the address, and that the provider's secret is set";

#[derive(Serialize)]
struct Received {
    received: bool,
}

/// `POST /webhooks/{provider}`
pub(crate) async fn take(
    State(console): State<Console>,
    provider: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    event: Body,
) -> Response {
    let Ok(Path(provider)) = provider else { return refusal::json(StatusCode::NOT_FOUND, NOT_OFFERED) };
    // Those who send nothing, or slowly, must not take the places of others: only large bodies need one to be read.
    let large = body::announced(&headers).is_none_or(|bytes| bytes > SMALL_BYTES_MAX);
    let Some(place) = place(&console.inner.large_events, large) else { return too_many() };
    let event = match body::read(&headers, event, EVENT_BYTES_MAX).await {
        Ok(event) => event,
        Err(unread) => return unread_event(unread),
    };
    drop(place);
    let Some(_place) = self::place(&console.inner.events, true) else { return too_many() };
    match console.inner.connections.receive(&provider, &headers, &event).await {
        Ok(()) => {
            tracing::info!(provider, "event received");
            axum::Json(Received { received: true }).into_response()
        }
        Err(not_taken) => refused(&provider, &not_taken),
    }
}

/// None when there is none left, and one is needed.
fn place(places: &Semaphore, needed: bool) -> Option<Option<SemaphorePermit<'_>>> {
    if needed { places.try_acquire().ok().map(Some) } else { Some(None) }
}

fn too_many() -> Response {
    let response = refusal::json(StatusCode::SERVICE_UNAVAILABLE, "Too many events at once: send it again");
    refusal::with_retry_after(response, 1)
}

fn unread_event(unread: Unread) -> Response {
    match unread {
        Unread::TooLarge => {
            refusal::json(StatusCode::PAYLOAD_TOO_LARGE, "The event is too large: at most 256 KiB are read")
        }
        Unread::TooSlow => {
            refusal::json(StatusCode::REQUEST_TIMEOUT, "The event took too long to arrive: send it within 10 seconds")
        }
        Unread::Broken => refusal::json(StatusCode::BAD_REQUEST, "The event could not be read: send it again"),
    }
}

/// A name that is none of ours is not logged: whoever sent it chose it.
fn refused(provider: &str, not_taken: &NotTaken) -> Response {
    let (status, message) = match not_taken {
        NotTaken::NotOffered => return refusal::json(StatusCode::NOT_FOUND, NOT_OFFERED),
        NotTaken::Refused(why) => {
            // Anybody can cause it: counted, and told to whoever looks for it.
            tracing::debug!(provider, %why, "event refused");
            told(why)
        }
        NotTaken::Storage(error) => {
            tracing::error!(provider, error = %Chain(error), "event not taken: database failed");
            (StatusCode::SERVICE_UNAVAILABLE, "The event cannot be taken at the moment: send it again")
        }
    };
    let response = refusal::json(status, message);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        return refusal::with_retry_after(response, SENT_AGAIN_AFTER_SECONDS);
    }
    response
}

fn told(why: &Refused) -> (StatusCode, &'static str) {
    match why {
        Refused::Forged => {
            (StatusCode::UNAUTHORIZED, "The signature does not fit: check the secret that is set for this provider")
        }
        Refused::Stale => {
            (StatusCode::UNAUTHORIZED, "The event is too old: send it again with a new signature, and check the clocks")
        }
        Refused::Malformed => (StatusCode::BAD_REQUEST, "The body is not an event of the documented form"),
        Refused::Unchecked(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "The signature cannot be checked at the moment: send the event again")
        }
    }
}
