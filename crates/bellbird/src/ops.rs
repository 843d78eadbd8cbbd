//! Router of the ops listener: metrics for Prometheus, liveness and readiness.

use std::error::Error as _;
use std::time::Duration;

use axum::extract::State;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bellbird_api::http::log::request_span;
use bellbird_api::http::problem::ErrorBody;
use bellbird_storage::Storage;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::{Deserialize, Serialize};

use crate::{telemetry, wiring};

/// Limit for the database checks of one readiness request.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Ops {
    storage: Storage,
    metrics: PrometheusHandle,
    service: ServiceInfo,
}

/// What `/ready` says about the service, so that a command finds out whose listener it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceInfo {
    /// The database, without user and password.
    pub location: String,
    pub is_demo: bool,
}

#[derive(Serialize)]
struct Readiness<'a> {
    status: &'static str,
    database: &'a str,
    #[serde(flatten)]
    service: &'a ServiceInfo,
    #[serde(flatten)]
    error: Option<ErrorBody>,
}

/// Serves `/metrics`, `/live` and `/ready`; every other path gets a JSON error.
pub fn router(storage: Storage, metrics: PrometheusHandle, service: ServiceInfo) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page))
        .route(
            "/live",
            get(async || Json(serde_json::json!({ "status": "ok" }))),
        )
        .route("/ready", get(ready))
        .fallback(async || {
            error(
                StatusCode::NOT_FOUND,
                "Not found. Try /metrics, /ready or /live.",
            )
        })
        .method_not_allowed_fallback(async || {
            error(StatusCode::METHOD_NOT_ALLOWED, "Use GET or HEAD.")
        })
        .layer(from_fn(request_span))
        .with_state(Ops {
            storage,
            metrics,
            service,
        })
}

async fn metrics_page(State(ops): State<Ops>) -> Response {
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    metrics::gauge!("bellbird_tasks").set(telemetry::to_f64(tasks as u64));
    let instances = ops.storage.instances();
    metrics::gauge!("bellbird_database_available")
        .set(f64::from(u8::from(instances.fault().is_none())));
    metrics::gauge!("bellbird_database_write_age_seconds")
        .set(instances.renewal_age().unwrap_or_default());
    if let Some((used, idle, waiting)) = ops.storage.connections_in_use() {
        for (state, count) in [("used", used), ("idle", idle), ("waiting", waiting)] {
            metrics::gauge!("bellbird_database_connections", "state" => state)
                .set(f64::from(count));
        }
    }
    telemetry::set_process_metrics();
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4")],
        ops.metrics.render(),
    )
        .into_response()
}

/// Returns 200 when the service can handle requests, else 503 with the reason.
async fn ready(State(ops): State<Ops>) -> Response {
    let fault = fault(&ops.storage).await;
    let (code, status) = match fault {
        None => (StatusCode::OK, "ok"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    let text = fault.as_ref().map(|reason| format!("Not ready: {reason}."));
    let body = Readiness {
        status,
        database: fault.as_deref().unwrap_or("ok"),
        service: &ops.service,
        error: text.as_deref().map(ErrorBody::from),
    };
    (code, Json(body)).into_response()
}

/// Why the service cannot handle requests.
async fn fault(storage: &Storage) -> Option<String> {
    match tokio::time::timeout(DATABASE_TIMEOUT, wiring::check_ready(storage)).await {
        Ok(Ok(())) => storage.instances().fault(),
        Ok(Err(reason)) => {
            if let Some(error) = reason.source() {
                tracing::warn!(%error, "not ready");
            }
            Some(reason.to_string())
        }
        Err(_) => Some("the database did not respond in time".to_owned()),
    }
}

fn error(status: StatusCode, message: &str) -> Response {
    (status, Json(ErrorBody::from(message))).into_response()
}
