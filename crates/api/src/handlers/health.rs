//! `GET /health`

use axum::response::Response;
use bytes::Bytes;

use super::json_bytes;
use crate::views::Health;

/// Whether the service runs
///
/// Needs no key and touches neither the database nor a provider.
#[utoipa::path(
    get,
    path = "/health",
    tag = "Service",
    responses((status = 200, description = "It runs.", body = Health)),
    security(())
)]
pub(crate) async fn health() -> Response {
    json_bytes(Bytes::from_static(br#"{"status":"ok"}"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_the_described_one() {
        assert_eq!(serde_json::to_string(&Health { status: "ok" }).unwrap(), r#"{"status":"ok"}"#);
    }
}
