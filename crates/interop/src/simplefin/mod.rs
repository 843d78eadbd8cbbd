//! A SimpleFIN server.

use axum::Router;
use axum::response::IntoResponse as _;
use bellbird_requests::routes::DoorTable;
use bellbird_requests::{Credentials, Door, Route};

use crate::Interop;

static ROUTES: [Route; 0] = [];

pub(crate) fn door(interop: Interop) -> Door {
    let table = DoorTable {
        prefix: "/simplefin",
        routes: &ROUTES,
        credentials: Credentials::Basic,
        deny: |problem| problem.into_response(),
    };
    Door { table, router: Router::new().with_state(interop) }
}
