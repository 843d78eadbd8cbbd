//! The body of `GET /health`.

use serde::Serialize;
use utoipa::ToSchema;

/// The state of the service.
#[derive(Serialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    #[schema(example = "ok")]
    pub status: &'static str,
}
