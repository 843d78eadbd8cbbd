//! The layer that assigns the request id, opens the request's span, limits the size of URL and
//! headers, and writes one log line and two metrics for each request.

use std::cell::Cell;
use std::pin::pin;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, HeaderName};
use http::{HeaderValue, Method};
use opentelemetry::trace::TraceId;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};
use uuid::Uuid;

use crate::http::context::ApiContext;
use crate::http::problem::Problem;
use crate::http::route_metrics::UNKNOWN_ROUTE;
use crate::http::trace;

/// Limit of path and query together.
const URI_BYTES_MAX: usize = 16 * 1024;
/// Limit of all header names and values together.
const HEADERS_BYTES_MAX: usize = 64 * 1024;

/// Logged if the client disconnects before the response. Never sent. nginx uses the same number.
const CLIENT_CLOSED_REQUEST: u16 = 499;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static FACTS: Facts;
}

/// What the access line says about the work of a request.
#[derive(Default)]
struct Facts {
    id: Uuid,
    key_id: Cell<Option<Uuid>>,
    provider_calls: Cell<u32>,
    read_by: Cell<Option<Uuid>>,
}

/// The id of the request that this task works on.
pub(crate) fn request_id() -> Uuid {
    FACTS.try_with(|facts| facts.id).unwrap_or_default()
}

/// The key of this request, of a user or an operator.
pub(crate) fn set_key(key_id: Uuid) {
    Span::current().record("key_id", tracing::field::display(key_id));
    let _ = FACTS.try_with(|facts| facts.key_id.set(Some(key_id)));
}

/// Provider calls that this request made.
pub fn add_provider_calls(calls: u32) {
    let _ = FACTS.try_with(|facts| facts.provider_calls.set(facts.provider_calls.get() + calls));
}

/// The request whose provider read served this one too.
pub(crate) fn set_read_by(leader: Uuid) {
    let _ = FACTS.try_with(|facts| facts.read_by.set(Some(leader)));
}

/// Runs a part of a request. Returns its provider calls, and the request that made them in its
/// place.
#[cfg(test)]
pub(crate) async fn recorded(id: Uuid, work: impl Future<Output = ()>) -> (u32, Option<Uuid>) {
    let mut work = pin!(FACTS.scope(
        Facts {
            id,
            ..Facts::default()
        },
        work
    ));
    work.as_mut().await;
    let facts = work.take_value().unwrap_or_default();
    (facts.provider_calls.get(), facts.read_by.get())
}

/// The layer of every route.
pub(crate) async fn access_log(
    State(context): State<ApiContext>,
    request: Request,
    next: Next,
) -> Response {
    let facts = Facts {
        id: Uuid::new_v4(),
        ..Facts::default()
    };
    let mut request_log = RequestLog {
        context,
        id: facts.id.hyphenated().to_string(),
        method: known_method(request.method()),
        route: request.extensions().get::<MatchedPath>().cloned(),
        started: Instant::now(),
        responded: false,
        span: Span::none(),
        trace_id: None,
    };
    let (mut response, facts) = match oversized(&request) {
        Some(problem) => (problem.into_response(), facts),
        None => {
            request_log.begin_span(&request);
            let mut work = pin!(FACTS.scope(facts, next.run(request)));
            let response = work.as_mut().instrument(request_log.span.clone()).await;
            (response, work.take_value().unwrap_or_default())
        }
    };
    set_request_id(&mut response, &request_log.id);
    let headers = response.headers_mut();
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    }
    request_log.emit(response.status().as_u16(), &facts);
    response
}

/// The layer of listeners without an access log: gives a request its id, and the span of all lines
/// that it causes. The span has the template of the path, because paths and queries of the console
/// contain link tokens.
pub async fn request_span(request: Request, next: Next) -> Response {
    let id = Uuid::new_v4().hyphenated().to_string();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map_or(UNKNOWN_ROUTE, MatchedPath::as_str);
    let span = tracing::error_span!("request", request_id = id, route);
    let mut response = next.run(request).instrument(span).await;
    set_request_id(&mut response, &id);
    response
}

fn set_request_id(response: &mut Response, id: &str) {
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
}

/// A request in progress. Dropping it without a response means that the client disconnected, which
/// is logged too.
struct RequestLog {
    context: ApiContext,
    id: String,
    method: &'static str,
    /// None for a path that does not exist.
    route: Option<MatchedPath>,
    started: Instant,
    responded: bool,
    span: Span,
    trace_id: Option<TraceId>,
}

impl RequestLog {
    fn route(&self) -> &str {
        self.route
            .as_ref()
            .map_or(UNKNOWN_ROUTE, MatchedPath::as_str)
    }

    /// The span of all lines that the request causes, also in background tasks. It is on at every
    /// log level, and holds no text chosen by the client.
    fn begin_span(&mut self, request: &Request) {
        self.span = tracing::error_span!(
            "request",
            request_id = self.id,
            method = self.method,
            route = self.route(),
            key_id = Empty,
            trace_id = Empty
        );
        self.trace_id = trace::join(&self.span, request, self.context.trusted_proxies());
        if let Some(trace_id) = self.trace_id {
            self.span
                .record("trace_id", tracing::field::display(trace_id));
        }
    }

    /// Writes the access line. It contains no text chosen by the client: an unknown method is
    /// logged as `other`, an unknown path as `(none)`.
    fn emit(&mut self, status: u16, facts: &Facts) {
        self.responded = true;
        let elapsed = self.started.elapsed();
        let metrics = &self.context.inner.route_metrics;
        metrics.record(self.route(), status, elapsed);
        tracing::info!(
            target: "bellbird::access",
            request_id = self.id,
            method = self.method,
            route = self.route(),
            status,
            duration_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            provider_calls = facts.provider_calls.get(),
            key_id = facts.key_id.get().map(tracing::field::display),
            read_by = facts.read_by.get().map(tracing::field::display),
            trace_id = self.trace_id.map(tracing::field::display),
            "request"
        );
        trace::set_status(&self.span, status);
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        if !self.responded {
            self.emit(CLIENT_CLOSED_REQUEST, &Facts::default());
        }
    }
}

fn oversized(request: &Request) -> Option<Problem> {
    let uri = request.uri();
    let target = uri.path().len() + uri.query().map_or(0, |query| query.len() + 1);
    if target > URI_BYTES_MAX {
        return Some(Problem::UriTooLong);
    }
    let headers: usize = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
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
