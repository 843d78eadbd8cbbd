//! Decimal numbers in a provider's response, parsed from their digits without a float.

use std::borrow::Cow;

use bellbird_domain::Decimal;
use bellbird_domain::decimal::DecimalError;
use serde::Deserialize;

use crate::Error;
use crate::json::Token;
use crate::unreadable::UnreadableReason;

/// A decimal that is sent as a JSON string or a JSON number. It keeps the characters as sent.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct ExactNumber<'a>(#[serde(borrow)] Token<'a>);

impl<'a> ExactNumber<'a> {
    /// The decimal, or none for an explicit null.
    pub fn decimal(&self) -> Result<Option<Decimal<'a>>, DecimalError> {
        match self.0 {
            Token::Null => Ok(None),
            Token::String(Cow::Borrowed(digits)) | Token::Other(digits) => {
                Decimal::parse(digits).map(Some)
            }
            Token::String(Cow::Owned(_)) => Err(DecimalError::Syntax),
        }
    }
}

/// The decimal of a member that may be absent or null. Anything else than a decimal makes the whole
/// response [`Error::Malformed`], since its other amounts cannot be trusted either.
pub(crate) fn amount<'a>(number: Option<&ExactNumber<'a>>) -> Result<Option<Decimal<'a>>, Error> {
    number.map_or(Ok(None), |number| {
        number
            .decimal()
            .map_err(|_| Error::Malformed("an amount is not a decimal"))
    })
}

/// As [`amount`], for a value that outlives the response.
pub(crate) fn owned_amount(
    number: Option<&ExactNumber<'_>>,
) -> Result<Option<Decimal<'static>>, Error> {
    Ok(amount(number)?.map(Decimal::into_owned))
}

/// The decimal of a member that every row has.
pub(crate) fn required<'a>(
    number: Option<&ExactNumber<'a>>,
) -> Result<Decimal<'a>, UnreadableReason> {
    let decimal = number
        .map_or(Ok(None), ExactNumber::decimal)
        .map_err(|_| UnreadableReason::InvalidAmount)?;
    decimal.ok_or(UnreadableReason::MissingAmount)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Deserialize)]
    struct Row<'a> {
        #[serde(borrow)]
        amount: ExactNumber<'a>,
    }

    fn read(amount: &str) -> Result<Option<String>, DecimalError> {
        let body = format!(r#"{{"amount": {amount}}}"#);
        let row: Row<'_> = serde_json::from_slice(body.as_bytes()).unwrap();
        row.amount
            .decimal()
            .map(|decimal| decimal.map(|digits| digits.to_string()))
    }

    #[test]
    fn strings_and_numbers_keep_their_digits() {
        for (sent, shown) in [
            ("\"84.30\"", "84.30"),
            ("84.30", "84.30"),
            ("12345678901234567.89", "12345678901234567.89"),
            ("1e-7", "0.0000001"),
            ("-0.0", "0.0"),
            ("\"+15.20\"", "15.20"),
        ] {
            assert_eq!(read(sent), Ok(Some(shown.to_owned())), "{sent}");
        }
        assert_eq!(read("null"), Ok(None));
        for sent in ["\"\"", "true", "{}", "[1]", "\"1 000\"", "\"\\u0031\""] {
            assert!(read(sent).is_err(), "{sent}");
        }
    }

    proptest! {
        #[test]
        fn a_json_number_of_any_length_is_exact(text in "-?[1-9][0-9]{0,60}(\\.[0-9]{1,60})?") {
            prop_assert_eq!(read(&text), Ok(Some(text.clone())));
            prop_assert_eq!(read(&format!("\"{text}\"")), Ok(Some(text.clone())));
        }
    }
}
