//! Typed ids, one type for each entity: a user id cannot be passed where an account id is expected.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// The text is not a hyphenated UUID. The caller decides which HTTP status that means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a hyphenated UUID")]
pub struct IdError;

macro_rules! typed_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        pub struct $name(Uuid);

        impl $name {
            /// Creates a time-ordered id (UUID version 7), so that rows created together are
            /// neighbours in an index.
            #[must_use]
            pub fn new() -> Self {
                Self(crate::random::time_ordered_id())
            }

            #[must_use]
            pub fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            /// Accepts only the hyphenated form of 36 characters, in any case.
            fn from_str(text: &str) -> Result<Self, IdError> {
                if text.len() != 36 {
                    return Err(IdError);
                }
                Uuid::try_parse(text).map(Self).map_err(|_| IdError)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text: std::borrow::Cow<'de, str> = serde::Deserialize::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl fmt::Display for $name {
            /// Lower case, with hyphens.
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(self.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, out)
            }
        }
    };
}

typed_id!(UserId);

impl UserId {
    /// The owner of what belongs to no user, such as an endpoint that gets the events of all. No
    /// user has this id.
    pub const INSTALLATION: Self = Self(Uuid::nil());
}

typed_id!(
    /// The id of an API key, not its text.
    KeyId
);
typed_id!(
    /// The id of an operator's key, not its text.
    OperatorKeyId
);
typed_id!(ConnectionId);
typed_id!(AccountId);
typed_id!(
    /// A webhook endpoint of a user.
    EndpointId
);
typed_id!(
    /// A webhook event.
    EventId
);
typed_id!(
    /// One sync of one connection.
    SyncRunId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_any_case_and_prints_lower_case() {
        let id: AccountId = "0191E7A0-7C3B-7DEF-8000-00AABBCCDDEE"
            .parse()
            .expect("a UUID");
        assert_eq!(id.to_string(), "0191e7a0-7c3b-7def-8000-00aabbccddee");
    }

    #[test]
    fn rejects_every_other_spelling() {
        for text in [
            "",
            "0191e7a07c3b7def800000aabbccddee",
            "{0191e7a0-7c3b-7def-8000-00aabbccddee}",
            "urn:uuid:0191e7a0-7c3b-7def-8000-00aabbccddee",
            "0191e7a0-7c3b-7def-8000-00aabbccddeg",
            "0191e7a0-7c3b-7def-8000-00aabbccddee ",
            "0191e7a07c3b-7def-8000-00aabbccddee--",
        ] {
            assert_eq!(text.parse::<AccountId>(), Err(IdError), "{text:?}");
        }
    }
}
