//! Connections, and the macro for enums with fixed names.
//!
//! A connection links a user to one institution through one provider.

use jiff::Timestamp;

use crate::{ConnectionId, UserId};

macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name on the wire and in the database.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::connection::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text { $($text => Ok(Self::$variant),)* _ => Err($crate::connection::UnknownName) }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str(self.as_str())
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $crate::connection::schema_of(Self::ALL.iter().map(|one| one.as_str()))
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::ToSchema for $name {}

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.serialize_str(self.as_str())
            }
        }
    };
}
pub(crate) use string_enum;

/// The schema of a string that is one of these.
#[cfg(feature = "openapi")]
pub fn schema_of(
    values: impl Iterator<Item = &'static str>,
) -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(values))
        .into()
}

/// The text matches no variant of the enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown name")]
pub struct UnknownName;

/// A provider's name in the API: a short lower-case word chosen by the adapter, such as `fiskil`.
///
/// Deliberately not an enum: the registry in the providers crate holds the only list of providers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderName(&'static str);

impl ProviderName {
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl std::fmt::Display for ProviderName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.0)
    }
}

impl std::fmt::Debug for ProviderName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.0)
    }
}

string_enum! {
    /// The kind of institution behind a connection. It decides which endpoints serve the
    /// connection.
    ConnectionCategory {
        /// A bank: balances and transactions.
        Banking "banking",
        /// A broker: balances, holdings and trades.
        Brokerage "brokerage",
    }
}

string_enum! {
    ConnectionStatus {
        /// Consent and credentials are valid.
        Active "active",
        /// Credentials or consent expired. The user must reconnect.
        Invalidated "invalidated",
        /// The institution waits for the user to complete multi-factor authentication.
        PendingMfa "pending_mfa",
        /// The user or the institution withdrew consent.
        Revoked "revoked",
        /// Removal is in progress. The API no longer shows the connection.
        Deleting "deleting",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub id: ConnectionId,
    pub user_id: UserId,
    /// The provider's name as stored. The registry decides whether this installation still offers
    /// that provider.
    pub provider: String,
    pub category: ConnectionCategory,
    /// The provider's id for the institution, an opaque text.
    pub institution_id: String,
    pub institution_name: String,
    /// URL of the institution's logo.
    pub institution_logo: Option<String>,
    pub status: ConnectionStatus,
    /// When the consent ends unless the user renews it, or when it ended. None if the provider has
    /// not said.
    pub consent_expires_at: Option<Timestamp>,
    /// When the provider last returned data.
    pub last_refreshed_at: Option<Timestamp>,
    pub created_at: Timestamp,
}
