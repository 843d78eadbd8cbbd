//! Strings in a provider's response that borrow from its body, so that mapping a page allocates
//! little.

use std::borrow::Cow;
use std::fmt;

use bellbird_domain::Currency;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{Deserialize, Deserializer, IntoDeserializer, Visitor};

use crate::json::{self, Invalid, Token};

/// A JSON string. Borrowed from the body unless it contains escapes.
///
/// It is a type of its own because serde never borrows for an `Option<Cow<str>>`, and for a
/// `Cow<str>` only with an attribute.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The string, or none if it is absent or blank.
pub(crate) fn non_blank(text: Option<Text<'_>>) -> Option<Cow<'_, str>> {
    text.map(|text| text.0)
        .filter(|text| !text.trim().is_empty())
}

/// The currency of a member. None if it is absent or not an ISO 4217 code.
pub(crate) fn currency(code: Option<&Text<'_>>) -> Option<Currency> {
    Currency::parse(code?.as_str())
}

/// Deserializes an optional member that must not fail its row: null and values of another type
/// become none.
///
/// Use it in `deserialize_with` together with `default`.
pub(crate) fn none_if_invalid<'de, D, T>(input: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let value = match Token::deserialize(input)? {
        Token::Null => return Ok(None),
        Token::String(Cow::Borrowed(text)) => {
            T::deserialize(BorrowedStrDeserializer::<Invalid>::new(text))
        }
        Token::String(Cow::Owned(text)) => T::deserialize(text.into_deserializer()),
        Token::Other(text) => json::from_str(text),
    };
    Ok(value.ok())
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        input.deserialize_str(TextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borrows_unless_escaped() {
        let texts: Vec<Option<Text<'_>>> =
            json::from_str(r#"["plain", "a\u0062c", null]"#).unwrap();
        assert!(matches!(&texts[0], Some(Text(Cow::Borrowed("plain")))));
        assert_eq!(texts[1].as_ref().map(Text::as_str), Some("abc"));
        assert!(texts[2].is_none());
    }

    #[test]
    fn invalid_member_is_none() {
        #[derive(serde::Deserialize)]
        struct Row<'a> {
            #[serde(borrow, default, deserialize_with = "none_if_invalid")]
            text: Option<Text<'a>>,
        }
        let read = |body: &str| {
            json::from_str::<Row<'_>>(body).map(|row| row.text.map(|text| text.0.into_owned()))
        };
        assert_eq!(
            read(r#"{"text": "plain"}"#).unwrap().as_deref(),
            Some("plain")
        );
        assert_eq!(
            read(r#"{"text": "a\u0062c"}"#).unwrap().as_deref(),
            Some("abc")
        );
        for sent in ["null", "1", "1e999", "true", "{}", "[\"x\"]", r#""\ud800""#] {
            assert_eq!(
                read(&format!(r#"{{"text": {sent}}}"#)).unwrap(),
                None,
                "{sent}"
            );
        }
        assert_eq!(read("{}").unwrap(), None);
        assert!(
            read(r#"{"text": nothing}"#).is_err(),
            "invalid JSON is an error"
        );
        let body = r#"{"text": "borrowed"}"#;
        let row: Row<'_> = json::from_str(body).unwrap();
        assert!(matches!(row.text, Some(Text(Cow::Borrowed(_)))));
    }
}
