//! Around every request: an id, the size of its head, one log line, two metrics.

use std::time::Instant;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bellbird_domain::KeyId;
use http::header::{CACHE_CONTROL, HeaderName};
use http::{HeaderValue, Method};
use uuid::Uuid;

use crate::problem::Problem;
use crate::router::{self, Route};

/// The longest request target that is read.
const URI_BYTES_MAX: usize = 16 * 1024;
/// All header names and values together.
const HEADERS_BYTES_MAX: usize = 64 * 1024;

/// What the log says for a client that closed its connection before the answer; never sent.
const CLIENT_LEFT: u16 = 499;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// How many provider calls an answer took; a handler leaves it on its response.
#[derive(Clone, Copy)]
pub(crate) struct ProviderCalls(pub(crate) u32);

/// Which key was used; the guard leaves it on the response.
#[derive(Clone, Copy)]
pub(crate) struct UsedKey(pub(crate) KeyId);

/// The outermost layer.
pub(crate) async fn observe(request: Request, next: Next) -> Response {
    let mut visit = Visit {
        id: Uuid::new_v4(),
        method: known_method(request.method()),
        route: router::route_of(request.uri().path()),
        started: Instant::now(),
        answered: false,
    };
    let mut response = match oversized(&request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(visit.id.hyphenated().encode_lower(&mut Uuid::encode_buffer())) {
        headers.insert(X_REQUEST_ID, value);
    }
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    }
    visit.report(&response);
    response
}

/// A request under way. One that is dropped without an answer, because its client left, is reported all the same.
struct Visit {
    id: Uuid,
    method: &'static str,
    route: &'static Route,
    started: Instant,
    answered: bool,
}

impl Visit {
    fn report(&mut self, response: &Response) {
        self.answered = true;
        let provider_calls = response.extensions().get::<ProviderCalls>().map_or(0, |calls| calls.0);
        let key_id = response.extensions().get::<UsedKey>().map(|key| key.0);
        self.write(response.status().as_u16(), provider_calls, key_id);
    }

    /// The one access line: nothing that the client chose but the method, and of that only a known one.
    fn write(&self, status: u16, provider_calls: u32, key_id: Option<KeyId>) {
        let took = self.started.elapsed();
        let metrics = self.route.metrics();
        metrics.requests[usize::from(status / 100).clamp(1, 5) - 1].increment(1);
        metrics.seconds.record(took);
        tracing::info!(
            target: "bellbird::access",
            request_id = %self.id,
            method = self.method,
            route = self.route.path,
            status,
            duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            provider_calls,
            key_id = key_id.map(tracing::field::display),
            "request"
        );
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if !self.answered {
            self.write(CLIENT_LEFT, 0, None);
        }
    }
}

fn oversized(request: &Request) -> Option<Problem> {
    let uri = request.uri();
    let target = uri.path().len() + uri.query().map_or(0, |query| query.len() + 1);
    if target > URI_BYTES_MAX {
        return Some(Problem::UriTooLong);
    }
    let headers: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    (headers > HEADERS_BYTES_MAX).then_some(Problem::HeadersTooLarge)
}

fn known_method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}
