//! Exact changes to the text of an amount. No amount becomes a number on the way. And the currency
//! of a file that says none for each row.

use bellbird_domain::{Currency, Decimal};

use super::FormatError;

/// The currency, unless it is the code for none.
pub(super) fn known(currency: Currency) -> Option<Currency> {
    Some(currency).filter(|currency| *currency != Currency::UNKNOWN)
}

/// Fails if a row is in another currency than its file, as far as both are known.
pub(super) fn require_currency(
    of_file: Option<Currency>,
    of_row: Option<Currency>,
) -> Result<(), FormatError> {
    match of_file.zip(of_row) {
        Some((of_file, of_row)) if of_file != of_row => Err(FormatError::OtherCurrency),
        _ => Ok(()),
    }
}

/// What is before the point, sign included, and the digits behind it without zeros at the end.
fn whole_and_fraction<'a>(amount: &'a Decimal<'_>) -> (&'a str, &'a str) {
    let text = amount.as_str();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    (whole, fraction.trim_end_matches('0'))
}

/// The number of digits from the first to the last that is not zero, zeros of the whole part
/// included.
pub(super) fn significant_digits(amount: &Decimal<'_>) -> usize {
    let (whole, fraction) = whole_and_fraction(amount);
    let whole = whole.trim_start_matches(['-', '0']);
    if whole.is_empty() {
        fraction.trim_start_matches('0').len()
    } else {
        whole.len() + fraction.len()
    }
}

/// The same value with exactly two decimals, or `None` if it has more.
pub(super) fn with_two_places(amount: &Decimal<'_>) -> Option<String> {
    let (whole, fraction) = whole_and_fraction(amount);
    (fraction.len() <= 2).then(|| format!("{whole}.{fraction:0<2}"))
}

pub(super) fn absolute<'a>(amount: &'a Decimal<'_>) -> &'a str {
    amount.as_str().trim_start_matches('-')
}

/// The amount with the other sign. Zero has none.
pub(super) fn negated(amount: &Decimal<'_>) -> String {
    let is_positive = !amount.is_negative() && amount.as_str().contains(|digit: char| digit > '0');
    let sign = if is_positive { "-" } else { "" };
    format!("{sign}{}", absolute(amount))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal<'_> {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn two_places_keep_the_value() {
        for (amount, expected) in [
            ("-7", Some("-7.00")),
            ("12.5", Some("12.50")),
            ("84.30", Some("84.30")),
            ("1234567.8900", Some("1234567.89")),
            ("0.000", Some("0.00")),
            ("-11.125", None),
            ("0.001", None),
        ] {
            assert_eq!(
                with_two_places(&decimal(amount)).as_deref(),
                expected,
                "{amount}"
            );
        }
    }

    #[test]
    fn negation_keeps_digits_and_leaves_zero_alone() {
        for (amount, expected) in [
            ("-5.00", "5.00"),
            ("5.00", "-5.00"),
            ("0.00", "0.00"),
            ("0", "0"),
            ("0.1", "-0.1"),
        ] {
            assert_eq!(negated(&decimal(amount)), expected, "{amount}");
        }
    }

    #[test]
    fn digits_are_counted_without_zeros_around_them() {
        for (amount, expected) in [
            ("0", 0),
            ("-0.00", 0),
            ("100.00", 3),
            ("-12.50", 3),
            ("0.0010", 1),
            ("12345678901234567890.12", 22),
        ] {
            assert_eq!(significant_digits(&decimal(amount)), expected, "{amount}");
        }
    }
}
