//! `GET /v1/transactions`: reads a window of a bank connection's transactions. Nothing is cached.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{AccountId, Caller, Category, Currency, Decimal, Page, Transaction, page};
use bellbird_reads::{ConnectionContext, WindowKey};
use http::HeaderValue;
use http::header::{HeaderName, LINK};
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use self::words::{CategoryKey, Direction, Status};
use crate::http::documented::ProviderErrors;
use crate::http::extract::{ConnectionQuery, date_filter};
use crate::http::json::{write_json, write_string};
use crate::http::parameters::{self, AccountParam, ConnectionParam, DateBound, Limit, Offset};
use crate::http::{Authorized, BankingConnection, LivePermit, Problem};
use crate::v1::live::{CacheStatus, LiveBody, LiveOutcome};
use crate::v1::pagination::Pagination;
use crate::v1::state::V1State;

type TransactionsLimit = Limit<{ page::TRANSACTIONS.default }, { page::TRANSACTIONS.max }>;

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");
/// From this date on, `accountId` is required.
pub(crate) const SUNSET_DATE: &str = "Wed, 01 Sep 2027 00:00:00 GMT";

/// Typical size of a row as JSON. The buffer grows if rows are larger.
const ROW_BYTES: usize = 450;

/// Read transactions
///
/// Posted transactions, read live from the provider, newest first; never cached. To continue while
/// `hasMore` is true, request `offset + limit` with the other parameters unchanged. Every window
/// but the last is full, and windows never overlap, even if new transactions are posted meanwhile.
/// A request with `offset` 0 starts again from the newest.
///
/// Counting stops about 5,000 rows after the offset. Then `X-Service-Truncated: true` is set,
/// `hasMore` is true and `total` is a lower bound. Omitting `accountId` is deprecated: such
/// responses have the headers `Deprecation`, `Sunset` and `Link`.
#[utoipa::path(
    get, path = "/v1/transactions", tag = "Transactions",
    params(TransactionsQuery),
    responses(
        (
            status = 200, description = "A window of the transactions.", body = TransactionList,
            headers(
                ("X-Cache"), ("X-Service-Truncated"), ("Deprecation"), ("Sunset"), ("Link"),
            ),
        ),
        (
            status = 400,
            description = "A parameter is missing or invalid (one `details` entry each), or the \
                           connection is not a banking connection.",
        ),
        ProviderErrors,
    ),
)]
pub(super) async fn list_transactions(
    State(state): State<V1State>,
    Authorized { caller, permit, .. }: Authorized,
    BankingConnection(bank): BankingConnection<TransactionsQuery>,
) -> Result<Response, Problem> {
    let dates = date_filter(bank.query.from, bank.query.to);
    let page = parameters::page(bank.query.limit, bank.query.offset);
    let (key, revision) = (bank.window(&caller, dates, page), caller.revision);
    let read = state
        .clone()
        .read_transactions(caller, bank.context, key, permit);
    let body = state
        .inner
        .transactions_flights
        .join(key, revision, read)
        .await?;
    let mut response = body.response(CacheStatus::Bypass);
    if bank.account_id.is_none() {
        let headers = response.headers_mut();
        headers.insert(DEPRECATION, HeaderValue::from_static("true"));
        headers.insert(SUNSET, HeaderValue::from_static(SUNSET_DATE));
        headers.insert(LINK, state.deprecation_link());
    }
    Ok(response)
}

impl V1State {
    async fn read_transactions(
        self,
        caller: Caller,
        context: Arc<ConnectionContext>,
        key: WindowKey,
        _permit: LivePermit,
    ) -> LiveOutcome {
        let call = self.context.call_context(&caller);
        let mut body = TransactionsBody::new(key.page);
        let mut push_row = |row: &Transaction<'_>, day| body.push(&TransactionView::new(row, day));
        let outcome = self
            .context
            .reads()
            .transactions(&call, &caller, &context, key, &mut push_row)
            .await;
        let body = match outcome {
            Ok(totals) => Ok(LiveBody {
                json: body.finish(&Pagination::of(key.page, totals)).into(),
                truncated: totals.truncated,
                complete: true,
            }),
            Err(error) => Err(self
                .context
                .after_failed_read(&caller, &context, &error)
                .await),
        };
        (body, call.calls())
    }
}

impl ConnectionQuery for TransactionsQuery {
    fn ids(&self) -> (ConnectionParam, Option<AccountParam>) {
        (self.connection_id, self.account_id)
    }
}

/// The response body, written row by row while the provider's page is in memory.
pub struct TransactionsBody {
    bytes: Vec<u8>,
    /// The number of rows to reserve memory for. The first row reserves it, so that a waiting
    /// request holds no empty buffer.
    rows: usize,
}

impl TransactionsBody {
    pub fn new(page: Page) -> Self {
        Self {
            bytes: br#"{"data":["#.to_vec(),
            rows: page.limit as usize,
        }
    }

    pub fn push(&mut self, row: &TransactionView<'_>) {
        if self.bytes.last() == Some(&b'}') {
            self.bytes.push(b',');
        } else {
            self.bytes.reserve(128 + self.rows * ROW_BYTES);
        }
        row.write(&mut self.bytes);
    }

