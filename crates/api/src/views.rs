//! The shapes on the wire, and their descriptions.

use bellbird_domain::trade::TradeId;
use bellbird_domain::{
    Account, AccountId, AccountType, Balance, Category, Connection, ConnectionCategory, ConnectionId, ConnectionStatus,
    Currency, Decimal, Holding, Page, Trade, TradeType, Transaction,
};
use bellbird_reads::window::Extent;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use utoipa::ToSchema;

/// A link between the user and one institution through one provider.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Connection)]
pub struct ConnectionView<'a> {
    /// Identifier, a UUID made by this service.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub id: ConnectionId,
    /// The provider that the data comes through, such as `fiskil` (Australian banking).
    #[schema(example = "fiskil")]
    pub provider: &'a str,
    /// What kind of institution it is.
    #[schema(value_type = String, example = "banking")]
    pub category: ConnectionCategory,
    /// The provider's own identifier of the institution. Any text.
    #[schema(example = "22")]
    pub institution_id: &'a str,
    /// Display name of the institution.
    #[schema(example = "Wattle Bank")]
    pub institution_name: &'a str,
    /// URL of the institution's logo.
    #[schema(format = "uri", example = "https://cdn.example/logos/22.svg")]
    #[schema(required = true)]
    pub institution_logo: Option<&'a str>,
    /// `active`: it can be read. `invalidated`: credentials or consent expired, the user must reconnect. `pending_mfa`:
    /// the institution waits for the user. `revoked`: consent was withdrawn.
    #[schema(value_type = String, example = "active")]
    pub status: ConnectionStatus,
    /// When the provider last answered with data, RFC 3339 in UTC.
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2026-11-20T21:04:11.52Z")]
    pub last_refreshed_at: Option<Timestamp>,
    /// When the connection was linked, RFC 3339 in UTC.
    #[schema(value_type = String, format = "date-time", example = "2026-08-01T02:10:00.25Z")]
    pub created_at: Timestamp,
}

impl<'a> From<&'a Connection> for ConnectionView<'a> {
    fn from(connection: &'a Connection) -> Self {
        Self {
            id: connection.id,
            provider: &connection.provider,
            category: connection.category,
            institution_id: &connection.institution_id,
            institution_name: &connection.institution_name,
            institution_logo: connection.institution_logo.as_deref(),
            status: connection.status,
            last_refreshed_at: connection.last_refreshed_at,
            created_at: connection.created_at,
        }
    }
}

/// All connections, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = ConnectionList)]
pub struct ConnectionList<'a> {
    /// The connections.
    pub(crate) data: Vec<ConnectionView<'a>>,
}

/// One account of a connection.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Account)]
pub struct AccountView<'a> {
    /// Identifier, a UUID made by this service.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    id: AccountId,
    /// The connection that it belongs to.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    connection_id: ConnectionId,
    /// The connection's provider. Null only for legacy accounts, of which this service has none.
    #[schema(value_type = Option<String>, required = true, example = "fiskil")]
    provider: &'a str,
    /// Display name.
    #[schema(example = "Everyday Account")]
    name: &'a str,
    /// What kind of account it is.
    #[schema(value_type = String, example = "transaction")]
    r#type: AccountType,
    /// Display name of the institution.
    #[schema(required = true, example = "Wattle Bank")]
    institution_name: Option<&'a str>,
    /// `xxxx` and the last four digits; the full number is never kept.
    #[schema(required = true, pattern = "^xxxx[0-9]{4}$", example = "xxxx1234")]
    account_number: Option<&'a str>,
    /// ISO 4217 code; `XXX` while the provider has not said.
    #[schema(value_type = String, pattern = "^[A-Z]{3}$", example = "AUD")]
    currency: Currency,
}

impl<'a> From<&'a Account> for AccountView<'a> {
    fn from(account: &'a Account) -> Self {
        Self {
            id: account.id,
            connection_id: account.connection_id,
            provider: &account.provider,
            name: &account.name,
            r#type: account.account_type,
            institution_name: account.institution_name.as_deref(),
            account_number: account.number.as_ref().map(bellbird_domain::MaskedNumber::as_str),
            currency: account.currency,
        }
    }
}

