//! A string on the wire that borrows the page it came in.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde_json::value::RawValue;

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

/// Reads a member that a row can do without: none where it is null, or anything else than it should be. For
/// `deserialize_with`, beside `default`; in a plain struct read from a slice, as `ExactNumber`.
pub(crate) fn if_readable<'de, D, T>(input: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let raw = <&RawValue>::deserialize(input)?.get();
    // Null is frequent, and an error is not free.
    Ok(if raw == "null" { None } else { serde_json::from_str(raw).ok() })
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

    #[test]
    fn what_cannot_be_read_is_none() {
        #[derive(serde::Deserialize)]
        struct Row<'a> {
            #[serde(borrow, default, deserialize_with = "if_readable")]
            text: Option<Text<'a>>,
        }
        let read =
            |body: &str| serde_json::from_str::<Row<'_>>(body).map(|row| row.text.map(|text| text.0.into_owned()));
        assert_eq!(read(r#"{"text": "plain"}"#).unwrap().as_deref(), Some("plain"));
        assert_eq!(read(r#"{"text": "a\u0062c"}"#).unwrap().as_deref(), Some("abc"));
        for sent in ["null", "1", "1e999", "true", "{}", "[\"x\"]", r#""\ud800""#] {
            assert_eq!(read(&format!(r#"{{"text": {sent}}}"#)).unwrap(), None, "{sent}");
        }
        assert_eq!(read("{}").unwrap(), None);
        assert!(read(r#"{"text": nothing}"#).is_err(), "what is no JSON stays broken");
        let body = r#"{"text": "borrowed"}"#;
        let row: Row<'_> = serde_json::from_str(body).unwrap();
        assert!(matches!(row.text, Some(Text(Cow::Borrowed(_)))));
    }
}
