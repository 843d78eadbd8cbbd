//! Connections: a user's link to one institution through one provider.

use jiff::Timestamp;

use crate::{ConnectionId, UserId};

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word used on the wire and in the database.
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

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.serialize_str(self.as_str())
            }
        }
    };
}
pub(crate) use named;

/// A word that is none of the known ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown name")]
pub struct UnknownName;

/// A provider's name, as the API shows it: a short lower-case word chosen by the adapter, such as `fiskil`.
///
/// Open on purpose: the only list of providers is the registry of the providers crate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderName(&'static str);

impl ProviderName {
    /// A name known at compile time.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The word.
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

named! {
    /// What kind of institution a connection leads to.
    ConnectionCategory {
        /// A bank: balances and transactions.
        Banking "banking",
        /// A broker: balances, holdings and trades.
        Brokerage "brokerage",
    }
}

named! {
    /// Where a connection is in its life.
    ConnectionStatus {
        /// The provider answers for it.
        Active "active",
        /// Credentials or consent expired: the user must reconnect.
        Invalidated "invalidated",
        /// The institution waits for the user.
        PendingMfa "pending_mfa",
        /// The user, or the institution, withdrew consent.
        Revoked "revoked",
        /// Being removed: shown nowhere.
        Deleting "deleting",
    }
}

/// A connection as the database knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Ours.
    pub id: ConnectionId,
    /// Whose it is.
    pub user_id: UserId,
    /// Which adapter reads it, as stored; the registry says whether it is offered.
    pub provider: String,
    /// Bank or broker.
    pub category: ConnectionCategory,
    /// The provider's id of the institution; any text.
    pub institution_id: String,
    /// Display name.
    pub institution_name: String,
    /// URL of the logo.
    pub institution_logo: Option<String>,
    /// Where it is in its life.
    pub status: ConnectionStatus,
    /// When the provider last answered with data.
    pub last_refreshed_at: Option<Timestamp>,
    /// When it was linked.
    pub created_at: Timestamp,
}
