//! Exact decimals: the provider's own digits, of any length, never a binary float.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// Maximum number of zeros that an exponent may add. The largest double needs about 300. The limit
/// only keeps `1e999999999` from exhausting memory; digits in the source are not limited.
pub const ZEROS_MAX: usize = 1_024;

/// Why a text is not a decimal. Never contains the text, because that may be an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// Not an optional sign, digits with at most one point, and an optional exponent.
    #[error("not a decimal")]
    Syntax,
    /// The exponent would add more zeros than [`ZEROS_MAX`].
    #[error("exponent too large")]
    Exponent,
}

/// A decimal number in plain notation: `-?[0-9]+(\.[0-9]+)?`, never a negative zero.
///
/// Keeps the digits of the source, zeros at both ends included: `84.30` stays `84.30`. Borrows the
/// source if it is already plain.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Decimal<'a>(Cow<'a, str>);

impl<'a> Decimal<'a> {
    /// Parses an optional sign, digits with an optional point (one side may be empty), and an
    /// optional exponent.
    ///
    /// Drops a plus sign and the sign of zero, and writes out the exponent. `.5` becomes `0.5`, and
    /// `5.` becomes `5`.
    pub fn parse(text: &'a str) -> Result<Self, DecimalError> {
        let parts = Parts::split(text)?;
        if parts.is_canonical() {
            return Ok(Self(Cow::Borrowed(text)));
        }
        parts.write_out().map(|plain| Self(Cow::Owned(plain)))
    }

    /// Wraps a computed number, which must be in plain notation.
    pub(crate) fn computed(plain: String) -> Self {
        Self(Cow::Owned(plain))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.0.starts_with('-')
    }

    /// Compares without the signs: `-5.0` equals `5.00`. The time is linear in the number of
    /// digits.
    #[must_use]
    pub fn cmp_absolute(&self, other: &Decimal<'_>) -> Ordering {
        let (whole, fraction) = self.significant();
        let (other_whole, other_fraction) = other.significant();
        let wholes = whole
            .len()
            .cmp(&other_whole.len())
            .then_with(|| whole.cmp(other_whole));
        wholes.then_with(|| fraction.cmp(other_fraction))
    }

    /// The digits before and behind the point, without zeros at the ends.
    fn significant(&self) -> (&str, &str) {
        let unsigned = self.0.trim_start_matches('-');
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        (
            whole.trim_start_matches('0'),
            fraction.trim_end_matches('0'),
        )
    }

    #[must_use]
    pub fn into_owned(self) -> Decimal<'static> {
        Decimal(Cow::Owned(self.0.into_owned()))
    }
}

impl fmt::Display for Decimal<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for Decimal<'_> {
    /// Shows no digit, so that no amount gets into a log.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Decimal(..)")
    }
}

impl serde::Serialize for Decimal<'_> {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&self.0)
    }
}

struct Parts<'a> {
    plus: bool,
    minus: bool,
    whole: &'a str,
    point: bool,
    fraction: &'a str,
    exponent: Option<i64>,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, DecimalError> {
        let minus = text.starts_with('-');
        let plus = text.starts_with('+');
        let unsigned = if minus || plus { &text[1..] } else { text };
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(at) => (&unsigned[..at], Some(parse_exponent(&unsigned[at + 1..])?)),
            None => (unsigned, None),
        };
        let (whole, point, fraction) = match mantissa.find('.') {
            Some(at) => (&mantissa[..at], true, &mantissa[at + 1..]),
            None => (mantissa, false, ""),
        };
        let all_digits = whole
            .bytes()
            .chain(fraction.bytes())
            .all(|byte| byte.is_ascii_digit());
        if !all_digits || whole.is_empty() && fraction.is_empty() {
            return Err(DecimalError::Syntax);
        }
        Ok(Self {
            plus,
            minus,
            whole,
            point,
            fraction,
            exponent,
        })
    }

    fn is_zero(&self) -> bool {
        self.whole
            .bytes()
            .chain(self.fraction.bytes())
            .all(|byte| byte == b'0')
    }

    fn is_canonical(&self) -> bool {
        !self.plus
            && self.exponent.is_none()
            && !self.whole.is_empty()
            && self.point != self.fraction.is_empty()
            && !(self.minus && self.is_zero())
    }

    fn write_out(&self) -> Result<String, DecimalError> {
        let digits = format!("{}{}", self.whole, self.fraction);
        let (digits, scale) = match self.exponent {
            None => (digits, self.fraction.len()),
            Some(exponent) => shift(digits, self.fraction.len(), exponent)?,
        };
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        let sign = if self.minus && !self.is_zero() {
            "-"
        } else {
            ""
        };
        let whole = if whole.is_empty() { "0" } else { whole };
        let point = if fraction.is_empty() { "" } else { "." };
        Ok(format!("{sign}{whole}{point}{fraction}"))
    }
}

