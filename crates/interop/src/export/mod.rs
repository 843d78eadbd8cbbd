//! Files of transactions, trades and holdings.

use axum::Router;
use axum::response::IntoResponse as _;
use bellbird_requests::routes::DoorTable;
use bellbird_requests::{Credentials, Door, Route};

use crate::Interop;

static ROUTES: [Route; 0] = [];

pub(crate) fn door(interop: Interop) -> Door {
    let table = DoorTable {
        prefix: "/v1/export",
        routes: &ROUTES,
        credentials: Credentials::Bearer,
        deny: |problem| problem.into_response(),
    };
    Door { table, router: Router::new().with_state(interop) }
}

/// The paths of this door for the OpenAPI document.
#[must_use]
pub fn documented() -> utoipa::openapi::OpenApi {
    utoipa::openapi::OpenApi::default()
}
