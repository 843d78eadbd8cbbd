//! An account and its rows, with every member, for tests.

use bellbird_domain::{
    Account, AccountId, AccountType, Category, ConnectionId, Currency, Decimal, Trade, TradeTime,
    TradeType, Transaction, UserId,
};
use jiff::Timestamp;

pub(crate) fn account(number: u128, name: &str, currency: &str) -> Account {
    let uuid = uuid::Uuid::from_u128;
    Account {
        id: AccountId::from(uuid(number)),
        user_id: UserId::from(uuid(1_000)),
        connection_id: ConnectionId::from(uuid(2_000)),
        provider: "simulated".to_owned(),
        provider_account_id: "1".to_owned(),
        name: name.to_owned(),
        account_type: AccountType::Transaction,
        institution_name: None,
        number: None,
        currency: Currency::parse(currency).unwrap(),
    }
}

pub(crate) fn decimal(text: &str) -> Decimal<'_> {
    Decimal::parse(text).unwrap()
}

pub(crate) fn instant(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn transaction(account: &Account) -> Transaction<'_> {
    Transaction {
        id: "tx_1".into(),
        account,
        instant: instant("2026-11-20T00:00:00Z"),
        day: None,
        seen_at: None,
        datetime: "2026-11-20T00:00:00Z".into(),
        description: "EXAMPLE CAFE".into(),
        amount: decimal("-15.90"),
        category: Some(Category::FoodAndDrink),
        merchant_name: Some("Example Cafe".into()),
        merchant_category_code: Some("5812".into()),
        currency: Currency::parse("AUD"),
        provider_type: Some("PAYMENT".into()),
        executed: Some("2026-11-19T21:15:00Z".into()),
        reference: Some("LUNCH".into()),
        extended_description: Some("Lunch with Kim".into()),
    }
}

pub(crate) fn trade(account: &Account) -> Trade<'_> {
    Trade {
        account,
        symbol: "VAB.TO".into(),
        name: Some("VANGUARD CDN AGGREGATE".into()),
        trade_type: TradeType::Buy,
        provider_type: "BUY".into(),
        quantity: Some(decimal("5.2")),
        price: Some(decimal("0.4")),
        currency: "CAD".into(),
        total_amount: Some(decimal("-2.08")),
        fees: Some(decimal("0")),
        trade_date: "2026-11-19T16:27:55Z".into(),
        time: TradeTime::Instant(instant("2026-11-19T16:27:55Z")),
        settlement_date: Some("2026-11-21".into()),
        description: Some("BOUGHT VAB".into()),
    }
}
