//! Typed ids: a user's id cannot be passed where an account's is wanted.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// Says only that the text is not a hyphenated UUID; what to answer is the caller's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a hyphenated UUID")]
pub struct IdError;

macro_rules! typed_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id. Time-ordered (UUID version 7), so that rows made together lie together in an index.
            #[must_use]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// The UUID itself.
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

            /// Takes the hyphenated form of 36 characters in any case, and nothing else.
            fn from_str(text: &str) -> Result<Self, IdError> {
                if text.len() != 36 {
                    return Err(IdError);
                }
                Uuid::try_parse(text).map(Self).map_err(|_| IdError)
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

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.serialize_str(self.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(input)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

typed_id!(
    /// A user of this installation.
    UserId
);
typed_id!(
    /// An API key (not the key's text).
    KeyId
);
typed_id!(
    /// A link between a user and one institution through one provider.
    ConnectionId
);
typed_id!(
    /// One account of a connection.
    AccountId
);
typed_id!(
    /// A user's webhook endpoint.
    EndpointId
);
typed_id!(
    /// An event that is sent to endpoints.
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
    fn reads_any_case_and_shows_lower_case() {
        let id: AccountId = "0191E7A0-7C3B-7DEF-8000-00AABBCCDDEE".parse().expect("a UUID");
        assert_eq!(id.to_string(), "0191e7a0-7c3b-7def-8000-00aabbccddee");
    }

    #[test]
    fn refuses_every_other_spelling() {
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
