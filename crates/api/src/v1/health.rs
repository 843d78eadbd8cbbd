//! `GET /health`: reports that the process runs. `GET /health/ready`: reports whether it can serve.

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;

use crate::http::Problem;
use crate::http::json::json_bytes;
use crate::v1::state::V1State;

/// Whether the service is ready
///
/// For monitors and load balancers. Needs no key and costs no query: the service writes to its
/// database every five seconds, and is not ready once it could not for 15. Only the operator's
/// `/ready` gives the reason.
#[utoipa::path(
    get, path = "/health/ready", tag = "Service",
    responses(
        (status = 200, description = "The service can respond to requests.", body = Health),
        (
            status = 503,
            description = "The service cannot use its database, or its clock is wrong (with \
                           `Retry-After`).",
        ),
    ),
)]
pub(super) async fn ready(State(state): State<V1State>) -> Result<Response, Problem> {
    if state.context.is_ready() {
        Ok(health().await)
    } else {
        Err(Problem::ServiceUnavailable)
    }
}

/// Whether the service runs
///
/// Needs no key, and uses neither the database nor a provider.
#[utoipa::path(
    get, path = "/health", tag = "Service",
    responses((status = 200, description = "The service runs.", body = Health)),
)]
pub(super) async fn health() -> Response {
    json_bytes(Bytes::from_static(br#"{"status":"ok"}"#))
}

/// The state of the service.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Health {
    /// Always `ok`.
    #[schema(example = "ok")]
    pub status: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_matches_the_documented_schema() {
        assert_eq!(
            serde_json::to_string(&Health { status: "ok" }).unwrap(),
            r#"{"status":"ok"}"#
        );
    }
}
