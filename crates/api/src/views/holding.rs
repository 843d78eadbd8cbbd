//! The body of `GET /v1/holdings`.

use bellbird_domain::{AccountId, Decimal, Holding};
use serde::Serialize;
use utoipa::ToSchema;

/// A position of a brokerage account. Only `symbol`, `currency` and `quantity` always have a value.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Holding)]
pub struct HoldingView<'a> {
    /// Identifier, stable across requests. Opaque.
    #[schema(example = "0191e7a0-91d4-7a01-8000-00aabbccddee:1ef3a5d3-4a9b-40b2-b8d1-cc35f74d6324")]
    id: String,
    /// The account that holds the position.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    account_id: AccountId,
    /// Display name of that account.
    #[schema(example = "Margin Account")]
    account_name: &'a str,
    /// Ticker.
    #[schema(example = "AAPL")]
    symbol: &'a str,
    /// The security's name.
    #[schema(required = true, example = "Apple Inc.")]
    name: Option<&'a str>,
    /// The exchange as the broker names it: a MIC or an exchange code.
    #[schema(required = true, example = "XNAS")]
    exchange: Option<&'a str>,
    /// ISO 4217 code of the prices and values, or the ticker of a crypto asset.
    #[schema(example = "USD")]
    currency: &'a str,
    /// Number of units, an exact decimal with the provider's digits. Negative for a short position. Fractions occur.
    #[schema(value_type = String, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "10.5")]
    quantity: &'a Decimal<'a>,
    /// Average cost of a unit, an exact decimal.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "118.2"
    )]
    average_price: Option<&'a Decimal<'a>>,
    /// Latest price of a unit, an exact decimal.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "123.45"
    )]
    current_price: Option<&'a Decimal<'a>>,
    /// Value of the position, an exact decimal: quantity times current price, times the contract multiplier.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "1296.225"
    )]
    market_value: Option<&'a Decimal<'a>>,
    /// `marketValue` minus the cost, an exact decimal: quantity times average price, times the contract multiplier.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "55.125"
    )]
    unrealized_pnl: Option<&'a Decimal<'a>>,
}

impl<'a> HoldingView<'a> {
    #[must_use]
    pub fn new(holding: &'a Holding<'a>) -> Self {
        Self {
            id: holding.id(),
            account_id: holding.account.id,
            account_name: &holding.account.name,
            symbol: &holding.symbol,
            name: holding.name.as_deref(),
            exchange: holding.exchange.as_deref(),
            currency: &holding.currency,
            quantity: &holding.quantity,
            average_price: holding.average_price.as_ref(),
            current_price: holding.current_price.as_ref(),
            market_value: holding.market_value.as_ref(),
            unrealized_pnl: holding.unrealized_pnl.as_ref(),
        }
    }
}

/// All positions, account by account.
#[derive(ToSchema)]
#[schema(as = HoldingList)]
pub struct HoldingList<'a> {
    /// The holdings.
    #[expect(dead_code, reason = "describes the body that the handler writes row by row")]
    data: Vec<HoldingView<'a>>,
}
