//! Events: what is told to a user's webhook endpoint after a sync, as far as it may be remembered. Never a row.

use std::fmt;

use crate::connection::named;

named! {
    /// What an event tells.
    EventType {
        /// Transactions are new or have changed.
        TransactionsSynced "transactions.synced",
        /// Trades are new or have changed.
        TradesSynced "trades.synced",
        /// Nothing; somebody wanted to see whether an endpoint answers.
        Ping "endpoint.ping",
    }
}

impl EventType {
    /// Those that an endpoint can ask for.
    pub const SUBSCRIBABLE: &'static [Self] = &[Self::TransactionsSynced, Self::TradesSynced];
}

named! {
    /// The form of an event's body, fixed for an endpoint when it is added.
    ApiVersion {
        /// The first one.
        V2026_11_01 "2026-11-01",
    }
}

impl ApiVersion {
    /// What an endpoint gets that is added now.
    pub const CURRENT: Self = Self::V2026_11_01;
}

named! {
    /// Whether an endpoint is sent to.
    EndpointStatus {
        /// It is.
        Enabled "enabled",
        /// It is not, until somebody enables it again.
        Disabled "disabled",
    }
}

named! {
    /// How the delivery of one event to one endpoint stands.
    DeliveryState {
        /// An attempt is due, now or later.
        Pending "pending",
        /// It waits for the chunk before it.
        Waiting "waiting",
        /// The endpoint has taken it.
        Delivered "delivered",
        /// It has been given up, until somebody asks for it again.
        Failed "failed",
    }
}

/// Bytes of a [`Digest`].
pub const DIGEST_BYTES: usize = 16;

/// The first half of an HMAC-SHA256 with a connection's own key. Says nothing to whoever does not have that key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; DIGEST_BYTES]);

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// What is remembered of a row that was seen: which one, and what it held, as keyed digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// Of the row's account and id.
    pub row: Digest,
    /// 0, or the number of the row among those with one and the same id: ids of trades may repeat.
    pub occurrence: u32,
    /// Of all else that the provider says of the row.
    pub content: Digest,
}
