//! Strings in a provider's response that borrow from its body, so that mapping a page allocates
//! little.

use std::borrow::Cow;
use std::fmt;

use bellbird_domain::Currency;
use serde::de::{Deserialize, Deserializer, Visitor};

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
    use crate::json;

    #[test]
    fn borrows_unless_escaped() {
        let texts: Vec<Option<Text<'_>>> =
            json::from_str(r#"["plain", "a\u0062c", null]"#).unwrap();
        assert!(matches!(&texts[0], Some(Text(Cow::Borrowed("plain")))));
        assert_eq!(texts[1].as_ref().map(Text::as_str), Some("abc"));
        assert!(texts[2].is_none());
    }
}
