//! The `/__control` routes that every simulated provider has: faults, call counts and the clock.
//! Control calls need no token. They are not counted, and faults do not apply to them.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::faults::Fault;
use crate::serve::ProviderControls;

/// A 400 whose text says what to send instead.
#[derive(Debug)]
pub(crate) struct BadRequest(pub(crate) String);

impl<T: Into<String>> From<T> for BadRequest {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl IntoResponse for BadRequest {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, Json(json!({"error": self.0}))).into_response()
    }
}

/// Rejects control calls that a web page could send from a developer's browser: pages name their
/// origin, and a name that was rebound to this machine is neither an address nor `localhost`.
pub(crate) async fn guard(request: Request, next: Next) -> Response {
    if request.uri().path().starts_with("/__control") && !is_from_program(request.headers()) {
        let why = "control calls come from programs, with an address or localhost in the URL";
        return (StatusCode::FORBIDDEN, Json(json!({"error": why}))).into_response();
    }
    next.run(request).await
}

fn is_from_program(headers: &HeaderMap) -> bool {
    let header = |name| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    let host = header("host").unwrap_or_default();
    let is_same_origin = match (header("origin"), header("sec-fetch-site")) {
        (Some(origin), _) => origin.strip_prefix("http://") == Some(host),
        (None, Some(site)) => site == "same-origin" || site == "none",
        (None, None) => true,
    };
    is_same_origin && is_address(host)
}

fn is_address(host: &str) -> bool {
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| port.parse::<u16>().is_ok())
        .map_or(host, |(name, _)| name);
    name == "localhost"
        || name
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>()
            .is_ok()
}

/// Parses a body as JSON and ignores its content type.
pub(crate) fn parse_body<T: DeserializeOwned>(
    body: &Bytes,
    expected: &str,
) -> Result<T, BadRequest> {
    serde_json::from_slice(body)
        .map_err(|error| BadRequest(format!("send {expected} as JSON: {error}")))
}

/// The control routes that do not depend on the provider.
pub(crate) fn routes(controls: Arc<ProviderControls>) -> Router {
    Router::new()
        .route(
            "/__control/faults",
            get(faults).post(add_fault).delete(clear_faults),
        )
        .route("/__control/calls", get(calls).delete(clear_calls))
        .route("/__control/clock", post(set_clock).get(clock))
        .route("/__control/unlisted", put(set_unlisted))
        .route("/__control/{*rest}", axum::routing::any(unknown))
        .with_state(controls)
}

async fn unknown() -> Response {
    (
        StatusCode::NOT_FOUND,
        Json(json!({"error": "no such control route; the crate's README lists them"})),
    )
        .into_response()
}

async fn faults(State(controls): State<Arc<ProviderControls>>) -> Response {
    Json(json!({"faults": controls.faults.list()})).into_response()
}

async fn add_fault(
    State(controls): State<Arc<ProviderControls>>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    const EXPECTED: &str =
        "{\"match\", \"kind\", \"status\", \"retryAfter\", \"delayMs\", \"afterBytes\", \"times\"}";
    let fault: Fault = parse_body(&body, EXPECTED)?;
    controls.faults.add(fault)?;
    Ok(faults(State(controls)).await)
}

async fn clear_faults(State(controls): State<Arc<ProviderControls>>) -> StatusCode {
    controls.faults.clear();
    StatusCode::NO_CONTENT
}

#[derive(Serialize)]
struct Counts<T> {
    calls: T,
}

async fn calls(State(controls): State<Arc<ProviderControls>>) -> Response {
    Json(Counts {
        calls: controls.calls.list(),
    })
    .into_response()
}

async fn clear_calls(State(controls): State<Arc<ProviderControls>>) -> StatusCode {
    controls.calls.clear();
    StatusCode::NO_CONTENT
}

async fn set_unlisted(
    State(controls): State<Arc<ProviderControls>>,
    body: Bytes,
) -> Result<StatusCode, BadRequest> {
    let ids: HashSet<String> = parse_body(&body, "an array of account ids")?;
    *controls.unlisted.lock() = ids;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClockRequest {
    now: Option<Timestamp>,
    advance_seconds: Option<i64>,
}

async fn set_clock(
    State(controls): State<Arc<ProviderControls>>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    const EXPECTED: &str = "{\"now\": \"2026-01-31T00:00:00Z\"} or {\"advanceSeconds\": 60}";
    match parse_body(&body, EXPECTED)? {
        ClockRequest {
            now: Some(now),
            advance_seconds: None,
        } => controls.clock.set(now),
        ClockRequest {
            now: None,
            advance_seconds: Some(seconds),
        } => controls.clock.advance(seconds),
        ClockRequest { .. } => return Err(format!("send either of {EXPECTED}").into()),
    }
    Ok(clock(State(controls)).await)
}

async fn clock(State(controls): State<Arc<ProviderControls>>) -> Response {
    Json(json!({"now": controls.clock.now().to_string()})).into_response()
}
