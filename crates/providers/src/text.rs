//! A string on the wire that borrows the page it came in.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};

/// A JSON string, borrowed from the body unless it held escapes.
///
/// Its own type because serde borrows a plain `Cow` field only when told so, and an optional one never.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    /// The characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The characters of an optional text; none when it is blank.
pub(crate) fn filled(text: Option<Text<'_>>) -> Option<Cow<'_, str>> {
    text.map(|text| text.0).filter(|text| !text.trim().is_empty())
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
        let texts: Vec<Option<Text<'_>>> = serde_json::from_str(r#"["plain", "a\u0062c", null]"#).unwrap();
        assert!(matches!(&texts[0], Some(Text(Cow::Borrowed("plain")))));
        assert_eq!(texts[1].as_ref().map(Text::as_str), Some("abc"));
        assert!(texts[2].is_none());
    }
}