/// A window of the accounts, by name.
#[derive(Serialize, ToSchema)]
#[schema(as = AccountList)]
pub struct AccountList<'a> {
    /// The accounts of the window.
    pub(crate) data: Vec<AccountView<'a>>,
    /// What the window is of.
    pub(crate) pagination: Pagination,
}

/// What a window is of.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pagination {
    /// Items in all. For transactions it is exact when `hasMore` is false, and a lower bound when it is true.
    #[schema(minimum = 0, example = 312)]
    total: u64,
    /// Items at most, as applied.
    #[schema(minimum = 1, example = 200)]
    limit: u32,
    /// Items skipped.
    #[schema(minimum = 0, example = 0)]
    offset: u64,
    /// Whether items follow: go on with `offset + limit`.
    #[schema(example = true)]
    has_more: bool,
}

impl Pagination {
    /// Of a list whose size is known.
    #[must_use]
    pub fn exact(page: Page, total: u64) -> Self {
        Self { total, limit: page.limit, offset: page.offset, has_more: page.end() < total }
    }

    /// Of a walk.
    #[must_use]
    pub fn of(page: Page, extent: Extent) -> Self {
        Self { total: extent.total, limit: page.limit, offset: page.offset, has_more: extent.has_more }
    }
}

/// What one account holds. All three values are null when the provider failed for this account.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Balance)]
pub struct BalanceView<'a> {
    /// The account.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    account_id: AccountId,
    /// Decimal in the provider's own digits; negative when money is owed.
    #[schema(value_type = Option<String>, format = "decimal", required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "-250.00")]
    current_balance: Option<&'a Decimal<'static>>,
    /// Funds available, a decimal in the provider's own digits.
    #[schema(value_type = Option<String>, format = "decimal", required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "1500.00")]
    available_balance: Option<&'a Decimal<'static>>,
    /// ISO 4217 code of both.
    #[schema(value_type = Option<String>, required = true, pattern = "^[A-Z]{3}$", example = "AUD")]
    currency: Option<Currency>,
}

impl<'a> BalanceView<'a> {
    pub(crate) fn new(account_id: AccountId, balance: Option<&'a Balance>) -> Self {
        Self {
            account_id,
            current_balance: balance.and_then(|balance| balance.current.as_ref()),
            available_balance: balance.and_then(|balance| balance.available.as_ref()),
            currency: balance.and_then(|balance| balance.currency),
        }
    }
}

/// One entry for each account asked for, in no particular order.
#[derive(Serialize, ToSchema)]
#[schema(as = BalanceList)]
pub struct BalanceList<'a> {
    /// The balances.
    pub(crate) data: Vec<BalanceView<'a>>,
}

/// A transaction category.
#[derive(Serialize, ToSchema)]
#[schema(as = Category)]
pub struct CategoryView {
    /// The code that transactions carry in `category`.
    #[schema(example = "FOOD_AND_DRINK")]
    key: &'static str,
    /// Its name for people.
    #[schema(example = "Food & Drink")]
    label: &'static str,
}

impl From<&Category> for CategoryView {
    fn from(category: &Category) -> Self {
        Self { key: category.key(), label: category.label() }
    }
}

/// All sixteen categories.
#[derive(Serialize, ToSchema)]
#[schema(as = CategoryList)]
pub struct CategoryList {
    /// The categories, by key.
    pub(crate) categories: Vec<CategoryView>,
}

/// A posted bank transaction. Pending ones are never returned.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Transaction)]
pub struct TransactionView<'a> {
    /// The provider's own identifier. Opaque, not a UUID.
    #[schema(example = "bank_tx_cf8a93dbe42ce957f5a6ef39ef8e5f9acae5dad932794b6e0df7b1b9afe707c5")]
    id: &'a str,
    /// The account that it is on.
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
    /// The provider's own text of the time that `date` and the order come from.
    #[schema(value_type = Option<String>, required = true, example = "2026-11-19T21:15:42.000Z")]
    datetime: &'a str,
    /// The bank's text.
    #[schema(example = "TRANSPORTFORNSW TAP SYDNEY")]
    description: &'a str,
    /// Signed decimal in the provider's own digits: negative for debits. Parse it as a decimal, not as a float.
    #[schema(value_type = String, format = "decimal", pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "-5.00")]
    amount: &'a Decimal<'a>,
    /// `credit` or `debit`, by the sign of `amount`; zero is `credit`.
    #[schema(example = "debit")]
    direction: &'static str,
    /// A key of `/v1/categories`, if the provider gave one of them.
    #[schema(required = true, example = "TRANSPORTATION")]
    category: Option<&'static str>,
    /// Who was paid, if the provider knows.
    #[schema(required = true, example = "Transport for NSW")]
    merchant_name: Option<&'a str>,
    /// Merchant category code (ISO 18245), if the provider knows.
    #[schema(required = true, example = "4111")]
    merchant_category_code: Option<&'a str>,
}

