//! Router of the ops listener: metrics for Prometheus, liveness and readiness.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bellbird_storage::Storage;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};

/// Limit for the database checks of one readiness request.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Ops {
    storage: Storage,
    metrics: PrometheusHandle,
}

/// Serves `/metrics`, `/live` and `/ready`; every other path gets a JSON error.
pub fn router(storage: Storage, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page))
        .route("/live", get(async || answer(StatusCode::OK, &json!({ "status": "ok" }))))
        .route("/ready", get(ready))
        .fallback(async || error(StatusCode::NOT_FOUND, "Not found. Try /metrics, /ready or /live."))
        .method_not_allowed_fallback(async || error(StatusCode::METHOD_NOT_ALLOWED, "Use GET or HEAD."))
        .with_state(Ops { storage, metrics })
}

async fn metrics_page(State(ops): State<Ops>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], ops.metrics.render()).into_response()
}

/// Returns 200 when the service can handle requests, else 503 with the reason.
async fn ready(State(ops): State<Ops>) -> Response {
    let reason = match tokio::time::timeout(DATABASE_TIMEOUT, database_error(&ops.storage)).await {
        Ok(reason) => reason,
        Err(_) => Some("the database did not respond in time"),
    };
    match reason {
        None => answer(StatusCode::OK, &json!({ "status": "ok", "database": "ok" })),
        Some(reason) => {
            let error = json!({ "message": format!("Not ready: {reason}.") });
            let body = json!({ "status": "not ready", "database": reason, "error": error });
            answer(StatusCode::SERVICE_UNAVAILABLE, &body)
        }
    }
}

async fn database_error(storage: &Storage) -> Option<&'static str> {
    if let Err(error) = storage.ping().await {
        tracing::warn!(%error, "not ready");
        return Some("the database cannot be read");
    }
    match storage.pending_migrations().await {
        Ok(pending) if pending.is_empty() => None,
        Ok(_) => Some("the database has pending migrations"),
        Err(error) => {
            tracing::warn!(%error, "not ready");
            Some("the database schema has an unknown version")
        }
    }
}

fn error(status: StatusCode, message: &str) -> Response {
    answer(status, &json!({ "error": { "message": message } }))
}

fn answer(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
