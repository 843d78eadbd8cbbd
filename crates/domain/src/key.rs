//! The text form of keys: `bb_` for a user's API key, `bbo_` for an operator's, `bbst` for a setup
//! token, then two characters of the cell, 30 random ones, and a checksum of 6.

use std::fmt;

use jiff::Timestamp;

use crate::connection::string_enum;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// 62 to the power of 30 is about 178 bits.
const RANDOM_CHARACTERS: usize = 32;
const CHECK_CHARACTERS: usize = 6;
/// The characters of the stored prefix, by which users recognise their keys: two of the cell, then
/// about 30 of the 178 random bits.
const SHOWN_CHARACTERS: usize = 7;

/// The text has another form, or its checksum is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a key of this kind")]
pub struct KeyError;

string_enum! {
    /// Whether a key works.
    KeyStatus {
        Active "active",
        Expired "expired",
        Revoked "revoked",
    }
}

impl KeyStatus {
    /// Of a key that works before `expires_at`, and until it is revoked.
    #[must_use]
    pub fn of(
        revoked_at: Option<Timestamp>,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        if revoked_at.is_some() {
            Self::Revoked
        } else if expires_at.is_some_and(|at| at <= now) {
            Self::Expired
        } else {
            Self::Active
        }
    }
}

macro_rules! key {
    ($(#[$doc:meta])* $name:ident $prefix:literal $(, $shown:ident)?) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// Creates a key from 32 random numbers, each uniformly distributed over `0..62`.
            #[must_use]
            pub fn from_random(numbers: [u8; RANDOM_CHARACTERS]) -> Self {
                Self(with_checksum($prefix, numbers))
            }

            /// Checks form and checksum, so that a mistyped key costs no database query.
            pub fn parse(text: &str) -> Result<Self, KeyError> {
                if has_checksum($prefix, text) { Ok(Self(text.to_owned())) } else { Err(KeyError) }
            }

            /// The key itself, for showing it once or hashing it.
            #[must_use]
            pub fn expose(&self) -> &str {
                &self.0
            }

            $(
                /// The first characters, by which its owner recognises the key.
                #[must_use]
                pub fn $shown(&self) -> &str {
                    &self.0[..$prefix.len() + SHOWN_CHARACTERS]
                }
            )?
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    };
}

key! {
    /// The text of a user's API key. It is shown once and stored nowhere.
    ApiKey "bb_", prefix
}

key! {
    /// The text of an operator's key, for the API below `/admin`. It is shown once and stored
    /// nowhere.
    OperatorKey "bbo_", prefix
}

key! {
    /// The text of a setup token, with which a program gets an API key once. It is shown once and
    /// stored nowhere. Letters and digits only: some programs put it into a URL unescaped.
    SetupToken "bbst"
}

/// The prefix, a character for each number, and the checksum of these characters.
fn with_checksum(prefix: &str, numbers: [u8; RANDOM_CHARACTERS]) -> String {
    let mut text = String::with_capacity(prefix.len() + RANDOM_CHARACTERS + CHECK_CHARACTERS);
    text.push_str(prefix);
    for number in numbers {
        text.push(char::from(ALPHABET[usize::from(number % 62)]));
    }
    let check = checksum(&text.as_bytes()[prefix.len()..]);
    text.extend(check.map(char::from));
    text
}

/// Whether [`with_checksum`] may have made the text.
fn has_checksum(prefix: &str, text: &str) -> bool {
    let Some(body) = text.strip_prefix(prefix).map(str::as_bytes) else {
        return false;
    };
    if body.len() != RANDOM_CHARACTERS + CHECK_CHARACTERS
        || !body.iter().all(u8::is_ascii_alphanumeric)
    {
        return false;
    }
    let (random, check) = body.split_at(RANDOM_CHARACTERS);
    check == checksum(random)
}

/// CRC-32 (IEEE) in base 62, most significant digit first, padded with `0`.
fn checksum(random: &[u8]) -> [u8; CHECK_CHARACTERS] {
    let mut rest = crc32fast::hash(random);
    let mut digits = [b'0'; CHECK_CHARACTERS];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(rest % 62) as usize];
        rest /= 62;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_a_known_key() {
        // CRC-32 of 32 zeros ("0" * 32) is 0xa0f292d0 by Python's zlib.crc32.
        let key = ApiKey::from_random([0; 32]);
        assert_eq!(&key.expose()[..35], "bb_00000000000000000000000000000000");
        assert_eq!(&key.expose()[35..], KNOWN_CHECK);
        assert_eq!(key.prefix(), "bb_0000000");
        assert_eq!(OperatorKey::from_random([0; 32]).prefix(), "bbo_0000000");
    }

    const KNOWN_CHECK: &str = "2wjyrI";

    #[test]
    fn parses_its_own_form_and_rejects_others() {
        let key = ApiKey::from_random(std::array::from_fn(|at| {
            u8::try_from(at * 7 % 62).expect("small")
        }));
        assert_eq!(ApiKey::parse(key.expose()), Ok(key.clone()));
        for at in 0..key.expose().len() {
            let mut wrong = key.expose().to_owned().into_bytes();
            wrong[at] = if wrong[at] == b'x' { b'y' } else { b'x' };
            assert_eq!(
                ApiKey::parse(&String::from_utf8(wrong).expect("ASCII")),
                Err(KeyError),
                "character {at}"
            );
        }
        let operator = OperatorKey::from_random([1; 32]);
        assert_eq!(OperatorKey::parse(operator.expose()), Ok(operator.clone()));
        assert_eq!(
            OperatorKey::parse(key.expose()),
            Err(KeyError),
            "a user's key is no operator's"
        );
        for text in [
            "",
            "bb_",
            &key.expose()[1..],
            &format!("{}0", key.expose()),
            "bb_ä",
            operator.expose(),
        ] {
            assert_eq!(ApiKey::parse(text), Err(KeyError), "{text:?}");
        }
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", ApiKey::from_random([1; 32])), "ApiKey(..)");
        assert_eq!(
            format!("{:?}", OperatorKey::from_random([1; 32])),
            "OperatorKey(..)"
        );
    }

    #[test]
    fn setup_token_has_a_form_of_its_own() {
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
            assert_eq!(SetupToken::parse(&wrong), Err(KeyError), "character {at}");
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
            assert_eq!(SetupToken::parse(text), Err(KeyError), "{text:?}");
        }
        assert_eq!(format!("{token:?}"), "SetupToken(..)");
    }
}