impl<'a> TransactionView<'a> {
    /// The view of a row, its day as a day in `zone`.
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
    /// The transactions of the window.
    #[expect(dead_code, reason = "describes what the handler writes row by row")]
    data: Vec<TransactionView<'a>>,
    /// What the window is of.
    #[expect(dead_code, reason = "describes what the handler writes row by row")]
    pagination: Pagination,
}

/// A position of a brokerage account. Only `symbol`, `currency` and `quantity` are sure to have a value.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Holding)]
pub struct HoldingView<'a> {
    /// The same from read to read. Opaque.
    #[schema(example = "0191e7a0-91d4-7a01-8000-00aabbccddee:1ef3a5d3-4a9b-40b2-b8d1-cc35f74d6324")]
    id: String,
    /// The account that holds it.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    account_id: AccountId,
    /// Display name of that account.
    #[schema(example = "Margin Account")]
    account_name: &'a str,
    /// Ticker.
    #[schema(example = "AAPL")]
    symbol: &'a str,
    /// The security's name.
    #[schema(required = true, example = "Apple Inc.")]
    name: Option<&'a str>,
    /// Where it is traded, as the broker calls it: a MIC or an exchange code.
    #[schema(required = true, example = "XNAS")]
    exchange: Option<&'a str>,
    /// ISO 4217 code of the prices and values, or the ticker of a crypto asset.
    #[schema(example = "USD")]
    currency: &'a str,
    /// Units, a decimal in the provider's own digits; negative when short. Fractions occur.
    #[schema(value_type = String, format = "decimal", pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "10.5")]
    quantity: &'a Decimal<'a>,
    /// Average cost of a unit.
    #[schema(value_type = Option<String>, format = "decimal", required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "118.2")]
    average_price: Option<&'a Decimal<'a>>,
    /// Latest price of a unit.
    #[schema(value_type = Option<String>, format = "decimal", required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "123.45")]
    current_price: Option<&'a Decimal<'a>>,
    /// What the position is worth: quantity times price, times the contract multiplier.
    #[schema(value_type = Option<String>, format = "decimal", required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "1296.225")]
    market_value: Option<&'a Decimal<'a>>,
    /// `marketValue` less quantity times average price, times the contract multiplier.
    #[schema(value_type = Option<String>, format = "decimal", required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "55.125")]
    unrealized_pnl: Option<&'a Decimal<'a>>,
}

impl<'a> HoldingView<'a> {
    pub(crate) fn new(holding: &'a Holding<'a>) -> Self {
        Self {
            id: holding.id(),
            account_id: holding.account.id,
            account_name: &holding.account.name,
            symbol: &holding.symbol,
            name: holding.name.as_deref(),
            exchange: holding.exchange.as_deref(),
            currency: &holding.currency,
            quantity: &holding.quantity,
            average_price: holding.average_price.as_ref(),
            current_price: holding.current_price.as_ref(),
            market_value: holding.market_value.as_ref(),
            unrealized_pnl: holding.unrealized_pnl.as_ref(),
        }
    }
}

/// Everything that is held, account by account.
#[derive(ToSchema)]
#[schema(as = HoldingList)]
pub struct HoldingList<'a> {
    /// The holdings.
    #[expect(dead_code, reason = "describes what the handler writes row by row")]
    data: Vec<HoldingView<'a>>,
}

