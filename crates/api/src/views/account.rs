//! The body of `GET /v1/accounts`.

use bellbird_domain::{Account, AccountId, AccountType, ConnectionId, Currency};
use serde::Serialize;
use utoipa::ToSchema;

use super::pagination::Pagination;

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
    #[schema(value_type = String, example = "transaction")]
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
