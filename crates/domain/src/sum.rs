//! Exact sums of decimals with any number of places.

use std::cmp::Ordering;

use bigdecimal::num_bigint::{BigInt, Sign};
use bigdecimal::{BigDecimal, RoundingMode, Zero as _};

use crate::Decimal;

/// Longer numbers are not computed with: no real amount or position has them, a sum keeps as many
/// digits as its longest number, and the cost of a product grows faster than their length.
const NUMBER_BYTES_MAX: usize = 512;

/// The number of a decimal. None if it is longer than 512 characters.
pub(crate) fn number(decimal: &Decimal<'_>) -> Option<BigDecimal> {
    let text = decimal.as_str();
    if text.len() > NUMBER_BYTES_MAX {
        None
    } else {
        text.parse().ok()
    }
}

/// A sum. It has as many places as the number with the most places. Has no `Debug`, so that no
/// amount is logged.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExactSum(BigDecimal);

/// Decimal places of a percentage.
const PERCENT_PLACES: i64 = 1;

impl ExactSum {
    /// Adds a number. Returns false, and adds nothing, if it is longer than 512 characters.
    #[must_use]
    pub fn add(&mut self, decimal: &Decimal<'_>) -> bool {
        let number = number(decimal);
        if let Some(number) = &number {
            self.0 += number;
        }
        number.is_some()
    }

    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self(&self.0 + &other.0)
    }

    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }

    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }

    /// How many per cent of the other it is, without the other's sign, rounded half to even to one
    /// place. None: the other is zero.
    #[must_use]
    pub fn percent_of(&self, whole: &Self) -> Option<Decimal<'static>> {
        // As whole numbers of the smaller place, so that the division is one of integers.
        let scale = self
            .0
            .fractional_digit_count()
            .max(whole.0.fractional_digit_count());
        let units = |number: &BigDecimal| number.with_scale(scale).into_bigint_and_scale().0;
        let (part, whole) = (units(&self.0), units(&whole.0.abs()));
        if whole.is_zero() {
            return None;
        }
        // A tenth of the last place, and a digit that says whether anything is left.
        let tenths: BigInt = part * 10_000;
        let (quotient, rest) = (&tenths / &whole, &tenths % &whole);
        let left: BigInt = match rest.sign() {
            Sign::Minus => (-1).into(),
            Sign::NoSign => 0.into(),
            Sign::Plus => 1.into(),
        };
        let rounded = BigDecimal::new(quotient * 10 + left, PERCENT_PLACES + 2)
            .with_scale_round(PERCENT_PLACES, RoundingMode::HalfEven);
        Some(Decimal::computed(rounded.to_plain_string()))
    }

    /// Compares without the signs.
    #[must_use]
    pub fn cmp_absolute(&self, other: &Self) -> Ordering {
        self.0.abs().cmp(&other.0.abs())
    }

    #[must_use]
    pub fn to_decimal(&self) -> Decimal<'static> {
        Decimal::computed(self.0.to_plain_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(numbers: &[&str]) -> ExactSum {
        let mut sum = ExactSum::default();
        for number in numbers {
            assert!(sum.add(&Decimal::parse(number).unwrap()));
        }
        sum
    }

    #[test]
    fn sum_keeps_the_most_places() {
        for (numbers, expected) in [
            (&[][..], "0"),
            (&["84.30"], "84.30"),
            (&["1.50", "2.50"], "4.00"),
            (&["0.1", "0.2"], "0.3"),
            (&["1000", "-0.001"], "999.999"),
            (&["-5.00", "5.00"], "0.00"),
            (
                &["0.000000000000000001", "100000000000000000000"],
                "100000000000000000000.000000000000000001",
            ),
        ] {
            assert_eq!(sum(numbers).to_decimal().as_str(), expected, "{numbers:?}");
        }
        assert!(sum(&["-5.00", "5"]).is_zero());
        assert_eq!(
            sum(&["-5"]).plus(&sum(&["7.5"])).to_decimal().as_str(),
            "2.5"
        );
        assert_eq!(sum(&["-5"]).cmp_absolute(&sum(&["3"])), Ordering::Greater);
    }

    #[test]
    fn percentages_are_rounded_once() {
        for (part, whole, expected) in [
            ("2494.30", "8435.014", Some("29.6")),
            ("1", "3", Some("33.3")),
            ("2", "3", Some("66.7")),
            ("-1", "8", Some("-12.5")),
            ("1", "-8", Some("12.5")),
            ("0.25", "1000", Some("0.0")),
            ("1.5", "1000", Some("0.2")),
            ("2.5", "1000", Some("0.2")),
            ("2.500000000000000001", "1000", Some("0.3")),
            ("-0.0001", "7", Some("0.0")),
            ("0", "5", Some("0.0")),
            ("5", "0.00", None),
            (
                "123456789012345678901234567890",
                "1234567890123456789012345678900",
                Some("10.0"),
            ),
        ] {
            let found = sum(&[part]).percent_of(&sum(&[whole]));
            let found = found.as_ref().map(Decimal::as_str);
            assert_eq!(found, expected, "{part} of {whole}");
        }
        let rest = sum(&["5"]).minus(&sum(&["7.25"]));
        assert_eq!(rest.to_decimal().as_str(), "-2.25");
        assert!(rest < sum(&["-2"]) && sum(&["10"]) > sum(&["9.5"]));
    }

    #[test]
    fn absurdly_long_number_is_not_added() {
        let mut sum = sum(&["1"]);
        assert!(sum.add(&Decimal::parse(&"9".repeat(512)).unwrap()));
        assert!(!sum.add(&Decimal::parse(&"9".repeat(513)).unwrap()));
        assert_eq!(sum.to_decimal().as_str(), format!("1{}", "0".repeat(512)));
    }

    proptest! {
        /// Model: whole numbers of the smallest place.
        #[test]
        fn sum_is_that_of_whole_numbers(
            numbers in prop::collection::vec((-1_000_000_000_i64..1_000_000_000, 0_usize..7), 0..40),
        ) {
            let (mut sum, mut expected) = (ExactSum::default(), 0_i128);
            for (digits, places) in &numbers {
                let text = format!("{digits}e-{places}");
                prop_assert!(sum.add(&Decimal::parse(&text).unwrap()));
                expected += i128::from(*digits) * 10_i128.pow(6 - u32::try_from(*places).unwrap());
            }
            let text = sum.to_decimal().as_str().to_owned();
            let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
            prop_assert_eq!(format!("{whole}{fraction:0<6}").parse::<i128>().unwrap(), expected);
            let plain = Decimal::parse(&text).unwrap();
            prop_assert_eq!(plain.as_str(), text.as_str(), "in plain notation");
        }
    }
}