/// A row of a brokerage account: a fill, a dividend, a fee, a transfer and so on.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Trade)]
pub struct TradeView<'a> {
    /// Opaque, and not a key: two equal fills have the same.
    #[schema(value_type = String, example = "2026-03-22T16:27:55Z-VAB.TO-BUY--2.08-5.2-2026-03-26T00:00:00Z-0-BOUGHT VAB")]
    id: TradeId<'a, 'a>,
    /// The account that it is on.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    account_id: AccountId,
    /// Display name of that account.
    #[schema(example = "Margin Account")]
    account_name: &'a str,
    /// Ticker; empty where no security is concerned.
    #[schema(example = "VAB.TO")]
    symbol: &'a str,
    /// The security's name; of an option that of its underlying.
    #[schema(required = true, example = "VANGUARD CDN AGGREGATE BOND INDEX ETF")]
    name: Option<&'a str>,
    /// What kind of row it is.
    #[schema(value_type = String, example = "buy")]
    r#type: TradeType,
    /// Units, a decimal in the provider's own digits, signed as the broker signs them; `0` where there are none.
    #[schema(value_type = String, format = "decimal", pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "5.2")]
    quantity: &'a str,
    /// Price of a unit; `0` where there is none.
    #[schema(value_type = String, format = "decimal", pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "0.4")]
    price: &'a str,
    /// ISO 4217 code, or the ticker of a crypto asset.
    #[schema(example = "CAD")]
    currency: &'a str,
    /// The effect on cash: positive in, negative out; `0` where there is none.
    #[schema(value_type = String, format = "decimal", pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "-2.08")]
    total_amount: &'a str,
    /// Fees.
    #[schema(value_type = Option<String>, format = "decimal", required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "0")]
    fees: Option<&'a Decimal<'a>>,
    /// When it was made: a day or an ISO 8601 time, as the broker gives it.
    #[schema(example = "2026-03-22T16:27:55Z")]
    trade_date: &'a str,
    /// When it was settled: a day or an ISO 8601 time, like `tradeDate`.
    #[schema(required = true, example = "2026-03-26T00:00:00Z")]
    settlement_date: Option<&'a str>,
    /// The broker's text.
    #[schema(required = true, example = "BOUGHT VAB")]
    description: Option<&'a str>,
}

impl<'a> TradeView<'a> {
    pub(crate) fn new(trade: &'a Trade<'a>) -> Self {
        let or_zero = |number: &'a Option<Decimal<'a>>| number.as_ref().map_or("0", Decimal::as_str);
        Self {
            id: trade.id(),
            account_id: trade.account.id,
            account_name: &trade.account.name,
            symbol: &trade.symbol,
            name: trade.name.as_deref(),
            r#type: trade.trade_type,
            quantity: or_zero(&trade.quantity),
            price: or_zero(&trade.price),
            currency: &trade.currency,
            total_amount: or_zero(&trade.total_amount),
            fees: trade.fees.as_ref(),
            trade_date: &trade.trade_date,
            settlement_date: trade.settlement_date.as_deref(),
            description: trade.description.as_deref(),
        }
    }
}

/// A window of the trades, newest first.
#[derive(ToSchema)]
#[schema(as = TradeList)]
pub struct TradeList<'a> {
    /// The trades of the window.
    #[expect(dead_code, reason = "describes what the handler writes row by row")]
    data: Vec<TradeView<'a>>,
    /// What the window is of.
    #[expect(dead_code, reason = "describes what the handler writes row by row")]
    pagination: TradesPagination,
}

/// What a window of trades is of.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TradesPagination {
    /// -1 while `hasMore` is true; trades in all when it is false.
    #[schema(minimum = -1, example = -1)]
    total: i64,
    /// Items at most, as applied.
    #[schema(minimum = 1, example = 200)]
    limit: u32,
    /// Items skipped.
    #[schema(minimum = 0, example = 0)]
    offset: u64,
    /// Whether items follow: go on with `offset + limit`.
    #[schema(example = true)]
    has_more: bool,
}

impl TradesPagination {
    pub(crate) fn of(page: Page, extent: Extent) -> Self {
        let total = if extent.has_more { -1 } else { i64::try_from(extent.total).unwrap_or(i64::MAX) };
        Self { total, limit: page.limit, offset: page.offset, has_more: extent.has_more }
    }
}

/// Writes a view behind what is there.
pub(crate) fn write(view: &impl Serialize, out: &mut Vec<u8>) {
    let written = serde_json::to_writer(out, view);
    debug_assert!(written.is_ok(), "texts and numbers are always JSON");
}

/// That the service runs.
#[derive(Serialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    #[schema(example = "ok")]
    pub(crate) status: &'static str,
}
