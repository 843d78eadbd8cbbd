//! Amounts as pages show them.

/// Commas between the thousands. Every digit stays as it is.
pub(crate) fn with_commas(value: &str) -> String {
    let (sign, number) = value
        .strip_prefix('-')
        .map_or(("", value), |number| ("-", number));
    let (whole, places) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut shown = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown + places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_is_shown() {
        for (value, shown) in [
            ("0", "0"),
            ("-0.10", "-0.10"),
            ("999", "999"),
            ("1000", "1,000"),
            ("-412508.11", "-412,508.11"),
            ("1234567890.123456789", "1,234,567,890.123456789"),
        ] {
            assert_eq!(with_commas(value), shown);
            assert_eq!(with_commas(value).replace(',', ""), value);
        }
    }
}
