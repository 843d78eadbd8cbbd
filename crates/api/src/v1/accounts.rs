//! `GET /v1/accounts`: the accounts of all connections, from the database, cached until the user's revision changes.

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{Account, AccountId, AccountType, ConnectionId, Currency, page};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::front::json::{json_bytes, to_json};
use crate::front::parameters::{self, Limit, Offset};
use crate::front::{Authorized, Operation, Path, Problem, Query};
use crate::v1::metadata_cache::MetadataList;
use crate::v1::pagination::Pagination;
use crate::v1::state::V1State;

type AccountsLimit = Limit<{ page::ACCOUNTS.default }, { page::ACCOUNTS.max }>;

pub(super) fn path() -> Path<V1State> {
    Path::get("/v1/accounts", |state: &V1State| &state.access.quotas().metadata, list_accounts).described(
        Operation::new("list_accounts", "Connections and accounts", "A window of the accounts.")
            .text(
                "List accounts",
                "The accounts of all connections, sorted by name (by code point), then by id. `pagination.total` is \
                 exact.",
            )
            .query::<AccountsQuery>()
            .json::<AccountList<'static>>()
            .error(400, "`limit` or `offset` is invalid."),
    )
}

async fn list_accounts(
    State(state): State<V1State>,
    Authorized { caller, now, .. }: Authorized,
    Query(query): Query<AccountsQuery>,
) -> Result<Response, Problem> {
    let page = parameters::page(query.limit, query.offset);
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

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AccountsQuery {
    /// Maximum number of items, 1 to 200. Larger values are clamped; `pagination.limit` shows the value applied.
    #[param(inline, example = 50)]
    limit: Option<AccountsLimit>,
    /// Number of items to skip.
    #[param(inline, example = 0)]
    offset: Option<Offset>,
}

/// One account of a connection.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Account)]
pub struct AccountView<'a> {
    /// Identifier, a UUID assigned by this service.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    id: AccountId,
    /// The account's connection.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
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
            account_number: account.number.as_ref().map(bellbird_domain::MaskedNumber::as_str),
            currency: account.currency,
        }
    }
}

/// A window of the accounts, sorted by name.
#[derive(Serialize, ToSchema)]
#[schema(as = AccountList)]
pub struct AccountList<'a> {
    /// The accounts in the window.
    pub data: Vec<AccountView<'a>>,
    /// The position of this window in the list.
    pub pagination: Pagination,
}