    pub fn finish(mut self, pagination: &Pagination) -> Vec<u8> {
        self.bytes.extend_from_slice(br#"],"pagination":"#);
        write_json(pagination, &mut self.bytes);
        self.bytes.push(b'}');
        self.bytes
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct TransactionsQuery {
    /// The connection to read: an `id` from `/v1/connections`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    connection_id: ConnectionParam,
    /// One account of the connection: an `id` from `/v1/accounts`. Omitting it is deprecated; it
    /// then reads all accounts of the connection.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    account_id: Option<AccountParam>,
    /// The oldest end, inclusive. A date means the whole day in the user's timezone, a timestamp
    /// that instant. Timestamps are RFC 3339 with `T`, seconds, and `Z` or an offset (encode `+` as
    /// `%2B`). Default: 30 days (720 hours) ago.
    #[param(inline, example = "2026-10-01")]
    from: Option<DateBound>,
    /// The newest end, inclusive. A date means the whole day in the user's timezone, a timestamp
    /// that instant. Timestamps are RFC 3339 with `T`, seconds, and `Z` or an offset (encode `+` as
    /// `%2B`). Default: now.
    #[param(inline, example = "2026-10-31T12:59:59Z")]
    to: Option<DateBound>,
    /// Maximum number of items, 1 to 500. Larger values are clamped; `pagination.limit` shows the
    /// value applied.
    #[param(inline, example = 200)]
    limit: Option<TransactionsLimit>,
    /// Number of items to skip.
    #[param(inline, example = 0)]
    offset: Option<Offset>,
}

/// A posted bank transaction. Pending transactions are never returned.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Transaction)]
pub struct TransactionView<'a> {
    /// The provider's identifier. Opaque, not a UUID.
    #[schema(example = "bank_tx_cf8a93dbe42ce957f5a6ef39ef8e5f9acae5dad932794b6e0df7b1b9afe707c5")]
    id: &'a str,
    /// The account of the transaction.
    #[schema(value_type = Uuid, example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    account_id: AccountId,
    /// Display name of that account.
    #[schema(example = "Everyday Account")]
    account_name: &'a str,
    /// Always `posted`.
    #[schema(inline, value_type = Status, example = "posted")]
    status: &'static str,
    /// The day of posting in the user's timezone (default `Australia/Sydney`).
    #[schema(example = "2026-11-20")]
    date: Date,
    /// The provider's text of the time that determines `date` and the order.
    #[schema(value_type = Option<String>, required = true, example = "2026-11-19T21:15:42.000Z")]
    datetime: &'a str,
    /// The bank's description.
    #[schema(example = "TRANSPORTFORNSW TAP SYDNEY")]
    description: &'a str,
    /// Signed, exact decimal with the provider's digits: negative for debits. Parse it as a
    /// decimal, not as a float.
    #[schema(value_type = String, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "-5.00")]
    amount: &'a Decimal<'a>,
    /// ISO 4217 code of `amount`: the row's own currency, else that of the account. `XXX` if
    /// neither is known.
    #[schema(value_type = String, pattern = "^[A-Z]{3}$", example = "AUD")]
    currency: Currency,
    /// `credit` or `debit`, by the sign of `amount`; zero is `credit`.
    #[schema(inline, value_type = Direction, example = "debit")]
    direction: &'static str,
    /// A key from `/v1/categories`, if the provider reports a category.
    #[schema(inline, value_type = CategoryKey, required = true)]
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
            currency: row.currency.unwrap_or(row.account.currency),
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
        write_member(
            r#","accountId":"#,
            Some(account_id.encode_lower(&mut Uuid::encode_buffer())),
            out,
        );
        write_member(r#","accountName":"#, Some(self.account_name), out);
        write_member(r#","status":"#, Some(self.status), out);
        out.extend_from_slice(br#","date":"#);
        write_json(&self.date, out);
        write_member(r#","datetime":"#, Some(self.datetime), out);
        write_member(r#","description":"#, Some(self.description), out);
        write_member(r#","amount":"#, Some(self.amount.as_str()), out);
        write_member(r#","currency":"#, Some(self.currency.as_str()), out);
        write_member(r#","direction":"#, Some(self.direction), out);
        write_member(r#","category":"#, self.category, out);
        write_member(r#","merchantName":"#, self.merchant_name, out);
        write_member(
            r#","merchantCategoryCode":"#,
            self.merchant_category_code,
            out,
        );
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

/// The words of some fields, for the document.
mod words {
    use bellbird_domain::Category;
    use serde_json::Value;
    use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
    use utoipa::openapi::{RefOr, Schema};

    #[derive(utoipa::ToSchema)]
    #[schema(rename_all = "lowercase")]
    #[expect(dead_code, reason = "documents the word")]
    pub(super) enum Status {
        Posted,
    }

    #[derive(utoipa::ToSchema)]
    #[schema(rename_all = "lowercase", example = "debit")]
    #[expect(dead_code, reason = "documents the words of `Transaction::direction`")]
    pub(super) enum Direction {
        Credit,
        Debit,
    }

    /// The key of a category, or null.
    pub(super) struct CategoryKey;

    impl utoipa::PartialSchema for CategoryKey {
        #[expect(deprecated, reason = "derived schemas have `example`, too")]
        fn schema() -> RefOr<Schema> {
            let keys = Category::ALL
                .iter()
                .map(|category| Value::from(category.key()));
            ObjectBuilder::new()
                .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
                .enum_values(Some(keys.chain([Value::Null])))
                .example(Some("TRANSPORTATION".into()))
                .into()
        }
    }

    impl utoipa::ToSchema for CategoryKey {}
}

/// A window of the transactions, newest first.
#[derive(utoipa::ToSchema)]
pub struct TransactionList<'a> {
    /// The transactions in the window.
    #[expect(
        dead_code,
        reason = "describes the body that the handler writes row by row"
    )]
    data: Vec<TransactionView<'a>>,
    /// The position of this window in the list.
    #[expect(
        dead_code,
        reason = "describes the body that the handler writes row by row"
    )]
    pagination: Pagination,
}

#[cfg(test)]
mod tests {
    use bellbird_domain::{Account, AccountType, ConnectionId, UserId};
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
                currency: is_merchant_known.then_some(Currency::parse("NZD").unwrap()),
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
