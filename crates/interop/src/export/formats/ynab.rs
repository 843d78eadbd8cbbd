//! The columns that YNAB's file import expects. It has none for an id, an account or a currency.

use bellbird_domain::{Currency, Transaction};
use jiff::civil::Date;

use super::csv::CsvLines;
use super::text::payee;
use super::{FormatError, Head, Options, WriteFile, amounts};

const COLUMNS: [&str; 5] = ["Date", "Payee", "Memo", "Outflow", "Inflow"];

pub(super) struct Ynab {
    lines: CsvLines,
    currency: Option<Currency>,
}

impl Ynab {
    pub(super) fn new(options: Options) -> Self {
        Self {
            lines: CsvLines::new(options),
            currency: None,
        }
    }
}

impl WriteFile for Ynab {
    fn start(&mut self, head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let account = head.account.ok_or(FormatError::OneAccount)?;
        self.currency = amounts::known(account.currency);
        self.lines.header(&COLUMNS, out);
        Ok(())
    }

    fn transaction(
        &mut self,
        row: &Transaction<'_>,
        date: Date,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        amounts::require_currency(self.currency, row.currency)?;
        let lines = &mut self.lines;
        let amount = amounts::absolute(&row.amount);
        let (outflow, inflow) = if row.amount.is_negative() {
            (amount, "")
        } else {
            ("", amount)
        };
        lines.plain(&date.to_string(), out);
        lines.text(&payee(row), out);
        lines.text(&row.description, out);
        lines.plain(outflow, out);
        lines.plain(inflow, out);
        lines.end_line(out);
        Ok(())
    }
}
