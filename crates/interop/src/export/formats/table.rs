//! Trades and holdings, as CSV or as JSON Lines.

use bellbird_api::http::json::write_json;
use bellbird_api::v1::{HoldingView, TradeView};
use bellbird_domain::{Decimal, Holding, Trade};

use super::csv::CsvLines;
use super::{Format, LeftOut, Options, jsonl};

const TRADE_COLUMNS: [&str; 16] = [
    "id",
    "accountId",
    "accountName",
    "symbol",
    "name",
    "type",
    "quantity",
    "price",
    "currency",
    "totalAmount",
    "fees",
    "tradeDate",
    "settlementDate",
    "description",
    "institutionName",
    "accountNumber",
];

const HOLDING_COLUMNS: [&str; 14] = [
    "id",
    "accountId",
    "accountName",
    "symbol",
    "name",
    "exchange",
    "currency",
    "quantity",
    "averagePrice",
    "currentPrice",
    "marketValue",
    "unrealizedPnl",
    "institutionName",
    "accountNumber",
];

/// Writes a file of trades or of holdings. Call `start_trades` and `trade`, or `start_holdings` and
/// `holding`, and then `end`.
pub struct Table(Kind);

enum Kind {
    Csv(Box<CsvLines>),
    Jsonl,
}

impl Table {
    /// `None` if the format holds neither. See [`Format::holds_tables`].
    #[must_use]
    pub fn new(format: Format, options: Options) -> Option<Self> {
        match format {
            Format::Csv => Some(Self(Kind::Csv(Box::new(CsvLines::new(options))))),
            Format::Jsonl => Some(Self(Kind::Jsonl)),
            _ => None,
        }
    }

    pub fn start_trades(&mut self, out: &mut Vec<u8>) {
        self.start(&TRADE_COLUMNS, out);
    }

    pub fn start_holdings(&mut self, out: &mut Vec<u8>) {
        self.start(&HOLDING_COLUMNS, out);
    }

    fn start(&mut self, columns: &[&str], out: &mut Vec<u8>) {
        if let Kind::Csv(lines) = &mut self.0 {
            lines.header(columns, out);
        }
    }

    pub fn trade(&mut self, trade: &Trade<'_>, out: &mut Vec<u8>) {
        let Kind::Csv(lines) = &mut self.0 else {
            write_json(&TradeView::new(trade), out);
            return out.push(b'\n');
        };
        let or_zero =
            |number: &Option<Decimal<'_>>| number.as_ref().map_or("0", Decimal::as_str).to_owned();
        lines.text(&trade.id().to_string(), out);
        lines.account(trade.account, out);
        lines.text(&trade.symbol, out);
        lines.text(trade.name.as_deref().unwrap_or_default(), out);
        lines.plain(trade.trade_type.as_str(), out);
        lines.plain(&or_zero(&trade.quantity), out);
        lines.plain(&or_zero(&trade.price), out);
        lines.text(&trade.currency, out);
        lines.plain(&or_zero(&trade.total_amount), out);
        lines.plain(trade.fees.as_ref().map_or("", Decimal::as_str), out);
        lines.text(&trade.trade_date, out);
        lines.text(trade.settlement_date.as_deref().unwrap_or_default(), out);
        lines.text(trade.description.as_deref().unwrap_or_default(), out);
        lines.end_line_of(trade.account, out);
    }

    pub fn holding(&mut self, holding: &Holding<'_>, out: &mut Vec<u8>) {
        let Kind::Csv(lines) = &mut self.0 else {
            write_json(&HoldingView::new(holding), out);
            return out.push(b'\n');
        };
        let numbers = [
            &holding.average_price,
            &holding.current_price,
            &holding.market_value,
            &holding.unrealized_pnl,
        ];
        lines.text(&holding.id(), out);
        lines.account(holding.account, out);
        lines.text(&holding.symbol, out);
        lines.text(holding.name.as_deref().unwrap_or_default(), out);
        lines.text(holding.exchange.as_deref().unwrap_or_default(), out);
        lines.text(&holding.currency, out);
        lines.plain(holding.quantity.as_str(), out);
        for number in numbers {
            lines.plain(number.as_ref().map_or("", Decimal::as_str), out);
        }
        lines.end_line_of(holding.account, out);
    }

    /// What follows the last row: nothing in CSV.
    pub fn end(&mut self, left_out: Option<&[LeftOut]>, out: &mut Vec<u8>) {
        if let Kind::Jsonl = self.0 {
            jsonl::write_left_out(left_out, out);
        }
    }
}
