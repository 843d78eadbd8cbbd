//! The JSON types of SnapTrade's API (docs/providers/snaptrade.md#users to #activities, and
//! #webhooks).
//!
//! Unused members are left out and unknown members are ignored. A member is optional unless the
//! documentation promises it.

use serde::Deserialize;
use serde_json::Value;

use crate::exact::ExactNumber;
use crate::text::Text;

/// `POST /snapTrade/registerUser`. No `Debug`: it holds a secret.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Registered {
    pub(super) user_secret: String,
}

/// `POST /snapTrade/login`.
#[derive(Deserialize)]
pub(super) struct Login<'a> {
    #[serde(borrow, rename = "redirectURI")]
    pub(super) redirect_uri: Text<'a>,
}

/// A webhook.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    pub(super) event_type: String,
    pub(super) event_timestamp: Option<Value>,
    pub(super) client_id: Option<Value>,
    pub(super) webhook_id: Option<Value>,
    /// `webhookId`, misspelt in some bodies. A serde alias would fail on a body with both names.
    pub(super) webook_id: Option<Value>,
    pub(super) user_id: Option<Value>,
    pub(super) brokerage_authorization_id: Option<Value>,
    pub(super) account_id: Option<Value>,
}

/// An item of `GET /authorizations`.
#[derive(Deserialize)]
pub(super) struct Connection {
    pub(super) id: String,
    pub(super) brokerage: Option<Brokerage>,
    pub(super) disabled: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct Brokerage {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) display_name: Option<String>,
    pub(super) aws_s3_logo_url: Option<String>,
    pub(super) aws_s3_square_logo_url: Option<String>,
}

/// An item of `GET /authorizations/{id}/accounts`. No `Debug`: it holds a full account number.
#[derive(Deserialize, Default)]
pub(super) struct Account<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    pub(super) name: Option<Text<'a>>,
    pub(super) number: Option<Text<'a>>,
    pub(super) institution_account_id: Option<Text<'a>>,
    pub(super) institution_name: Option<Text<'a>>,
    pub(super) raw_type: Option<Text<'a>>,
    pub(super) account_category: Option<Text<'a>>,
    pub(super) balance: Option<AccountBalance<'a>>,
}

#[derive(Deserialize)]
pub(super) struct AccountBalance<'a> {
    #[serde(borrow)]
    pub(super) total: Option<Total<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Total<'a> {
    #[serde(borrow)]
    pub(super) amount: Option<ExactNumber<'a>>,
    pub(super) currency: Option<Text<'a>>,
}

/// An item of `GET /accounts/{id}/balances`, which has one for each currency.
#[derive(Deserialize)]
pub(super) struct Balance<'a> {
    #[serde(borrow)]
    pub(super) currency: Option<Currency<'a>>,
    pub(super) cash: Option<ExactNumber<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Currency<'a> {
    #[serde(borrow)]
    pub(super) code: Option<Text<'a>>,
}

/// `GET /accounts/{id}/positions/all`.
#[derive(Deserialize)]
pub(super) struct Positions<'a> {
    #[serde(borrow)]
    pub(super) results: Vec<Position<'a>>,
}

/// No `Debug`: it holds amounts.
#[derive(Deserialize)]
pub(super) struct Position<'a> {
    #[serde(borrow)]
    pub(super) instrument: Option<Instrument<'a>>,
    pub(super) units: Option<ExactNumber<'a>>,
    pub(super) price: Option<ExactNumber<'a>>,
    pub(super) cost_basis: Option<ExactNumber<'a>>,
    pub(super) currency: Option<Text<'a>>,
}

/// An instrument of any `kind`, with the members of all kinds.
#[derive(Deserialize, Default)]
pub(super) struct Instrument<'a> {
    #[serde(borrow)]
    pub(super) kind: Option<Text<'a>>,
    pub(super) id: Option<Text<'a>>,
    pub(super) symbol: Option<Text<'a>>,
    pub(super) raw_symbol: Option<Text<'a>>,
    pub(super) root_symbol: Option<Text<'a>>,
    pub(super) description: Option<Text<'a>>,
    pub(super) currency: Option<Text<'a>>,
    pub(super) exchange: Option<Text<'a>>,
    pub(super) multiplier: Option<ExactNumber<'a>>,
}

/// `GET /accounts/{id}/activities`.
#[derive(Deserialize)]
pub(super) struct Activities<T> {
    pub(super) data: Vec<T>,
    pub(super) pagination: Pagination,
}

#[derive(Deserialize)]
pub(super) struct Pagination {
    pub(super) total: u64,
}

/// No `Debug`: it holds amounts and a description.
#[derive(Deserialize)]
pub(super) struct Activity<'a> {
    #[serde(borrow)]
    pub(super) symbol: Option<Symbol<'a>>,
    pub(super) option_symbol: Option<OptionSymbol<'a>>,
    pub(super) currency_universal_symbol: Option<Symbol<'a>>,
    pub(super) price: Option<ExactNumber<'a>>,
    pub(super) units: Option<ExactNumber<'a>>,
    pub(super) amount: Option<ExactNumber<'a>>,
    pub(super) fee: Option<ExactNumber<'a>>,
    pub(super) currency: Option<Currency<'a>>,
    #[serde(rename = "type")]
    pub(super) activity_type: Option<Text<'a>>,
    pub(super) description: Option<Text<'a>>,
    pub(super) trade_date: Option<Text<'a>>,
    pub(super) settlement_date: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Symbol<'a> {
    #[serde(borrow)]
    pub(super) symbol: Option<Text<'a>>,
    pub(super) description: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct OptionSymbol<'a> {
    #[serde(borrow)]
    pub(super) ticker: Option<Text<'a>>,
    pub(super) underlying_symbol: Option<Symbol<'a>>,
}

/// The body of an error. The documentation has two names for the code, and strings and numbers as
/// its type (docs/providers/snaptrade.md#errors).
#[derive(Deserialize, Default)]
pub(super) struct ErrorBody {
    pub(super) code: Option<Value>,
    pub(super) default_code: Option<Value>,
}
