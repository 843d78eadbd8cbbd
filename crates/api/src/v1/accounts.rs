//! `GET /v1/accounts`: the accounts of all connections, from the database, cached until the user's
//! revision changes.

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{
    Account, AccountId, AccountType, ConnectionId, Currency, Page, UserId, page,
};
use serde::{Deserialize, Serialize};

use crate::http::documented::PlanErrors;
use crate::http::json::{json_bytes, respond, to_json};
use crate::http::parameters::{self, ConnectionParam, Limit, Offset};
use crate::http::{Authorized, Problem, Query};
use crate::v1::metadata_cache::MetadataList;
use crate::v1::pagination::Pagination;
use crate::v1::state::V1State;

type AccountsLimit = Limit<{ page::ACCOUNTS.default }, { page::ACCOUNTS.max }>;

/// List accounts
///
/// The accounts of all connections, or of one, sorted by name (by code point), then by id.
/// `pagination.total` is exact.
#[utoipa::path(
    get, path = "/v1/accounts", tag = "Connections and accounts",
    params(AccountsQuery),
    responses(
        (status = 200, description = "A window of the accounts.", body = AccountList),
        (status = 404, description = "The connection does not exist."),
        PlanErrors,
    ),
)]
pub(super) async fn list_accounts(
    State(state): State<V1State>,
    Authorized { caller, now, .. }: Authorized,
    Query(query): Query<AccountsQuery>,
) -> Result<Response, Problem> {
    let page = parameters::page(query.limit, query.offset);
    if let Some(connection_id) = query.connection_id {
        return list_of_connection(&state, caller.user_id, connection_id, page).await;
    }
    let (cache, list) = (&state.inner.metadata_cache, MetadataList::Accounts(page));
    if let Some(body) = cache.get(&caller, list, now) {
        return Ok(json_bytes(body));
    }
    let (accounts, total) = state
        .context
        .storage()
        .accounts()
        .list(caller.user_id, page.limit, page.offset)
        .await?;
    let data = accounts.iter().map(AccountView::from).collect();
    let body = to_json(&AccountList {
        data,
        pagination: Pagination::exact(page, total),
    })?;
    cache.insert(&caller, list, body.clone(), now);
    Ok(json_bytes(body))
}

async fn list_of_connection(
    state: &V1State,
    user_id: UserId,
    connection_id: ConnectionParam,
    page: Page,
) -> Result<Response, Problem> {
    const NOUN: &str = "Connection";
    let (storage, id) = (state.context.storage(), connection_id.require(NOUN)?);
    storage
        .connections()
        .find(user_id, id)
        .await?
        .ok_or(Problem::NotFound(NOUN))?;
    let accounts = storage.accounts().list_of_connection(user_id, id).await?;
    let offset = usize::try_from(page.offset).unwrap_or(usize::MAX);
    let data = accounts
        .iter()
        .skip(offset)
        .take(page.limit as usize)
        .map(AccountView::from)
        .collect();
    let pagination = Pagination::exact(page, accounts.len() as u64);
    respond(&AccountList { data, pagination })
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct AccountsQuery {
    /// Only the accounts of this connection.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    connection_id: Option<ConnectionParam>,
    /// Maximum number of items, 1 to 200. Larger values are clamped; `pagination.limit` shows the
    /// value applied.
    #[param(inline, example = 50)]
    limit: Option<AccountsLimit>,
    /// Number of items to skip.
    #[param(inline, example = 0)]
    offset: Option<Offset>,
}

/// One account of a connection.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Account)]
pub struct AccountView<'a> {
    /// Identifier, a UUID assigned by this service.
    #[schema(value_type = Uuid, example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    id: AccountId,
    /// The account's connection.
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    connection_id: ConnectionId,
    /// The connection's provider. Null only for legacy accounts, of which this service has none.
    #[schema(value_type = Option<String>, required = true, example = "fiskil")]
    provider: &'a str,
    /// Display name.
    #[schema(example = "Everyday Account")]
    name: &'a str,
    /// The kind of account.
    #[schema(inline, example = "transaction")]
    r#type: AccountType,
    /// Display name of the institution.
    #[schema(required = true, example = "Wattle Bank")]
    institution_name: Option<&'a str>,
    /// `xxxx` and the last four digits. The full number is never stored.
    #[schema(required = true, pattern = "^xxxx[0-9]{4}$", example = "xxxx1234")]
    account_number: Option<&'a str>,
    /// ISO 4217 code; `XXX` until the provider reports one.
    #[schema(value_type = String, pattern = "^[A-Z]{3}$", example = "AUD")]
    currency: Currency,
}

impl<'a> From<&'a Account> for AccountView<'a> {
    fn from(account: &'a Account) -> Self {
        Self {
            id: account.id,
            connection_id: account.connection_id,
            provider: &account.provider,
            name: &account.name,
            r#type: account.account_type,
            institution_name: account.institution_name.as_deref(),
            account_number: account
                .number
                .as_ref()
                .map(bellbird_domain::MaskedNumber::as_str),
            currency: account.currency,
        }
    }
}

/// A window of the accounts, sorted by name.
#[derive(Serialize, utoipa::ToSchema)]
pub struct AccountList<'a> {
    /// The accounts in the window.
    pub data: Vec<AccountView<'a>>,
    /// The position of this window in the list.
    pub pagination: Pagination,
}
