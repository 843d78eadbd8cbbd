//! Numbers as pages show them: short enough to compare, and with the exact text one step away.

use bellbird_domain::{Currency, Decimal, ExactSum};

/// Decimal places of an amount that is less than one of its currency's smallest unit, as of coins.
const SMALL_PLACES: usize = 8;
const QUANTITY_PLACES: usize = 8;
const PRICE_PLACES: usize = 6;
const PERCENT_PLACES: usize = 1;

/// A number for reading. Digits that are left out are never rounded away unseen: `exact` has all of
/// them, and the page marks the number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Number {
    /// With commas between the thousands, and the minus sign of typographers (U+2212).
    pub(crate) text: String,
    /// The number as the API says it, if the text does not have all of its digits.
    pub(crate) exact: Option<String>,
}

impl Number {
    /// An amount of money, with the places of its currency.
    pub(crate) fn money(value: &str, currency: &str) -> Self {
        let places = places_of(currency);
        let number = Self::of(value, places, places);
        if number.exact.is_some() && !is_nonzero(&number.text) {
            return Self::of(value, places, SMALL_PLACES);
        }
        number
    }

    /// As [`Self::money`], of a sum.
    pub(crate) fn sum(sum: &ExactSum, currency: &str) -> Self {
        Self::money(sum.to_decimal().as_str(), currency)
    }

    /// Of a security: as many places as there are.
    pub(crate) fn quantity(value: &str) -> Self {
        Self::of(value, 0, QUANTITY_PLACES)
    }

    pub(crate) fn price(value: &str, currency: &str) -> Self {
        Self::of(value, places_of(currency), PRICE_PLACES)
    }

    /// Without its exact text, because it is a quotient.
    pub(crate) fn percent(value: &str) -> Self {
        Self {
            exact: None,
            ..Self::of(value, PERCENT_PLACES, PERCENT_PLACES)
        }
    }

    /// Zeros are added up to `least` places, and places beyond `most` are left out, unless they are
    /// zeros.
    fn of(value: &str, least: usize, most: usize) -> Self {
        let (sign, number) = value
            .strip_prefix('-')
            .map_or(("", value), |number| ("\u{2212}", number));
        let (whole, places) = number.split_once('.').unwrap_or((number, ""));
        let mut text = sign.to_owned();
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        let needed = places.trim_end_matches('0');
        let (kept, dropped) = needed.split_at(needed.len().min(most));
        let kept = kept.trim_end_matches('0');
        let zeros = least.saturating_sub(kept.len());
        if kept.len() + zeros > 0 {
            text.push('.');
            text.push_str(kept);
            text.extend(std::iter::repeat_n('0', zeros));
        }
        Self {
            text,
            exact: (!dropped.is_empty()).then(|| value.to_owned()),
        }
    }

    /// The text, marked if it does not have all digits.
    pub(crate) fn marked(&self) -> String {
        let mark = if self.exact.is_some() { "…" } else { "" };
        format!("{}{mark}", self.text)
    }

    /// With all digits, for a sum. None: it is no number.
    pub(crate) fn to_decimal(&self) -> Option<Decimal<'static>> {
        let text = self.text.replace(',', "").replace('\u{2212}', "-");
        let text = self.exact.as_ref().unwrap_or(&text);
        Decimal::parse(text).ok().map(Decimal::into_owned)
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.text.starts_with('\u{2212}')
    }

    /// More than zero.
    pub(crate) fn is_positive(&self) -> bool {
        let digits = self.exact.as_deref().unwrap_or(&self.text);
        !self.is_negative() && is_nonzero(digits)
    }
}

/// Whether a number has another digit than 0.
pub(crate) fn is_nonzero(number: &str) -> bool {
    number.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}

fn places_of(currency: &str) -> usize {
    Currency::parse(currency).map_or(2, |currency| currency.minor_unit_digits() as usize)
}

/// An amount with its currency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Money {
    pub(crate) currency: String,
    pub(crate) number: Number,
}

impl Money {
    pub(crate) fn new(currency: &str, value: &str) -> Self {
        Self {
            currency: currency.to_owned(),
            number: Number::money(value, currency),
        }
    }

    pub(crate) fn sum(currency: &str, sum: &ExactSum) -> Self {
        Self::new(currency, sum.to_decimal().as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_has_the_places_of_its_currency() {
        for (value, currency, text, has_all) in [
            ("0", "AUD", "0.00", true),
            ("3120.4", "AUD", "3,120.40", true),
            ("-12.3400", "AUD", "−12.34", true),
            ("-12.345", "AUD", "−12.34", false),
            ("-0.001", "NZD", "−0.001", true),
            ("0.0000000012", "NZD", "0.00", false),
            ("1500", "JPY", "1,500", true),
            ("1500.5", "JPY", "1,500", false),
            ("1.5", "KWD", "1.500", true),
            ("0.00012345", "BTC", "0.00012345", true),
            ("3.5", "", "3.50", true),
            ("1234567890.10", "AUD", "1,234,567,890.10", true),
        ] {
            let number = Number::money(value, currency);
            assert_eq!(number.text, text, "{value} {currency}");
            let exact = (!has_all).then(|| value.to_owned());
            assert_eq!(number.exact, exact, "{value} {currency}");
        }
    }

    #[test]
    fn sums_have_all_digits() {
        for value in ["-1234567.5", "0", "12.345", "-0.00000000123456789"] {
            let number = Number::money(value, "AUD").to_decimal().unwrap();
            let expected = Decimal::parse(value).unwrap();
            assert!(number.cmp_absolute(&expected).is_eq(), "{value}");
            assert_eq!(number.is_negative(), expected.is_negative(), "{value}");
        }
        assert!(Number::money("many", "AUD").to_decimal().is_none());
    }

    #[test]
    fn quantities_and_prices_have_their_places() {
        assert_eq!(Number::quantity("3.500").text, "3.5");
        assert_eq!(Number::quantity("40").text, "40");
        let long = Number::quantity("0.123456789012345678");
        assert_eq!(long.text, "0.12345678");
        assert_eq!(long.exact.as_deref(), Some("0.123456789012345678"));
        assert_eq!(Number::price("12.5", "AUD").text, "12.50");
        assert_eq!(Number::price("3122.6600009", "USD").text, "3,122.66");
        assert!(Number::price("3122.6600009", "USD").exact.is_some());
        assert_eq!(Number::percent("29.637").text, "29.6");
    }

    #[test]
    fn what_is_dropped_decides_about_the_sign_too() {
        assert!(Number::money("0.001", "AUD").is_positive());
        assert!(!Number::money("0.00", "AUD").is_positive());
        assert!(Number::money("-5", "AUD").is_negative());
    }
}
