//! `GET /v1/connections`: from the database, cached until the user's revision changes.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::Caller;
use bytes::Bytes;

use crate::extract::RequestTime;
use crate::json::json_bytes;
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
    RequestTime(now): RequestTime,
) -> Result<Response, Problem> {
    let lists = &state.inner.connection_lists;
    if let Some(((revision, list), _)) = lists.get(&caller.user_id, now)
        && revision == caller.revision
    {
        return Ok(json_bytes(list));
    }
    let connections = state.inner.storage.list_connections(caller.user_id).await?;
    let list = ConnectionList { data: connections.iter().map(ConnectionView::from).collect() };
    let list = Bytes::from(serde_json::to_vec(&list).map_err(|_| Problem::Internal)?);
    // The list was read after the revision, so it can be newer. Later callers then have a higher revision and ignore
    // it.
    lists.insert(caller.user_id, (caller.revision, list.clone()), now);
    Ok(json_bytes(list))
}
