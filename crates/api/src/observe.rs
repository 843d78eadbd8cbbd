//! Around every request: an id, the size of its head, one log line, two metrics.

use std::time::Instant;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bellbird_domain::KeyId;
use http::header::{CACHE_CONTROL, HeaderName};
use http::{HeaderValue, Method, StatusCode};
use uuid::Uuid;

use crate::problem::Problem;
use crate::router;

/// The longest request target that is read.
const URI_BYTES_MAX: usize = 16 * 1024;
/// All header names and values together.
const HEADERS_BYTES_MAX: usize = 64 * 1024;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// How many provider calls an answer took; a handler leaves it on its response.
#[derive(Clone, Copy)]
pub(crate) struct ProviderCalls(pub(crate) u32);

/// Which key was used; the guard leaves it on the response.
#[derive(Clone, Copy)]
pub(crate) struct UsedKey(pub(crate) KeyId);

/// The outermost layer.
pub(crate) async fn observe(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = Uuid::new_v4();
    let method = request.method().clone();
    let route = router::route_of(request.uri().path()).path;
    let mut response = match oversized(&request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(id.hyphenated().encode_lower(&mut Uuid::encode_buffer())) {
        headers.insert(X_REQUEST_ID, value);
    }
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    }
    report(id, &method, route, started, &response);
    response
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

/// The one access line: nothing that the client chose but the method, and of that only a known one.
fn report(id: Uuid, method: &Method, route: &'static str, started: Instant, response: &Response) {
    let status = response.status();
    let took = started.elapsed();
    let provider_calls = response.extensions().get::<ProviderCalls>().map_or(0, |calls| calls.0);
    let key_id = response.extensions().get::<UsedKey>().map(|key| key.0);
    metrics::counter!("bellbird_requests_total", "route" => route, "status" => status_class(status)).increment(1);
    metrics::histogram!("bellbird_request_seconds", "route" => route).record(took);
    tracing::info!(
        target: "bellbird::access",
        request_id = %id,
        method = known_method(method),
        route,
        status = status.as_u16(),
        duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        provider_calls,
        key_id = key_id.map(tracing::field::display),
        "request"
    );
}

fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        100..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
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
