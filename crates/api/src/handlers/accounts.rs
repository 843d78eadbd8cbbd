//! `GET /v1/accounts`: the accounts of all connections, from the database, cached until the user's revision changes.

use axum::extract::State;
use axum::response::Response;

use crate::cache::MetadataList;
use crate::front::extract::{Admitted, Query};
use crate::front::json::{json_bytes, to_json};
use crate::front::parameters::page;
use crate::front::problem::Problem;
use crate::queries::AccountsQuery;
use crate::state::AppState;
use crate::views::{AccountList, AccountView, Pagination};

/// List accounts
///
/// The accounts of all connections, sorted by name (by code point), then by id. `pagination.total` is exact.
#[utoipa::path(
    get,
    path = "/v1/accounts",
    tag = "Connections and accounts",
    params(AccountsQuery),
    responses((status = 200, description = "A window of the accounts.", body = AccountList))
)]
pub(crate) async fn list_accounts(
    State(state): State<AppState>,
    Admitted { caller, now, .. }: Admitted,
    Query(query): Query<AccountsQuery>,
) -> Result<Response, Problem> {
    let page = page(query.limit, query.offset);
    let (cache, list) = (&state.inner.metadata_cache, MetadataList::Accounts(page));
    if let Some(body) = cache.get(&caller, list, now) {
        return Ok(json_bytes(body));
    }
    let (accounts, total) = state.access.storage().accounts().list(caller.user_id, page.limit, page.offset).await?;
    let data = accounts.iter().map(AccountView::from).collect();
    let body = to_json(&AccountList { data, pagination: Pagination::exact(page, total) })?;
    cache.insert(&caller, list, body.clone(), now);
    Ok(json_bytes(body))
}
