//! The text form of setup tokens, with which a program gets an API key once: `bbst`, two characters
//! of the cell, 30 random ones, and a checksum of 6.
//!
//! Letters and digits only: some programs put the token into a URL unescaped.

use std::fmt;

use crate::key::{RANDOM_CHARACTERS, has_checksum, with_checksum};

const PREFIX: &str = "bbst";

/// The text of a setup token. It is shown once and stored nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct SetupToken(String);

/// The text has another form, or its checksum is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a setup token")]
pub struct SetupTokenError;

impl SetupToken {
    /// Creates a token from 32 random numbers, each uniformly distributed over `0..62`.
    #[must_use]
    pub fn from_random(numbers: [u8; RANDOM_CHARACTERS]) -> Self {
        Self(with_checksum(PREFIX, numbers))
    }

    /// Checks form and checksum, so that a made-up token costs no database query.
    pub fn parse(text: &str) -> Result<Self, SetupTokenError> {
        if has_checksum(PREFIX, text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(SetupTokenError)
        }
    }

    /// The token itself, for showing it once or hashing it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SetupToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SetupToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiKey;

    #[test]
    fn parses_its_own_form_and_rejects_others() {
        let token = SetupToken::from_random(std::array::from_fn(|at| {
            u8::try_from(at * 5 % 62).expect("small")
        }));
        assert_eq!(SetupToken::parse(token.expose()), Ok(token.clone()));
        assert!(
            token
                .expose()
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric()),
            "fits into any URL"
        );
        for at in 0..token.expose().len() {
            let mut wrong = token.expose().to_owned().into_bytes();
            wrong[at] = if wrong[at] == b'x' { b'y' } else { b'x' };
            let wrong = String::from_utf8(wrong).expect("ASCII");
            assert_eq!(
                SetupToken::parse(&wrong),
                Err(SetupTokenError),
                "character {at}"
            );
        }
        let key = ApiKey::from_random([1; 32]);
        for text in [
            "",
            "bbst",
            key.expose(),
            &token.expose()[1..],
            &format!("{}0", token.expose()),
            "bbstä",
        ] {
            assert_eq!(SetupToken::parse(text), Err(SetupTokenError), "{text:?}");
        }
        assert_eq!(format!("{token:?}"), "SetupToken(..)");
    }
}
