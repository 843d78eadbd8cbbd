//! The ops listener: metrics, liveness, readiness.

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

/// What the database gets to answer a readiness question.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// What the routes look at.
#[derive(Clone)]
struct Ops {
    storage: Storage,
    metrics: PrometheusHandle,
}

/// `/metrics`, `/live`, `/ready`; the error object everywhere else.
pub fn router(storage: Storage, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page))
        .route("/live", get(async || answer(StatusCode::OK, &json!({ "status": "ok" }))))
        .route("/ready", get(ready))
        .fallback(async || error(StatusCode::NOT_FOUND, "There is nothing here; try /metrics, /ready or /live."))
        .method_not_allowed_fallback(async || error(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are answered."))
        .with_state(Ops { storage, metrics })
}

async fn metrics_page(State(ops): State<Ops>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], ops.metrics.render()).into_response()
}

/// 200 when requests can be answered, else 503 with the part that is not ready.
async fn ready(State(ops): State<Ops>) -> Response {
    let problem = match tokio::time::timeout(DATABASE_TIMEOUT, database_problem(&ops.storage)).await {
        Ok(problem) => problem,
        Err(_) => Some("the database does not answer in time"),
    };
    match problem {
        None => answer(StatusCode::OK, &json!({ "status": "ok", "database": "ok" })),
        Some(problem) => answer(
            StatusCode::SERVICE_UNAVAILABLE,
            &json!({ "status": "not ready", "database": problem, "error": { "message": format!("Not ready: {problem}.") } }),
        ),
    }
}

async fn database_problem(storage: &Storage) -> Option<&'static str> {
    if let Err(error) = storage.ping().await {
        tracing::warn!(%error, "not ready");
        return Some("the database cannot be read");
    }
    match storage.pending_migrations().await {
        Ok(pending) if pending.is_empty() => None,
        Ok(_) => Some("the database has to be migrated"),
        Err(error) => {
            tracing::warn!(%error, "not ready");
            Some("the database is of another version")
        }
    }
}

fn error(status: StatusCode, message: &str) -> Response {
    answer(status, &json!({ "error": { "message": message } }))
}

fn answer(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
