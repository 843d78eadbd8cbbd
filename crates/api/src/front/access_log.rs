//! The outermost layer. It assigns the request id, opens the request's span, limits the size of URL and headers, and
//! writes one log line and two metrics for each request.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bellbird_domain::KeyId;
use http::header::{CACHE_CONTROL, HeaderName};
use http::{HeaderValue, Method};
use tracing::Instrument as _;
use tracing::field::Empty;
use uuid::Uuid;

use crate::front::extract::{AuthenticatedKey, ProviderCalls, REQUEST_ID, SharedRead};
use crate::front::problem::Problem;
use crate::front::routes::{Doors, Route};

/// Limit of path and query together.
const URI_BYTES_MAX: usize = 16 * 1024;
/// Limit of all header names and values together.
const HEADERS_BYTES_MAX: usize = 64 * 1024;

/// Logged if the client disconnects before the response. Never sent. nginx uses the same number.
const CLIENT_CLOSED_REQUEST: u16 = 499;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Set on a response by the layer that catches panics.
#[derive(Clone, Copy)]
pub(crate) struct Panicked;

pub(crate) async fn access_log(State(doors): State<Arc<Doors>>, request: Request, next: Next) -> Response {
    let (route, door) = doors.find(request.uri().path());
    let mut request_log = RequestLog {
        id: Uuid::new_v4(),
        method: known_method(request.method()),
        route,
        started: Instant::now(),
        responded: false,
    };
    let mut response = match oversized(&request) {
        Some(problem) => door.deny(problem),
        None => REQUEST_ID.scope(request_log.id, next.run(request)).instrument(request_log.span()).await,
    };
    if response.extensions().get::<Panicked>().is_some() {
        response = door.deny(Problem::Internal);
    }
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(request_log.id.hyphenated().encode_lower(&mut Uuid::encode_buffer())) {
        headers.insert(X_REQUEST_ID, value);
    }
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    }
    request_log.finish(&response);
    response
}

/// A request in progress. Dropping it without a response means that the client disconnected, which is logged too.
struct RequestLog {
    id: Uuid,
    method: &'static str,
    route: &'static Route,
    started: Instant,
    responded: bool,
}

impl RequestLog {
    /// The span of all lines that the request causes, also in background tasks. It is on at every log level, and holds
    /// no text chosen by the client.
    fn span(&self) -> tracing::Span {
        tracing::error_span!(
            "request",
            request_id = &*self.id.hyphenated().encode_lower(&mut Uuid::encode_buffer()),
            method = self.method,
            route = self.route.path,
            key_id = Empty
        )
    }

    fn finish(&mut self, response: &Response) {
        self.responded = true;
        let provider_calls = response.extensions().get::<ProviderCalls>().map_or(0, |calls| calls.0);
        let key_id = response.extensions().get::<AuthenticatedKey>().map(|key| key.0);
        let read_by = response.extensions().get::<SharedRead>().map(|leader| leader.0);
        self.emit(response.status().as_u16(), provider_calls, key_id, read_by);
    }

    /// Writes the access line. It contains no text chosen by the client: an unknown method is logged as `other`, an
    /// unknown path as `(none)`.
    fn emit(&self, status: u16, provider_calls: u32, key_id: Option<KeyId>, read_by: Option<Uuid>) {
        let elapsed = self.started.elapsed();
        let metrics = self.route.metrics();
        metrics.requests[usize::from(status / 100).clamp(1, 5) - 1].increment(1);
        metrics.seconds.record(elapsed);
        tracing::info!(
            target: "bellbird::access",
            request_id = &*self.id.hyphenated().encode_lower(&mut Uuid::encode_buffer()),
            method = self.method,
            route = self.route.path,
            status,
            duration_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            provider_calls,
            key_id = key_id.map(tracing::field::display),
            read_by = read_by.map(tracing::field::display),
            "request"
        );
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        if !self.responded {
            self.emit(CLIENT_CLOSED_REQUEST, 0, None, None);
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
