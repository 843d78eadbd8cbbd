//! `list_trades`: activity of brokerage accounts, newest first.

use bellbird_domain::{AccountId, ConnectionCategory, Decimal, Trade, TradeType};
use bellbird_reads::Trades;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ToolCall;
use super::merged::{self, ListProgress, Listing, ResultRow};
use crate::mcp::arguments::{Accounts, DayOrTime, RowLimit, date_filter};
use crate::mcp::cursor::Resumed;
use crate::mcp::output;
use crate::mcp::texts::{CELL_CHARS_MAX, TEXT_CHARS_MAX, cell, clean, visible};

const COLUMNS: &str =
    "| date | type | symbol | quantity | price | total | currency | description | account |";

/// A row as in `/v1/trades`, with cleaned texts.
#[derive(Serialize)]
struct Row {
    id: String,
    account_id: AccountId,
    symbol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    r#type: TradeType,
    quantity: String,
    price: String,
    currency: String,
    total_amount: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fees: Option<String>,
    trade_date: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    settlement_date: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

#[derive(Deserialize)]
struct TradesArguments {
    account_ids: Option<Accounts>,
    from: Option<DayOrTime>,
    to: Option<DayOrTime>,
    limit: Option<RowLimit>,
}

pub(super) async fn list_trades(
    call: &ToolCall<'_>,
    arguments: Map<String, Value>,
) -> Result<Vec<u8>, String> {
    let resumed = Resumed::<ListProgress>::of(&call.seal(), arguments, call.now)?;
    let arguments: TradesArguments = resumed.read()?;
    let dates = date_filter(arguments.from, arguments.to)?;
    let limit = arguments.limit.unwrap_or_default().0;
    let _permit = call.admit(|quotas| &quotas.brokerage).await?;
    let selected = call
        .select(
            arguments.account_ids,
            ConnectionCategory::Brokerage,
            &resumed.position.left_out,
        )
        .await?;
    let listing = Listing {
        name: "trades",
        range: String::new(),
        columns: COLUMNS,
        limit,
        is_counted: merged::is_counted(&dates, resumed.asked_at(), None),
        is_filtered: false,
    };
    merged::result::<Trades, _>(
        call,
        &resumed,
        selected,
        &listing,
        |_| dates,
        |trade: &Trade<'_>, _| Some(Row::of(trade)),
    )
    .await
}

impl Row {
    fn of(trade: &Trade<'_>) -> Self {
        let text = |text: &str| clean(text, CELL_CHARS_MAX);
        let or_zero = |number: &Option<Decimal<'_>>| {
            number
                .as_ref()
                .map_or_else(|| "0".to_owned(), ToString::to_string)
        };
        Self {
            id: visible(&trade.id().to_string(), TEXT_CHARS_MAX),
            account_id: trade.account.id,
            symbol: visible(&trade.symbol, CELL_CHARS_MAX),
            name: trade.name.as_deref().map(text),
            r#type: trade.trade_type,
            quantity: or_zero(&trade.quantity),
            price: or_zero(&trade.price),
            currency: text(&trade.currency),
            total_amount: or_zero(&trade.total_amount),
            fees: trade.fees.as_ref().map(ToString::to_string),
            trade_date: text(&trade.trade_date),
            settlement_date: trade.settlement_date.as_deref().map(text),
            description: trade.description.as_deref().map(text),
        }
    }
}

impl ResultRow for Row {
    fn account_id(&self) -> AccountId {
        self.account_id
    }

    fn line(&self, account: &str) -> String {
        let day = self.trade_date.get(..10).unwrap_or(&self.trade_date);
        output::line(&[
            &cell(day),
            self.r#type.as_str(),
            &cell(&self.symbol),
            &self.quantity,
            &self.price,
            &self.total_amount,
            &cell(&self.currency),
            &cell(self.description.as_deref().unwrap_or_default()),
            account,
        ])
    }
}
