//! `GET /health`: reports that the process runs.

use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::front::json::json_bytes;
use crate::front::{Operation, Path};
use crate::v1::state::V1State;

pub(super) fn path() -> Path<V1State> {
    Path::open("/health", health).described(
        Operation::new("health", "Service", "The service runs.")
            .text("Whether the service runs", "Needs no key, and uses neither the database nor a provider.")
            .json::<Health>(),
    )
}

async fn health() -> Response {
    json_bytes(Bytes::from_static(br#"{"status":"ok"}"#))
}

/// The state of the service.
#[derive(Serialize, ToSchema)]
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
        assert_eq!(serde_json::to_string(&Health { status: "ok" }).unwrap(), r#"{"status":"ok"}"#);
    }
}
