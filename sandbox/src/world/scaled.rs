//! Decimal numbers as banks write them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A decimal number: `value` divided by ten to the power of `places`. Displays without trailing
/// zeros; `{:#}` shows at least one decimal, as floats are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scaled {
    pub(super) value: i64,
    pub(super) places: u32,
}

impl Scaled {
    pub(super) const ZERO: Self = Self::cents(0);

    pub(crate) const fn cents(value: i64) -> Self {
        Self { value, places: 2 }
    }

    pub(super) const fn minus(self) -> Self {
        Self {
            value: -self.value,
            ..self
        }
    }

    /// The product of three factors, rounded to cents.
    pub(super) fn times(self, other: Self, whole: i64) -> i64 {
        let product = i128::from(self.value) * i128::from(other.value) * i128::from(whole);
        let unit = 10_i128.pow((self.places + other.places).saturating_sub(2));
        let cents = (product.abs() + unit / 2) / unit * product.signum();
        i64::try_from(cents).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Scaled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10_u64.pow(self.places);
        let all = self.value.unsigned_abs();
        let sign = if self.value < 0 { "-" } else { "" };
        write!(formatter, "{sign}{}", all / unit)?;
        let (mut rest, mut places) = (all % unit, self.places as usize);
        if rest == 0 {
            return formatter.write_str(if formatter.alternate() { ".0" } else { "" });
        }
        while rest.is_multiple_of(10) {
            (rest, places) = (rest / 10, places - 1);
        }
        write!(formatter, ".{rest:0places$}")
    }
}

/// Cents as a decimal text, always with two places.
pub(crate) fn decimal(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    let cents = cents.unsigned_abs();
    format!("{sign}{}.{:02}", cents / 100, cents % 100)
}

#[cfg(test)]
mod tests {
    use super::Scaled;

    #[test]
    fn decimals_have_no_trailing_zeros() {
        let text = |value, places| Scaled { value, places }.to_string();
        assert_eq!(text(-1050, 2), "-10.5");
        assert_eq!(text(5, 9), "0.000000005");
        assert_eq!(text(4000, 2), "40");
        assert_eq!(text(0, 2), "0");
        assert_eq!(
            format!(
                "{:#}",
                Scaled {
                    value: -4000,
                    places: 2
                }
            ),
            "-40.0"
        );
        let units = Scaled {
            value: 1_053_817,
            places: 5,
        };
        assert_eq!(units.times(Scaled::cents(18_432), 1), 194_240);
    }
}
