//! The body of `GET /v1/trades`.

use bellbird_domain::trade::TradeId;
use bellbird_domain::{AccountId, Decimal, Trade, TradeType};
use serde::Serialize;
use utoipa::ToSchema;

use super::pagination::TradesPagination;

/// A row of a brokerage account's activity: a fill, a dividend, a fee, a transfer and so on.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Trade)]
pub struct TradeView<'a> {
    /// Opaque, and not unique: two identical fills have the same id.
    #[schema(
        value_type = String, example = "2026-03-22T16:27:55Z-VAB.TO-BUY--2.08-5.2-2026-03-26T00:00:00Z-0-BOUGHT VAB"
    )]
    id: TradeId<'a, 'a>,
    /// The account of the trade.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    account_id: AccountId,
    /// Display name of that account.
    #[schema(example = "Margin Account")]
    account_name: &'a str,
    /// Ticker; empty if the row has no security.
    #[schema(example = "VAB.TO")]
    symbol: &'a str,
    /// The security's name; for an option, the name of its underlying.
    #[schema(required = true, example = "VANGUARD CDN AGGREGATE BOND INDEX ETF")]
    name: Option<&'a str>,
    /// The kind of activity.
    #[schema(value_type = String, example = "buy")]
    r#type: TradeType,
    /// Number of units, an exact decimal with the provider's digits and the broker's sign; `0` if there are none.
    #[schema(value_type = String, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "5.2")]
    quantity: &'a str,
    /// Price of a unit, an exact decimal; `0` if there is none.
    #[schema(value_type = String, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "0.4")]
    price: &'a str,
    /// ISO 4217 code, or the ticker of a crypto asset.
    #[schema(example = "CAD")]
    currency: &'a str,
    /// Change in cash, an exact decimal: positive in, negative out; `0` if there is none.
    #[schema(value_type = String, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "-2.08")]
    total_amount: &'a str,
    /// Fees, an exact decimal.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "0"
    )]
    fees: Option<&'a Decimal<'a>>,
    /// The trade date: a day or an ISO 8601 time, as the broker reports it.
    #[schema(example = "2026-03-22T16:27:55Z")]
    trade_date: &'a str,
    /// The settlement date: a day or an ISO 8601 time, as the broker reports it.
    #[schema(required = true, example = "2026-03-26T00:00:00Z")]
    settlement_date: Option<&'a str>,
    /// The broker's description.
    #[schema(required = true, example = "BOUGHT VAB")]
    description: Option<&'a str>,
}

impl<'a> TradeView<'a> {
    #[must_use]
    pub fn new(trade: &'a Trade<'a>) -> Self {
        let or_zero = |number: &'a Option<Decimal<'a>>| number.as_ref().map_or("0", Decimal::as_str);
        Self {
            id: trade.id(),
            account_id: trade.account.id,
            account_name: &trade.account.name,
            symbol: &trade.symbol,
            name: trade.name.as_deref(),
            r#type: trade.trade_type,
            quantity: or_zero(&trade.quantity),
            price: or_zero(&trade.price),
            currency: &trade.currency,
            total_amount: or_zero(&trade.total_amount),
            fees: trade.fees.as_ref(),
            trade_date: &trade.trade_date,
            settlement_date: trade.settlement_date.as_deref(),
            description: trade.description.as_deref(),
        }
    }
}

/// A window of the trades, newest first.
#[derive(ToSchema)]
#[schema(as = TradeList)]
pub struct TradeList<'a> {
    /// The trades in the window.
    #[expect(dead_code, reason = "describes the body that the handler writes row by row")]
    data: Vec<TradeView<'a>>,
    /// The position of this window in the list.
    #[expect(dead_code, reason = "describes the body that the handler writes row by row")]
    pagination: TradesPagination,
}