/// Multiplies `digits`, of which `scale` are behind the point, by a power of ten. Returns the
/// digits, padded with zeros, and how many of them are now behind the point. Drops leading zeros:
/// `0.05e2` is `5`.
fn shift(mut digits: String, scale: usize, exponent: i64) -> Result<(String, usize), DecimalError> {
    let scale = i64::try_from(scale)
        .map_err(|_| DecimalError::Exponent)?
        .saturating_sub(exponent);
    let there = i64::try_from(digits.len()).map_err(|_| DecimalError::Exponent)?;
    let zeros = if scale < 0 {
        scale.unsigned_abs()
    } else {
        u64::try_from(scale - there).unwrap_or(0)
    };
    if zeros > ZEROS_MAX as u64 {
        return Err(DecimalError::Exponent);
    }
    let Ok(scale) = usize::try_from(scale) else {
        digits.extend(std::iter::repeat_n(
            '0',
            usize::try_from(scale.unsigned_abs()).unwrap_or(0),
        ));
        return Ok((without_leading_zeros(&digits, 0), 0));
    };
    if digits.len() < scale {
        digits.insert_str(0, &"0".repeat(scale - digits.len()));
    }
    Ok((without_leading_zeros(&digits, scale), scale))
}

fn without_leading_zeros(digits: &str, scale: usize) -> String {
    let whole = digits.len() - scale;
    let zeros = digits
        .bytes()
        .take(whole.saturating_sub(1))
        .take_while(|byte| *byte == b'0')
        .count();
    digits[zeros..].to_owned()
}

