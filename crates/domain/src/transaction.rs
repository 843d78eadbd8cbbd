//! Bank transactions. They pass through from the provider to the client and are never stored.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::connection::string_enum;
use crate::{Account, Category, Currency, Decimal};

string_enum! {
    /// Which way the money went. [`Transaction::direction`] has the same words.
    Direction {
        /// Out of the account.
        Debit "debit",
        /// Into the account. An amount of 0 counts as this.
        Credit "credit",
    }
}

/// A posted bank transaction. Borrows the provider's page.
///
/// Has no `Debug`, so that amounts and descriptions appear in no log and no panic.
#[derive(Clone)]
pub struct Transaction<'a> {
    /// The provider's own opaque id.
    pub id: Cow<'a, str>,
    pub account: &'a Account,
    /// Time of posting, else of execution. Sorting and timestamp bounds use it.
    pub instant: Timestamp,
    /// Set if the provider sends only a calendar day. No timezone shifts it.
    pub day: Option<Date>,
    /// When the provider first saw the row, if it says so. Pagination skips rows first seen after
    /// the first page.
    pub seen_at: Option<Timestamp>,
    /// The provider's text for `instant` or `day`.
    pub datetime: Cow<'a, str>,
    pub description: Cow<'a, str>,
    /// Negative for money that left the account.
    pub amount: Decimal<'a>,
    /// `None` if the provider's value is outside the sixteen categories.
    pub category: Option<Category>,
    pub merchant_name: Option<Cow<'a, str>>,
    /// An ISO 18245 code.
    pub merchant_category_code: Option<Cow<'a, str>>,
    /// The row's own currency. `None` means that of the account.
    pub currency: Option<Currency>,
    /// The provider's own word for the type, unchanged.
    pub provider_type: Option<Cow<'a, str>>,
    /// The provider's text for the time of execution, if it sends one beside the time of posting.
    pub executed: Option<Cow<'a, str>>,
    /// The payment reference that payer or payee entered.
    pub reference: Option<Cow<'a, str>>,
    /// A longer text than `description`.
    pub extended_description: Option<Cow<'a, str>>,
}

impl Transaction<'_> {
    /// The row's own day, else the day of its instant in `zone`.
    #[must_use]
    pub fn local_day(&self, zone: &TimeZone) -> Date {
        self.day
            .unwrap_or_else(|| crate::date::day_of(self.instant, zone))
    }

    /// The row's own currency, else that of its account.
    #[must_use]
    pub fn actual_currency(&self) -> Currency {
        self.currency.unwrap_or(self.account.currency)
    }

    /// `debit` for an amount below zero, else `credit`.
    #[must_use]
    pub fn direction(&self) -> &'static str {
        if self.amount.is_negative() {
            Direction::Debit.as_str()
        } else {
            Direction::Credit.as_str()
        }
    }
}
