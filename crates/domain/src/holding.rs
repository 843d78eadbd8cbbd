//! Holdings (positions of a brokerage account), and the exact computation of their value and
//! profit.

use std::borrow::Cow;

use bigdecimal::BigDecimal;

use crate::sum::number;
use crate::{Account, Decimal};

/// A position. Borrows the provider's response. Has no `Debug`, so that it cannot be logged.
#[derive(Clone)]
pub struct Holding<'a> {
    pub account: &'a Account,
    /// The provider's id for the instrument.
    pub instrument_id: Cow<'a, str>,
    /// Counts from 1 the positions of the same instrument in the account.
    pub occurrence: u32,
    pub symbol: Cow<'a, str>,
    pub name: Option<Cow<'a, str>>,
    /// The provider's name for the exchange.
    pub exchange: Option<Cow<'a, str>>,
    /// An ISO 4217 code, or the ticker of a crypto asset.
    pub currency: Cow<'a, str>,
    /// Units; negative when short.
    pub quantity: Decimal<'a>,
    /// Average cost of one unit.
    pub average_price: Option<Decimal<'a>>,
    /// Latest price of one unit.
    pub current_price: Option<Decimal<'a>>,
    pub market_value: Option<Decimal<'a>>,
    /// Of the whole position.
    pub cost: Option<Decimal<'a>>,
    /// Market value minus cost.
    pub unrealized_pnl: Option<Decimal<'a>>,
}

impl Holding<'_> {
    /// The public id. It stays the same from one read to the next.
    #[must_use]
    pub fn id(&self) -> String {
        match self.occurrence {
            0 | 1 => format!("{}:{}", self.account.id, self.instrument_id),
            number => format!("{}:{}:{number}", self.account.id, self.instrument_id),
        }
    }
}

/// How many units of the underlying one unit of the position represents, such as 100 for an option
/// contract.
#[derive(Clone)]
pub enum Multiplier<'a> {
    One,
    Of(Decimal<'a>),
    /// Not one, but the provider sends no number.
    Unknown,
}

/// What [`value_position`] computes. `None` where a factor is missing or longer than 512 bytes. Has
/// no `Debug`, so that it cannot be logged.
#[derive(Default)]
pub struct PositionValue {
    /// Quantity × price × multiplier.
    pub market_value: Option<Decimal<'static>>,
    /// Quantity × average price × multiplier.
    pub cost: Option<Decimal<'static>>,
    /// Market value minus cost.
    pub unrealized_pnl: Option<Decimal<'static>>,
}

/// Computes market value, cost and unrealised profit exactly.
#[must_use]
pub fn value_position(
    quantity: &Decimal<'_>,
    current_price: Option<&Decimal<'_>>,
    average_price: Option<&Decimal<'_>>,
    multiplier: &Multiplier<'_>,
) -> PositionValue {
    let units = number(quantity).and_then(|quantity| match multiplier {
        Multiplier::One => Some(quantity),
        Multiplier::Of(multiplier) => Some(quantity * number(multiplier)?),
        Multiplier::Unknown => None,
    });
    let Some(units) = units else {
        return PositionValue::default();
    };
    let value = current_price.and_then(number).map(|price| &units * price);
    let cost = average_price
        .and_then(number)
        .map(|average| &units * average);
    let profit = value.as_ref().zip(cost.as_ref());
    let profit = profit.map(|(value, cost)| value - cost);
    PositionValue {
        market_value: value.as_ref().map(decimal),
        cost: cost.as_ref().map(decimal),
        unrealized_pnl: profit.as_ref().map(decimal),
    }
}

fn decimal(number: &BigDecimal) -> Decimal<'static> {
    Decimal::computed(number.normalized().to_plain_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::table::table;

    fn parse(text: &str) -> Decimal<'_> {
        Decimal::parse(text).expect("a decimal")
    }

    /// Value, cost and profit.
    fn shown(
        quantity: &str,
        price: Option<&str>,
        average: Option<&str>,
        multiplier: &Multiplier<'_>,
    ) -> [Option<String>; 3] {
        let (price, average) = (price.map(parse), average.map(parse));
        let PositionValue {
            market_value,
            cost,
            unrealized_pnl,
        } = value_position(
            &parse(quantity),
            price.as_ref(),
            average.as_ref(),
            multiplier,
        );
        [market_value, cost, unrealized_pnl].map(|number| number.map(|number| number.to_string()))
    }

    #[test]
    fn products_are_exact_without_trailing_zeros() {
        for [quantity, price, average, multiplier, value, cost, profit] in table(
            "10.5 | 123.45 | 118.2 | one | 1296.225 | 1241.1 | 55.125
            -2 | 11.20 | 8.75 | 100 | -2240 | -1750 | -490
            0 | 5.00 | 4 | one | 0 | 0 | 0
            3 | 7 | | one | 21 | |
            3 | | 7 | 100 | | 2100 |
            1 | 20 | 10 | unknown | | |
            200 | 50 | 50.0 | one | 10000 | 10000 | 0
            0.000000001 | 0.000000001 | 0 | one | 0.000000000000000001 | 0 | 0.000000000000000001",
        ) {
            let multiplier = match multiplier {
                "one" => Multiplier::One,
                "unknown" => Multiplier::Unknown,
                factor => Multiplier::Of(parse(factor)),
            };
            let number = |text: &'static str| (!text.is_empty()).then_some(text);
            let expected = [value, cost, profit].map(|text| number(text).map(str::to_owned));
            assert_eq!(
                shown(quantity, number(price), number(average), &multiplier),
                expected,
                "{quantity} {price} {average}"
            );
        }
    }

    #[test]
    fn overlong_numbers_are_not_multiplied() {
        let long = "9".repeat(513);
        assert_eq!(
            shown(&long, Some("1"), Some("1"), &Multiplier::One),
            [None, None, None]
        );
        let one = || Some("1".to_owned());
        assert_eq!(
            shown("1", Some("1"), Some(&long), &Multiplier::One),
            [one(), None, None]
        );
        assert_eq!(
            shown("1", Some(&long), Some("1"), &Multiplier::One),
            [None, one(), None]
        );
    }

    proptest! {
        /// Model: scaled integers.
        #[test]
        fn agrees_with_whole_numbers(
            units in -1_000_000_i64..1_000_000,
            price in 0_i64..1_000_000,
            average in 0_i64..1_000_000,
        ) {
            let cents = |number: i64| {
                let sign = if number < 0 { "-" } else { "" };
                format!("{sign}{}.{:02}", number.abs() / 100, number.abs() % 100)
            };
            let [value, cost, profit] =
                shown(&cents(units), Some(&cents(price)), Some(&cents(average)), &Multiplier::One);
            let scaled = |text: Option<String>| {
                let text = text.expect("computed");
                let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
                format!("{whole}{fraction:0<4}").parse::<i128>().expect("a number")
            };
            let units = i128::from(units);
            prop_assert_eq!(scaled(value), units * i128::from(price));
            prop_assert_eq!(scaled(cost), units * i128::from(average));
            prop_assert_eq!(scaled(profit), units * i128::from(price) - units * i128::from(average));
        }
    }
}
