//! The body of `GET /v1/transactions`.

use bellbird_domain::{AccountId, Category, Decimal, Transaction};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use utoipa::ToSchema;

use super::pagination::Pagination;

/// A posted bank transaction. Pending transactions are never returned.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Transaction)]
pub struct TransactionView<'a> {
    /// The provider's identifier. Opaque, not a UUID.
    #[schema(example = "bank_tx_cf8a93dbe42ce957f5a6ef39ef8e5f9acae5dad932794b6e0df7b1b9afe707c5")]
    id: &'a str,
    /// The account of the transaction.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    account_id: AccountId,
    /// Display name of that account.
    #[schema(example = "Everyday Account")]
    account_name: &'a str,
    /// Always `posted`.
    #[schema(example = "posted")]
    status: &'static str,
    /// The day of posting in the user's timezone (default `Australia/Sydney`).
    #[schema(value_type = String, format = "date", example = "2026-11-20")]
    date: Date,
    /// The provider's text of the time that determines `date` and the order.
    #[schema(value_type = Option<String>, required = true, example = "2026-11-19T21:15:42.000Z")]
    datetime: &'a str,
    /// The bank's description.
    #[schema(example = "TRANSPORTFORNSW TAP SYDNEY")]
    description: &'a str,
    /// Signed decimal with the provider's digits: negative for debits. Parse it as a decimal, not as a float.
    #[schema(value_type = String, format = "decimal", pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "-5.00")]
    amount: &'a Decimal<'a>,
    /// `credit` or `debit`, by the sign of `amount`; zero is `credit`.
    #[schema(example = "debit")]
    direction: &'static str,
    /// A key from `/v1/categories`, if the provider reports a category.
    #[schema(required = true, example = "TRANSPORTATION")]
    category: Option<&'static str>,
    /// Name of the merchant, if the provider knows it.
    #[schema(required = true, example = "Transport for NSW")]
    merchant_name: Option<&'a str>,
    /// Merchant category code (ISO 18245), if the provider knows it.
    #[schema(required = true, example = "4111")]
    merchant_category_code: Option<&'a str>,
}

impl<'a> TransactionView<'a> {
    /// `zone` determines the day of posting.
    #[must_use]
    pub fn new(row: &'a Transaction<'a>, zone: &TimeZone) -> Self {
        Self {
            id: &row.id,
            account_id: row.account.id,
            account_name: &row.account.name,
            status: "posted",
            date: row.local_day(zone),
            datetime: &row.datetime,
            description: &row.description,
            amount: &row.amount,
            direction: row.direction(),
            category: row.category.map(Category::key),
            merchant_name: row.merchant_name.as_deref(),
            merchant_category_code: row.merchant_category_code.as_deref(),
        }
    }
}

/// A window of the transactions, newest first.
#[derive(ToSchema)]
#[schema(as = TransactionList)]
pub struct TransactionList<'a> {
    /// The transactions in the window.
    #[expect(dead_code, reason = "describes the body that the handler writes row by row")]
    data: Vec<TransactionView<'a>>,
    /// The position of this window in the list.
    #[expect(dead_code, reason = "describes the body that the handler writes row by row")]
    pagination: Pagination,
}
