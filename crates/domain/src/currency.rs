//! Currency codes.

use std::fmt;

/// An ISO 4217 code: three capital letters. Not checked against the list, which changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

impl Currency {
    /// ISO 4217's own code for "no currency known".
    pub const UNKNOWN: Self = Self(*b"XXX");

    /// Reads three ASCII letters of any case; anything else is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 3] = text.as_bytes().try_into().ok()?;
        bytes.iter().all(u8::is_ascii_alphabetic).then(|| Self(bytes.map(|byte| byte.to_ascii_uppercase())))
    }

    /// The code in capital letters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XXX")
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl serde::Serialize for Currency {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_three_letters_and_nothing_else() {
        assert_eq!(Currency::parse("aud").map(|code| code.to_string()).as_deref(), Some("AUD"));
        for text in ["", "AU", "AUDD", "A1D", "A$D", "ÄUD", "ÄU"] {
            assert_eq!(Currency::parse(text), None, "{text}");
        }
    }
}
