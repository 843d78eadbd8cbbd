//! The trades of all brokers, on the page of the investments.

use bellbird_api::http::{QuotaClass, Quotas};
use bellbird_domain::{ConnectionCategory, Decimal, Trade, TradeTime, TradeType};
use bellbird_interop::export::formats::CsvLines;
use bellbird_reads::Trades;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::filter::{Filter, Period};
use super::row::{Facts, Row, shown_text, shown_time};
use super::{ListKind, RowsPage, Symbol};
use crate::pages::names::sanitized;
use crate::pages::{Money, Number, is_nonzero};

impl ListKind for Trades {
    const PAGE: &'static RowsPage = &RowsPage {
        category: ConnectionCategory::Brokerage,
        is_cached: true,
        path: "/investments",
        anchor: "trades",
        name: "trades",
        title: "Investments",
        bank: "broker",
        what_shows: "what it holds for you shows",
        awaited: "Reading what your brokers hold for you",
        periods: &[
            Period::All,
            Period::ThirtyDays,
            Period::Months(3),
            Period::Months(12),
        ],
        search_placeholder: "Symbol or name",
        has_categories: false,
        columns: &[
            "Date",
            "Account",
            "Broker",
            "Type",
            "Symbol",
            "Name",
            "Quantity",
            "Price",
            "Fees",
            "Amount",
            "Currency",
            "Description",
        ],
    };

    fn quota(quotas: &Quotas) -> &QuotaClass {
        &quotas.brokerage
    }

    fn day(row: &Trade<'_>, _: u64, zone: &TimeZone) -> Date {
        match row.time {
            TradeTime::Day(day) => day,
            TradeTime::Instant(instant) => instant.to_zoned(zone.clone()).date(),
        }
    }

    fn is_wanted(row: &Trade<'_>, filter: &Filter) -> bool {
        let texts = [
            Some(&*row.symbol),
            row.name.as_deref(),
            row.description.as_deref(),
        ];
        filter.has_currency(&row.currency)
            // Symbols have digits too.
            && filter.finds(texts.into_iter().flatten(), None, &row.currency)
    }

    fn shown(row: &Trade<'_>, day: Date, zone: &TimeZone) -> Row {
        let currency = &*row.currency;
        let symbol = (!row.symbol.is_empty()).then(|| Symbol::new(&row.symbol));
        let units = unless_zero(&row.quantity).filter(|_| symbol.is_some());
        let units = units.map(|units| Number::quantity(units.trim_start_matches('-')));
        let price = unless_zero(&row.price).map(|price| Number::price(price, currency));
        let fee = unless_zero(&row.fees).map(|fee| Number::money(fee, currency));
        let amount = unless_zero(&row.total_amount);
        let amount = amount.map(|amount| Money::new(currency, amount));
        let words = [
            Some(kind_of(row).to_owned()),
            units.as_ref().map(Number::marked),
            symbol.as_ref().map(|symbol| symbol.text.clone()),
        ];
        let detail = [
            price.as_ref().map(|price| format!("at {}", price.marked())),
            fee.as_ref().map(|fee| format!("fee {}", fee.marked())),
        ];
        let time = match row.time {
            TradeTime::Day(_) => None,
            TradeTime::Instant(instant) => Some(shown_time(instant, zone)),
        };
        let description = row.description.as_deref().map(sanitized);
        let description = description.filter(|text| !text.trim().is_empty());
        Row {
            day,
            account: row.account.id,
            title: words.into_iter().flatten().collect::<Vec<_>>().join(" "),
            detail: detail.into_iter().flatten().collect(),
            facts: Facts::default()
                .and_unless(
                    description.as_deref().unwrap_or_default(),
                    "Description",
                    row.description.as_deref().unwrap_or_default(),
                )
                .and("Symbol", symbol.and_then(|symbol| symbol.raw))
                .and("Name", row.name.as_ref())
                .and_exact("Units", units.as_ref())
                .and_exact("Price", price.as_ref())
                .and_exact("Fee", fee.as_ref())
                .and_exact("Amount", amount.as_ref().map(|amount| &amount.number))
                .and("Time", time)
                .and(
                    "Settlement",
                    row.settlement_date
                        .as_ref()
                        .map(|day| shown_text(day, zone)),
                )
                .and("Type", Some(&row.provider_type)),
            text: description,
            amount,
        }
    }

    fn write(row: &Trade<'_>, lines: &mut CsvLines, out: &mut Vec<u8>) {
        lines.plain(kind_of(row), out);
        lines.text(&row.symbol, out);
        lines.text(row.name.as_deref().unwrap_or_default(), out);
        for number in [&row.quantity, &row.price, &row.fees, &row.total_amount] {
            lines.plain(number.as_ref().map_or("", |number| number.as_str()), out);
        }
        lines.text(&row.currency, out);
        lines.text(row.description.as_deref().unwrap_or_default(), out);
    }
}

