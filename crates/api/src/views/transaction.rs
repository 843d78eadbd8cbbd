//! The body of `GET /v1/transactions`.

use bellbird_domain::{AccountId, Category, Decimal, Transaction};
use jiff::civil::Date;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::pagination::Pagination;
use crate::front::json::{write_json, write_string};

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
    /// Signed, exact decimal with the provider's digits: negative for debits. Parse it as a decimal, not as a float.
    #[schema(value_type = String, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "-5.00")]
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
    /// `date` is the day of posting in the user's timezone.
    #[must_use]
    pub fn new(row: &'a Transaction<'a>, date: Date) -> Self {
        Self {
            id: &row.id,
            account_id: row.account.id,
            account_name: &row.account.name,
            status: "posted",
            date,
            datetime: &row.datetime,
            description: &row.description,
            amount: &row.amount,
            direction: row.direction(),
            category: row.category.map(Category::key),
            merchant_name: row.merchant_name.as_deref(),
            merchant_category_code: row.merchant_category_code.as_deref(),
        }
    }

    /// Appends the row as serde_json would, in less time: docs/adr/0013-page-parsing.md.
    pub fn write(&self, out: &mut Vec<u8>) {
        let account_id = self.account_id.uuid().hyphenated();
        write_member(r#"{"id":"#, Some(self.id), out);
        write_member(r#","accountId":"#, Some(account_id.encode_lower(&mut Uuid::encode_buffer())), out);
        write_member(r#","accountName":"#, Some(self.account_name), out);
        write_member(r#","status":"#, Some(self.status), out);
        out.extend_from_slice(br#","date":"#);
        write_json(&self.date, out);
        write_member(r#","datetime":"#, Some(self.datetime), out);
        write_member(r#","description":"#, Some(self.description), out);
        write_member(r#","amount":"#, Some(self.amount.as_str()), out);
        write_member(r#","direction":"#, Some(self.direction), out);
        write_member(r#","category":"#, self.category, out);
        write_member(r#","merchantName":"#, self.merchant_name, out);
        write_member(r#","merchantCategoryCode":"#, self.merchant_category_code, out);
        out.push(b'}');
    }
}

/// Inlined, so that the size of each name is known when it is copied.
#[inline(always)]
fn write_member(name: &str, value: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    match value {
        Some(value) => write_string(value, out),
        None => out.extend_from_slice(b"null"),
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

#[cfg(test)]
mod tests {
    use bellbird_domain::{Account, AccountType, ConnectionId, Currency, UserId};
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn row_is_written_as_by_serde_json(
            texts in prop::array::uniform5("[ -~\\u{0}-\\u{21}é]{0,40}"),
            amount in "-?[1-9][0-9]{0,20}(\\.[0-9]{2})?",
            day in -4_000_000_i32..2_900_000,
            category in prop::option::of(prop::sample::select(Category::ALL)),
            is_merchant_known: bool,
        ) {
            let account = Account {
                id: AccountId::new(),
                user_id: UserId::new(),
                connection_id: ConnectionId::new(),
                provider: "bank".to_owned(),
                provider_account_id: "1".to_owned(),
                name: texts[0].clone(),
                account_type: AccountType::Transaction,
                institution_name: None,
                number: None,
                currency: Currency::UNKNOWN,
            };
            let text = |at: usize| texts[at].as_str().into();
            let row = Transaction {
                id: text(1),
                account: &account,
                instant: Timestamp::UNIX_EPOCH,
                day: None,
                seen_at: None,
                datetime: text(2),
                description: text(3),
                amount: Decimal::parse(&amount).unwrap(),
                category,
                merchant_name: is_merchant_known.then(|| text(4)),
                merchant_category_code: is_merchant_known.then(|| text(1)),
                currency: None,
                provider_type: None,
                executed: None,
                reference: None,
                extended_description: None,
            };
            let date = Date::constant(1970, 1, 1).saturating_add(jiff::Span::new().days(day));
            let view = TransactionView::new(&row, date);
            let mut written = b"before".to_vec();
            view.write(&mut written);
            prop_assert_eq!(&written[6..], serde_json::to_vec(&view).unwrap());
        }
    }
}
