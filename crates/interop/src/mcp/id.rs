//! Ids of requests. Pure.

use serde::Serialize;
use serde_json::Value;

/// Largest id as text. An answer repeats it.
const ID_BYTES_MAX: usize = 256;

/// The id that a client chose for its request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum Id {
    Text(String),
    Number(i64),
}

impl Id {
    /// `None` if the value is no id: null, a fraction, or a long text.
    #[must_use]
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) if text.len() <= ID_BYTES_MAX => Some(Self::Text(text.clone())),
            Value::Number(number) => number.as_i64().map(Self::Number),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_strings_or_integers() {
        let id = |text: &str| Id::of(&serde_json::from_str(text).unwrap());
        assert_eq!(id("-7"), Some(Id::Number(-7)));
        assert_eq!(id("9223372036854775807"), Some(Id::Number(i64::MAX)));
        assert_eq!(id("\"\""), Some(Id::Text(String::new())));
        for text in ["null", "1.5", "9223372036854775808", "true", "[]", "{}"] {
            assert_eq!(id(text), None, "{text}");
        }
        assert_eq!(Id::of(&"x".repeat(ID_BYTES_MAX + 1).into()), None);
    }
}