/// In front of the units.
fn kind_of(row: &Trade<'_>) -> &'static str {
    let units = unless_zero(&row.quantity);
    let moved = units.or(unless_zero(&row.total_amount));
    match (row.trade_type, moved.map(|number| number.starts_with('-'))) {
        (TradeType::Buy, _) => "Bought",
        (TradeType::Sell, _) => "Sold",
        (TradeType::Dividend, _) => "Dividend",
        (TradeType::Split, _) => "Split",
        (TradeType::Transfer, Some(false)) => "Transfer in",
        (TradeType::Transfer, Some(true)) => "Transfer out",
        (TradeType::Transfer, None) => "Transfer",
        (TradeType::Fee, _) => "Fee",
        (TradeType::Interest, _) => "Interest",
        (TradeType::Other, _) => "Other",
    }
}

fn unless_zero<'n>(number: &'n Option<Decimal<'_>>) -> Option<&'n str> {
    let text = number.as_ref()?.as_str();
    is_nonzero(text).then_some(text)
}

#[cfg(test)]
mod tests {
    use bellbird_domain::{Account, ConnectionStatus};

    use super::*;
    use crate::pages::fixtures::{account, connection};

    fn row(account: &Account, kind: &str, numbers: [&str; 3]) -> Row {
        let day = "2026-11-01".parse().unwrap();
        let [quantity, price, amount] =
            numbers.map(|number| Some(Decimal::parse(number).unwrap().into_owned()));
        let trade = Trade {
            account,
            symbol: "EXRB".into(),
            name: None,
            trade_type: kind.parse().unwrap_or(TradeType::Other),
            provider_type: kind.into(),
            quantity,
            price,
            currency: "USD".into(),
            total_amount: amount,
            fees: None,
            trade_date: "2026-11-01".into(),
            time: TradeTime::Day(day),
            settlement_date: None,
            description: None,
        };
        Trades::shown(&trade, day, &TimeZone::UTC)
    }

    #[test]
    fn kinds_are_words_and_nothing_is_zero() {
        let broker = connection("Broker", ConnectionStatus::Active);
        let account = account(&broker, "Margin");
        for (kind, numbers, expected) in [
            (
                "buy",
                ["5", "2.5", "-12.5"],
                "Bought 5 EXRB, at 2.50: −12.50",
            ),
            ("sell", ["-5", "2.5", "12.5"], "Sold 5 EXRB, at 2.50: 12.50"),
            ("dividend", ["0", "0.00", "3"], "Dividend EXRB, : 3.00"),
            ("transfer", ["-2", "0", "0"], "Transfer out 2 EXRB, : -"),
            ("transfer", ["0", "0", "7"], "Transfer in EXRB, : 7.00"),
            ("coupon", ["0", "0", "0"], "Other EXRB, : -"),
        ] {
            let row = row(&account, kind, numbers);
            let amount = row.amount.map_or("-".to_owned(), |money| money.number.text);
            let shown = format!("{}, {}: {amount}", row.title, row.detail.join(" "));
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn all_digits_are_in_an_opened_row() {
        let broker = connection("Broker", ConnectionStatus::Active);
        let account = account(&broker, "Crypto");
        let row = row(&account, "buy", ["0.123456789012", "2.5", "-12.345"]);
        assert_eq!(row.title, "Bought 0.12345678… EXRB");
        let facts: Vec<(&str, &str)> = row.facts.iter().collect();
        let expected = [
            ("Units", "0.123456789012"),
            ("Amount", "-12.345"),
            ("Type", "buy"),
        ];
        assert_eq!(facts, expected);
    }
}
