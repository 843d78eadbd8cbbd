//! The body of `GET /v1/balances`.

use bellbird_domain::{AccountId, Balance, Currency, Decimal};
use serde::Serialize;
use utoipa::ToSchema;

/// The balance of one account. All three values are null if the provider failed for this account.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Balance)]
pub struct BalanceView<'a> {
    /// The account.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    account_id: AccountId,
    /// Exact decimal with the provider's digits; negative when money is owed.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "-250.00"
    )]
    current_balance: Option<&'a Decimal<'static>>,
    /// Available funds, an exact decimal with the provider's digits.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "1500.00"
    )]
    available_balance: Option<&'a Decimal<'static>>,
    /// ISO 4217 code of both balances.
    #[schema(value_type = Option<String>, required = true, pattern = "^[A-Z]{3}$", example = "AUD")]
    currency: Option<Currency>,
}

impl<'a> BalanceView<'a> {
    #[must_use]
    pub fn new(account_id: AccountId, balance: Option<&'a Balance>) -> Self {
        Self {
            account_id,
            current_balance: balance.and_then(|balance| balance.current.as_ref()),
            available_balance: balance.and_then(|balance| balance.available.as_ref()),
            currency: balance.and_then(|balance| balance.currency),
        }
    }
}

/// One entry for each requested account, in no particular order.
#[derive(Serialize, ToSchema)]
#[schema(as = BalanceList)]
pub struct BalanceList<'a> {
    /// The balances.
    pub data: Vec<BalanceView<'a>>,
}
