//! Comma-separated values (RFC 4180): UTF-8, one header line, the names of `/v1`.

use std::borrow::Cow;

use bellbird_domain::{Account, Category, Decimal, Holding, MaskedNumber, Trade, Transaction};
use jiff::civil::Date;
use uuid::Uuid;

use super::{FormatError, Head, Options, Resource, WriteFile};

const TRANSACTION_COLUMNS: [&str; 15] = [
    "id",
    "accountId",
    "accountName",
    "status",
    "date",
    "datetime",
    "description",
    "amount",
    "currency",
    "direction",
    "category",
    "merchantName",
    "merchantCategoryCode",
    "institutionName",
    "accountNumber",
];

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

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Appends fields and lines.
pub struct CsvLines {
    writer: csv_core::Writer,
    options: Options,
    /// Whether the line has a field already.
    begun: bool,
}

impl CsvLines {
    pub fn new(options: Options) -> Self {
        let writer = csv_core::WriterBuilder::new()
            .terminator(csv_core::Terminator::CRLF)
            .build();
        Self {
            writer,
            options,
            begun: false,
        }
    }

    pub fn header(&mut self, columns: &[&str], out: &mut Vec<u8>) {
        if self.options.byte_order_mark {
            out.extend_from_slice(BYTE_ORDER_MARK.as_bytes());
        }
        columns.iter().for_each(|column| self.plain(column, out));
        self.end_line(out);
    }

    /// A field with untrusted text.
    pub fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        if self.options.quote_formulas {
            self.plain(&quote_formulas(text), out);
        } else {
            self.plain(text, out);
        }
    }

    /// A field that Bellbird writes itself, or an amount.
    pub fn plain(&mut self, text: &str, out: &mut Vec<u8>) {
        if self.begun {
            // Behind the end of a quoted field.
            self.write(2, out, |writer, space| writer.delimiter(space).1);
        }
        self.begun = true;
        // A quoted field begins with a quote and doubles those in it.
        self.write(1 + 2 * text.len(), out, |writer, space| {
            writer.field(text.as_bytes(), space).2
        });
    }

    /// The id and the name.
    pub(super) fn account(&mut self, account: &Account, out: &mut Vec<u8>) {
        self.plain(
            account
                .id
                .uuid()
                .hyphenated()
                .encode_lower(&mut Uuid::encode_buffer()),
            out,
        );
        self.text(&account.name, out);
    }

    /// Ends a line with institution and masked number, which tell accounts of one name apart. They
    /// come last, so that programs that read columns by their position find all others where they
    /// were.
    pub(super) fn end_line_of(&mut self, account: &Account, out: &mut Vec<u8>) {
        self.text(account.institution_name.as_deref().unwrap_or_default(), out);
        self.plain(
            account.number.as_ref().map_or("", MaskedNumber::as_str),
            out,
        );
        self.end_line(out);
    }

    pub fn end_line(&mut self, out: &mut Vec<u8>) {
        // The end of a quoted field, or the quotes of an empty line, and the end of the line.
        self.write(4, out, |writer, space| writer.terminator(space).1);
        self.begun = false;
    }

    /// Appends what `write` writes: at most `room` bytes. It returns how many.
    fn write(
        &mut self,
        room: usize,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut csv_core::Writer, &mut [u8]) -> usize,
    ) {
        let start = out.len();
        out.resize(start + room, 0);
        let written = write(&mut self.writer, &mut out[start..]);
        out.truncate(start + written);
    }
}

/// Puts `'` before a text that begins a formula, and before each part of it that would: a
/// spreadsheet may split at semicolons and tabs too, as Excel does where commas are in numbers.
fn quote_formulas(text: &str) -> Cow<'_, str> {
    let is_separator = |character: char| matches!(character, ';' | '\t' | '\r' | '\n');
    if !begins_formula(text) && !text.contains(is_separator) {
        return text.into();
    }
    let mut quoted = String::with_capacity(text.len() + 4);
    if begins_formula(text) {
        quoted.push('\'');
    }
    for part in text.split_inclusive(is_separator) {
        if !quoted.is_empty()
            && begins_formula(part.trim_start_matches('"'))
            && !quoted.ends_with('\'')
        {
            quoted.push('\'');
        }
        quoted.push_str(part);
    }
    quoted.into()
}

/// Whether spreadsheets take a cell with this text for a formula. Some take the full-width forms of
/// the signs too.
fn begins_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'])
}

pub(super) struct Csv(CsvLines);

impl Csv {
    pub(super) fn new(options: Options) -> Self {
        Self(CsvLines::new(options))
    }
}

impl WriteFile for Csv {
    fn start(&mut self, head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let columns: &[&str] = match head.resource {
            Resource::Transactions => &TRANSACTION_COLUMNS,
            Resource::Trades => &TRADE_COLUMNS,
            Resource::Holdings => &HOLDING_COLUMNS,
        };
        self.0.header(columns, out);
        Ok(())
    }

    fn transaction(
        &mut self,
        row: &Transaction<'_>,
        date: Date,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let lines = &mut self.0;
        lines.text(&row.id, out);
        lines.account(row.account, out);
        lines.plain("posted", out);
        lines.plain(&date.to_string(), out);
        lines.text(&row.datetime, out);
        lines.text(&row.description, out);
        lines.plain(row.amount.as_str(), out);
        lines.plain(row.actual_currency().as_str(), out);
        lines.plain(row.direction(), out);
        lines.plain(row.category.map_or("", Category::key), out);
        lines.text(row.merchant_name.as_deref().unwrap_or_default(), out);
        lines.text(
            row.merchant_category_code.as_deref().unwrap_or_default(),
            out,
        );
        lines.end_line_of(row.account, out);
        Ok(())
    }

    fn trade(&mut self, trade: &Trade<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let lines = &mut self.0;
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
        Ok(())
    }

    fn holding(&mut self, holding: &Holding<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let lines = &mut self.0;
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
        Ok(())
    }
}
