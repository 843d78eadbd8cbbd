//! Router of the ops listener: metrics for Prometheus, liveness and readiness.

use std::error::Error as _;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bellbird_api::front::problem::ErrorBody;
use bellbird_storage::Storage;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;

use crate::wiring;

/// Limit for the database checks of one readiness request.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

const WRONG_CLOCK: &str = "the clock of this machine differs from that of the database by 20 s or more";

/// Gauge: tasks of the runtime that have not ended.
const TASKS: &str = "bellbird_tasks";

#[derive(Clone)]
struct Ops {
    storage: Storage,
    metrics: PrometheusHandle,
}

/// Body of `/ready` and `/live`.
#[derive(Serialize)]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<String>,
    #[serde(flatten)]
    error: Option<ErrorBody>,
}

/// Serves `/metrics`, `/live` and `/ready`; every other path gets a JSON error.
pub fn router(storage: Storage, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page))
        .route("/live", get(async || Json(Health { status: "ok", database: None, error: None })))
        .route("/ready", get(ready))
        .fallback(async || error(StatusCode::NOT_FOUND, "Not found. Try /metrics, /ready or /live."))
        .method_not_allowed_fallback(async || error(StatusCode::METHOD_NOT_ALLOWED, "Use GET or HEAD."))
        .with_state(Ops { storage, metrics })
}

async fn metrics_page(State(ops): State<Ops>) -> Response {
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    metrics::gauge!(TASKS).set(f64::from(u32::try_from(tasks).unwrap_or(u32::MAX)));
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], ops.metrics.render()).into_response()
}

/// Returns 200 when the service can handle requests, else 503 with the reason.
async fn ready(State(ops): State<Ops>) -> Response {
    let reason = match tokio::time::timeout(DATABASE_TIMEOUT, wiring::check_ready(&ops.storage)).await {
        Ok(Ok(())) if ops.storage.claims_nothing() => WRONG_CLOCK.to_owned(),
        Ok(Ok(())) => {
            return Json(Health { status: "ok", database: Some("ok".to_owned()), error: None }).into_response();
        }
        Ok(Err(reason)) => {
            if let Some(error) = reason.source() {
                tracing::warn!(%error, "not ready");
            }
            reason.to_string()
        }
        Err(_) => "the database did not respond in time".to_owned(),
    };
    let error = Some(ErrorBody::from(format!("Not ready: {reason}.").as_str()));
    let body = Health { status: "not ready", database: Some(reason), error };
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

fn error(status: StatusCode, message: &str) -> Response {
    (status, Json(ErrorBody::from(message))).into_response()
}