fn parse_exponent(text: &str) -> Result<i64, DecimalError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DecimalError::Syntax);
    }
    // An exponent that overflows an i64 is far beyond the limit in either direction.
    text.parse().map_err(|_| DecimalError::Exponent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(text: &str) -> Result<String, DecimalError> {
        Decimal::parse(text).map(|decimal| decimal.to_string())
    }

    #[test]
    fn keeps_the_digits_of_the_source() {
        for text in [
            "0",
            "0.00",
            "84.30",
            "-5.00",
            "100",
            "007.50",
            "12345678901234567890123456789.987654321",
            "-0.1",
        ] {
            let decimal = Decimal::parse(text).expect(text);
            assert_eq!(decimal.as_str(), text);
            assert!(matches!(decimal.0, Cow::Borrowed(_)), "{text} was copied");
        }
    }

    #[test]
    fn other_notations_become_plain() {
        for (text, expected) in [
            ("+15.20", "15.20"),
            ("-0.00", "0.00"),
            ("-0", "0"),
            ("+0", "0"),
            (".5", "0.5"),
            ("-.5", "-0.5"),
            ("5.", "5"),
            ("1e3", "1000"),
            ("1E+3", "1000"),
            ("1e-7", "0.0000001"),
            ("-1.50e1", "-15.0"),
            ("1.50e2", "150"),
            ("1.5e3", "1500"),
            ("0.05e2", "5"),
            ("12.5e-1", "1.25"),
            ("0e5", "0"),
            ("-0e-2", "0.00"),
            ("1.5e0", "1.5"),
        ] {
            assert_eq!(plain(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn rejects_text_that_is_not_a_decimal() {
        for text in [
            "", "-", "+", ".", "-.", "e5", "1e", "1e+", "1.2.3", "1,000", " 1", "1 ", "--1", "NaN",
            "1e1.5", "٣", "0x1",
        ] {
            assert_eq!(plain(text), Err(DecimalError::Syntax), "{text:?}");
        }
        for text in ["1e1025", "1e-1026", "1e99999999999999999999", "0e-9999999"] {
            assert_eq!(plain(text), Err(DecimalError::Exponent), "{text:?}");
        }
    }

    #[test]
    fn exponent_shifts_any_number_of_digits() {
        let digits = "7".repeat(5_000);
        assert_eq!(
            plain(&format!("{digits}e-2500")),
            Ok(format!("{0}.{0}", "7".repeat(2_500)))
        );
        assert_eq!(plain(&format!("0.{digits}e5000")), Ok(digits.clone()));
        assert_eq!(
            plain(&format!("{digits}e1024")),
            Ok(format!("{digits}{}", "0".repeat(1_024)))
        );
    }

    #[test]
    fn comparison_ignores_signs_and_zeros() {
        for (one, other, expected) in [
            ("-5.0", "5.00", Ordering::Equal),
            ("0", "0.000", Ordering::Equal),
            ("007", "7", Ordering::Equal),
            ("9", "10", Ordering::Less),
            ("-10", "9.99", Ordering::Greater),
            ("0.1", "0.09", Ordering::Greater),
            ("0.1", "0.10000000000000000001", Ordering::Less),
        ] {
            let [one, other] = [one, other].map(|text| Decimal::parse(text).expect(text));
            assert_eq!(one.cmp_absolute(&other), expected, "{one} {other}");
            assert_eq!(
                other.cmp_absolute(&one),
                expected.reverse(),
                "{other} {one}"
            );
        }
    }

    #[test]
    fn debug_shows_no_digit() {
        assert_eq!(
            format!("{:?}", Decimal::parse("42.17").expect("plain")),
            "Decimal(..)"
        );
    }

    proptest! {
        #[test]
        fn any_number_of_digits_survives(text in "-?[0-9]{1,80}(\\.[0-9]{1,80})?") {
            let zero = !text.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
            let expected = if zero { text.trim_start_matches('-') } else { &text };
            prop_assert_eq!(plain(&text), Ok(expected.to_owned()));
        }

        #[test]
        fn plain_notation_is_stable(text in "[-+]?[0-9]{0,12}\\.?[0-9]{0,12}([eE][-+]?[0-9]{1,3})?") {
            if let Ok(once) = plain(&text) {
                prop_assert_eq!(plain(&once), Ok(once.clone()));
            }
        }

        /// Model, in whole numbers: a decimal with an exponent is its digits times a power of ten.
        #[test]
        fn an_exponent_keeps_the_value(digits in 0_u64..1_000_000, scale in 0_usize..9, exponent in -15_i32..2) {
            let padded = format!("{digits:010}");
            let (whole, fraction) = padded.split_at(padded.len() - scale);
            let point = if scale == 0 { "" } else { "." };
            let text = format!("{whole}{point}{fraction}e{exponent}");
            let written = plain(&text).expect("a decimal");
            prop_assert_eq!(scaled_by_1e30(&written), scaled_by_1e30_from(digits, scale, exponent));
        }

        /// Model: the comparison of the decimal library.
        #[test]
        fn comparison_agrees_with_big_decimal(
            one in "-?[0-9]{1,20}(\\.[0-9]{1,6})?",
            other in "-?0{0,3}[0-9]{1,20}(\\.[0-9]{1,6})?",
            has_same_start in any::<bool>(),
        ) {
            let other = if has_same_start { format!("00{}", one.trim_start_matches('-')) } else { other };
            let number = |text: &str| text.parse::<bigdecimal::BigDecimal>().expect("a number").abs();
            let (first, second) = (Decimal::parse(&one).expect("plain"), Decimal::parse(&other).expect("plain"));
            prop_assert_eq!(first.cmp_absolute(&second), number(&one).cmp(&number(&other)));
        }

        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = plain(&text);
        }
    }

    fn scaled_by_1e30(plain: &str) -> u128 {
        let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
        format!("{whole}{fraction}{}", "0".repeat(30 - fraction.len()))
            .parse()
            .expect("fits")
    }

    fn scaled_by_1e30_from(digits: u64, scale: usize, exponent: i32) -> u128 {
        let power = 30 - i32::try_from(scale).expect("small") + exponent;
        // The largest generated value, 10^6 times 10^31, fits into u128.
        u128::from(digits)
            .checked_mul(10_u128.checked_pow(power.unsigned_abs()).expect("fits"))
            .expect("fits")
    }
}
