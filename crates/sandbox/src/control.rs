//! What every provider's control interface offers: faults, calls, clock. Control calls are neither counted nor
//! disturbed, and need no token.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use http::StatusCode;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::faults::Fault;
use crate::serve::Port;

/// An error that says what to do: 400.
#[derive(Debug)]
pub(crate) struct Misuse(pub(crate) String);

impl<T: Into<String>> From<T> for Misuse {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl IntoResponse for Misuse {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, Json(json!({"error": self.0}))).into_response()
    }
}

/// Reads a body, whatever its content type says.
pub(crate) fn read<T: DeserializeOwned>(body: &Bytes, expected: &str) -> Result<T, Misuse> {
    serde_json::from_slice(body).map_err(|error| Misuse(format!("send {expected} as JSON: {error}")))
}

/// The routes that know no provider.
pub(crate) fn routes(port: Arc<Port>) -> Router {
    Router::new()
        .route("/__control/faults", get(faults).post(add_fault).delete(clear_faults))
        .route("/__control/calls", get(calls).delete(clear_calls))
        .route("/__control/clock", post(set_clock).get(clock))
        .route("/__control/{*rest}", axum::routing::any(unknown))
        .with_state(port)
}

async fn unknown() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({"error": "no such control route; the crate's README lists them"})))
        .into_response()
}

async fn faults(State(port): State<Arc<Port>>) -> Response {
    Json(json!({"faults": port.faults.list()})).into_response()
}

async fn add_fault(State(port): State<Arc<Port>>, body: Bytes) -> Result<Response, Misuse> {
    const EXPECTED: &str = "{\"match\", \"kind\", \"status\", \"retryAfter\", \"delayMs\", \"afterBytes\", \"times\"}";
    let fault: Fault = read(&body, EXPECTED)?;
    port.faults.add(fault)?;
    Ok(faults(State(port)).await)
}

async fn clear_faults(State(port): State<Arc<Port>>) -> StatusCode {
    port.faults.clear();
    StatusCode::NO_CONTENT
}

#[derive(Serialize)]
struct Counts<T> {
    calls: T,
}

async fn calls(State(port): State<Arc<Port>>) -> Response {
    Json(Counts { calls: port.calls.list() }).into_response()
}

async fn clear_calls(State(port): State<Arc<Port>>) -> StatusCode {
    port.calls.clear();
    StatusCode::NO_CONTENT
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClockAsk {
    now: Option<Timestamp>,
    advance_seconds: Option<i64>,
}

async fn set_clock(State(port): State<Arc<Port>>, body: Bytes) -> Result<Response, Misuse> {
    const EXPECTED: &str = "{\"now\": \"2026-01-31T00:00:00Z\"} or {\"advanceSeconds\": 60}";
    match read(&body, EXPECTED)? {
        ClockAsk { now: Some(now), advance_seconds: None } => port.clock.set(now),
        ClockAsk { now: None, advance_seconds: Some(seconds) } => port.clock.advance(seconds),
        ClockAsk { .. } => return Err(format!("send either of {EXPECTED}").into()),
    }
    Ok(clock(State(port)).await)
}

async fn clock(State(port): State<Arc<Port>>) -> Response {
    Json(json!({"now": port.clock.now().to_string()})).into_response()
}
