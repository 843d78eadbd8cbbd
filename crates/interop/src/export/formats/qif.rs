//! Quicken Interchange Format, for programs that read nothing better. It has no id, no currency and
//! no encoding.

use bellbird_domain::{AccountType, Currency, Transaction};
use jiff::civil::Date;

use super::text::{line, one_line, payee};
use super::{FormatError, Head, WriteFile, amounts};

/// Actual drops rows with more digits than its numbers hold.
const DIGITS_MAX: usize = 15;

#[derive(Default)]
pub(super) struct Qif {
    currency: Option<Currency>,
}

impl WriteFile for Qif {
    fn start(&mut self, head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let account = head.account.ok_or(FormatError::OneAccount)?;
        self.currency = amounts::known(account.currency);
        let kind = if account.account_type == AccountType::CreditCard {
            "CCard"
        } else {
            "Bank"
        };
        line(format_args!("!Type:{kind}"), out);
        Ok(())
    }

    fn transaction(
        &mut self,
        row: &Transaction<'_>,
        date: Date,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        amounts::require_currency(self.currency, row.currency)?;
        if amounts::significant_digits(&row.amount) > DIGITS_MAX {
            return Err(FormatError::TooManyDigits);
        }
        // Actual reads 11.125 as 11125.
        let amount = amounts::with_two_places(&row.amount).ok_or(FormatError::TooManyPlaces)?;
        line(format_args!("D{date}\nT{amount}"), out);
        for (mark, text) in [("P", payee(row)), ("M", one_line(&row.description))] {
            if !text.is_empty() {
                line(format_args!("{mark}{text}"), out);
            }
        }
        line(format_args!("^"), out);
        Ok(())
    }
}
