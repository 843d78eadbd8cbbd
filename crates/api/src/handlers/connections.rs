//! `GET /v1/connections`

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::Caller;

use super::json;
use crate::problem::Problem;
use crate::state::AppState;
use crate::views::{ConnectionList, ConnectionView};

/// List connections
///
/// All connections of the user, newest first. Connections that are being removed are not shown.
#[utoipa::path(
    get,
    path = "/v1/connections",
    tag = "Connections and accounts",
    responses((status = 200, description = "The connections.", body = ConnectionList))
)]
pub(crate) async fn list_connections(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let connections = state.inner.storage.list_connections(caller.user_id).await?;
    json(&ConnectionList { data: connections.iter().map(ConnectionView::from).collect() })
}
