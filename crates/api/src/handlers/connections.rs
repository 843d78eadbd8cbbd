//! `GET /v1/connections`: from the database, cached until the user's revision changes.

use axum::extract::State;
use axum::response::Response;

use crate::cache::MetadataList;
use crate::front::extract::Admitted;
use crate::front::json::{json_bytes, to_json};
use crate::front::problem::Problem;
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
    Admitted { caller, now, .. }: Admitted,
) -> Result<Response, Problem> {
    let (cache, list) = (&state.inner.metadata_cache, MetadataList::Connections);
    if let Some(body) = cache.get(&caller, list, now) {
        return Ok(json_bytes(body));
    }
    let connections = state.access.storage().connections().list(caller.user_id).await?;
    let body = to_json(&ConnectionList { data: connections.iter().map(ConnectionView::from).collect() })?;
    cache.insert(&caller, list, body.clone(), now);
    Ok(json_bytes(body))
}
