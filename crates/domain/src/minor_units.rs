//! Conversion of decimal amounts to whole numbers of a currency's smallest unit, such as cents.

use std::cmp::Ordering;

use crate::{Currency, Decimal};

/// A whole number of cents, yen or fils, of any size. Has no `Debug`, so that no amount is logged.
#[derive(Clone, PartialEq, Eq)]
pub struct MinorUnits(String);

impl MinorUnits {
    /// Converts an amount. Rounds half to even if it has more decimal places than the currency.
    /// Zero has no sign.
    ///
    /// Works on the digits, so the time is linear in their number, however many a provider sends.
    #[must_use]
    pub fn of(amount: &Decimal<'_>, currency: Currency) -> Self {
        Self::with_places(amount, currency.minor_unit_digits() as usize)
    }

    /// As [`Self::of`], of a hundredth of any currency.
    #[must_use]
    pub fn hundredths(amount: &Decimal<'_>) -> Self {
        Self::with_places(amount, 2)
    }

    fn with_places(amount: &Decimal<'_>, places: usize) -> Self {
        let unsigned = amount.as_str().trim_start_matches('-');
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let (kept, cut) = fraction.split_at(places.min(fraction.len()));
        // One byte more than needed, for a carry or a sign.
        let mut digits = Vec::with_capacity(whole.len() + places + 2);
        digits.extend_from_slice(whole.as_bytes());
        digits.extend_from_slice(kept.as_bytes());
        digits.resize(whole.len() + places, b'0');
        if rounds_up(digits.last().copied().unwrap_or(b'0'), cut) {
            add_one(&mut digits);
        }
        Self(signed_text(amount.is_negative(), &digits))
    }

    /// The number as a JSON number: digits, with a minus sign below zero.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether the digits cut off behind `last` round it up, half to even.
fn rounds_up(last: u8, cut: &str) -> bool {
    let Some((first, rest)) = cut.as_bytes().split_first() else {
        return false;
    };
    match first.cmp(&b'5') {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => last % 2 == 1 || rest.iter().any(|digit| *digit != b'0'),
    }
}

fn add_one(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
    digits.insert(0, b'1');
}

fn signed_text(negative: bool, digits: &[u8]) -> String {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let significant = &digits[zeros..];
    if significant.is_empty() {
        return "0".to_owned();
    }
    let mut text = String::with_capacity(significant.len() + 1);
    if negative {
        text.push('-');
    }
    text.extend(significant.iter().copied().map(char::from));
    text
}

#[cfg(test)]
mod tests {
    use bigdecimal::{BigDecimal, RoundingMode};
    use proptest::prelude::*;

    use super::*;

    fn units(amount: &str, currency: &str) -> String {
        let amount = Decimal::parse(amount).expect("a decimal");
        MinorUnits::of(&amount, Currency::parse(currency).expect("a currency")).0
    }

    #[test]
    fn shifts_the_point_by_the_currency() {
        for (amount, currency, expected) in [
            ("84.30", "AUD", "8430"),
            ("-5.00", "AUD", "-500"),
            ("12", "NZD", "1200"),
            ("0.1", "AUD", "10"),
            ("-0.01", "AUD", "-1"),
            ("007.50", "AUD", "750"),
            ("1500", "JPY", "1500"),
            ("1.234", "BHD", "1234"),
            ("-1.2", "KWD", "-1200"),
            ("2.5", "CLF", "25000"),
            ("3.00", "XXX", "300"),
            ("0.00", "AUD", "0"),
            ("0", "JPY", "0"),
            (
                "12345678901234567890123456789.98",
                "AUD",
                "1234567890123456789012345678998",
            ),
        ] {
            assert_eq!(units(amount, currency), expected, "{amount} {currency}");
        }
    }

    #[test]
    fn rounds_half_to_even_without_negative_zero() {
        for (amount, currency, expected) in [
            ("0.005", "AUD", "0"),
            ("-0.005", "AUD", "0"),
            ("0.015", "AUD", "2"),
            ("0.025", "AUD", "2"),
            ("-0.035", "AUD", "-4"),
            ("0.00500", "AUD", "0"),
            ("0.005000000000000000000000001", "AUD", "1"),
            ("-0.0049999999", "AUD", "0"),
            ("9.995", "AUD", "1000"),
            ("99.9951", "AUD", "10000"),
            ("0.5", "JPY", "0"),
            ("1.5", "JPY", "2"),
            ("-999.5", "JPY", "-1000"),
            ("1.0005", "BHD", "1000"),
            ("1.0015", "BHD", "1002"),
            ("0.0000001", "AUD", "0"),
        ] {
            assert_eq!(units(amount, currency), expected, "{amount} {currency}");
        }
    }

    #[test]
    fn time_is_linear_in_the_digits() {
        // With quadratic time this test would run for hours.
        let nines = "9".repeat(1 << 20);
        assert_eq!(
            units(&format!("{nines}.995"), "AUD"),
            format!("1{}00", "0".repeat(nines.len()))
        );
        assert_eq!(units(&format!("0.00{nines}"), "AUD"), "1");
    }

    proptest! {
        /// Model: the rounding of the decimal library.
        #[test]
        fn agrees_with_big_decimal(
            amount in "-?[0-9]{1,30}(\\.[0-9]{1,12})?",
            currency in prop::sample::select(vec!["AUD", "JPY", "BHD", "CLF"]),
        ) {
            let places = i64::from(Currency::parse(currency).expect("a currency").minor_unit_digits());
            let number: BigDecimal = amount.parse().expect("a number");
            let (expected, _) = number.with_scale_round(places, RoundingMode::HalfEven).into_bigint_and_scale();
            prop_assert_eq!(units(&amount, currency), expected.to_string());
        }

        /// Halves and their neighbours, which random numbers hardly ever hit.
        #[test]
        fn halves_agree_with_big_decimal(
            whole in "-?[0-9]{1,6}",
            kept in "[0-9]{2}",
            cut in prop::sample::select(vec!["5", "50", "500", "49", "4999", "51", "5001", "05"]),
        ) {
            let amount = format!("{whole}.{kept}{cut}");
            let number: BigDecimal = amount.parse().expect("a number");
            let (expected, _) = number.with_scale_round(2, RoundingMode::HalfEven).into_bigint_and_scale();
            prop_assert_eq!(units(&amount, "AUD"), expected.to_string());
        }
    }
}
