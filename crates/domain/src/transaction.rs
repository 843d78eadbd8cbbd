//! Transactions: rows that pass through and are never kept.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::{Account, Category, Currency, Decimal};

/// A posted bank transaction. Borrows the provider's page and the account; nothing stores it.
///
/// `Debug` is deliberately missing: amounts and descriptions are in no log and no panic.
#[derive(Clone)]
pub struct Transaction<'a> {
    /// The provider's own id; opaque.
    pub id: Cow<'a, str>,
    /// The account it belongs to.
    pub account: &'a Account,
    /// Posting instant, else execution instant: what the order and timestamp bounds go by.
    pub instant: Timestamp,
    /// The day, where the provider's row carries only a calendar day; it is never shifted.
    pub day: Option<Date>,
    /// When the provider first saw it, where it says so: what came later than a walk began does not belong to it.
    pub seen_at: Option<Timestamp>,
    /// The raw text of the field that `instant` or `day` came from.
    pub datetime: Cow<'a, str>,
    /// The bank's text.
    pub description: Cow<'a, str>,
    /// Negative when money left.
    pub amount: Decimal<'a>,
    /// One of the sixteen, if the provider's value is one of them.
    pub category: Option<Category>,
    /// Who was paid.
    pub merchant_name: Option<Cow<'a, str>>,
    /// ISO 18245 code.
    pub merchant_category_code: Option<Cow<'a, str>>,
    /// The row's own currency, where it says so; else it is the account's.
    pub currency: Option<Currency>,
    /// The provider's own word for the kind of transaction, as sent.
    pub provider_type: Option<Cow<'a, str>>,
    /// The raw text of the time at which it was made, where that is told beside the time of posting.
    pub executed: Option<Cow<'a, str>>,
    /// What payer or payee wrote for the other to know it by.
    pub reference: Option<Cow<'a, str>>,
    /// A longer text than the description, where there is one.
    pub extended_description: Option<Cow<'a, str>>,
}

impl Transaction<'_> {
    /// The day to show: the row's own, else the instant's day in `zone`.
    #[must_use]
    pub fn local_day(&self, zone: &TimeZone) -> Date {
        self.day.unwrap_or_else(|| crate::date::day_of(self.instant, zone))
    }

    /// `debit` below zero, else `credit`.
    #[must_use]
    pub fn direction(&self) -> &'static str {
        if self.amount.is_negative() { "debit" } else { "credit" }
    }
}
