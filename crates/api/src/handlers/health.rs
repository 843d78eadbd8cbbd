//! `GET /health`: reports that the process runs.

use axum::response::Response;
use bytes::Bytes;

use crate::front::json::json_bytes;
use crate::views::Health;

/// Whether the service runs
///
/// Needs no key, and uses neither the database nor a provider.
#[utoipa::path(
    get,
    path = "/health",
    tag = "Service",
    responses((status = 200, description = "The service runs.", body = Health)),
    security(())
)]
pub(crate) async fn health() -> Response {
    json_bytes(Bytes::from_static(br#"{"status":"ok"}"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_matches_the_documented_schema() {
        assert_eq!(serde_json::to_string(&Health { status: "ok" }).unwrap(), r#"{"status":"ok"}"#);
    }
}
