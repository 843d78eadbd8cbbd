//! Amounts in the forms that clients of SimpleFIN read right.

use bellbird_domain::{Decimal, MinorUnits};

/// Exactly two places, rounded half to even: Actual deletes the point and reads a whole number of
/// cents.
pub(super) fn balance_text(amount: &Decimal<'_>) -> String {
    let hundredths = MinorUnits::hundredths(amount);
    let hundredths = hundredths.as_str();
    let (sign, digits) = hundredths
        .strip_prefix('-')
        .map_or(("", hundredths), |digits| ("-", digits));
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(2));
    let whole = if whole.is_empty() { "0" } else { whole };
    format!("{sign}{whole}.{fraction:0>2}")
}

/// The amount's own digits, with zeros added up to two places, for the same reason. Further digits
/// stay.
pub(super) fn amount_text(amount: &Decimal<'_>) -> String {
    let text = amount.as_str();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}.{fraction:0<2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balance_has_exactly_two_places() {
        for (amount, expected) in [
            ("100", "100.00"),
            ("-100", "-100.00"),
            ("0", "0.00"),
            ("0.05", "0.05"),
            ("-0.5", "-0.50"),
            ("1.005", "1.00"),
            ("1.015", "1.02"),
            ("1.0050000001", "1.01"),
            ("-0.004", "0.00"),
            ("9.995", "10.00"),
            (
                "123456789012345678901234567890.125",
                "123456789012345678901234567890.12",
            ),
        ] {
            assert_eq!(
                balance_text(&Decimal::parse(amount).unwrap()),
                expected,
                "{amount}"
            );
        }
    }

    #[test]
    fn amount_has_at_least_two_places() {
        for (amount, expected) in [
            ("-10", "-10.00"),
            ("0", "0.00"),
            ("1.5", "1.50"),
            ("84.30", "84.30"),
            ("-1.234", "-1.234"),
            ("0.000000000000000001", "0.000000000000000001"),
        ] {
            assert_eq!(
                amount_text(&Decimal::parse(amount).unwrap()),
                expected,
                "{amount}"
            );
        }
    }
}
