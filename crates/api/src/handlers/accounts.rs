//! `GET /v1/accounts`: the accounts of all connections, from the database.

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use bellbird_domain::{Caller, page};

use crate::json::json;
use crate::params::Params;
use crate::problem::Problem;
use crate::state::AppState;
use crate::views::{AccountList, AccountView, Pagination};

/// List accounts
///
/// The accounts of all connections, sorted by name (by code point), then by id. `pagination.total` is exact.
#[utoipa::path(
    get,
    path = "/v1/accounts",
    tag = "Connections and accounts",
    responses((status = 200, description = "A window of the accounts.", body = AccountList))
)]
pub(crate) async fn list_accounts(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let mut params = Params::read(query.as_deref(), &["limit", "offset"]);
    let page = params.page(page::ACCOUNTS);
    params.finish()?;
    let (accounts, total) = state.inner.storage.list_accounts(caller.user_id, page.limit, page.offset).await?;
    let data = accounts.iter().map(AccountView::from).collect();
    json(&AccountList { data, pagination: Pagination::exact(page, total) })
}
