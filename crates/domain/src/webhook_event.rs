//! Webhook events: their types and delivery states.
//!
//! An event names rows by keyed digest. The rows themselves are never stored.

use std::fmt;

use crate::Plan;
use crate::connection::string_enum;

string_enum! {
    /// The `type` of a webhook event.
    EventType {
        /// A sync found new or changed transactions.
        TransactionsSynced "transactions.synced",
        /// A sync found new or changed trades.
        TradesSynced "trades.synced",
        /// A connection was linked or imported.
        ConnectionCreated "connection.created",
        /// The status of a connection changed.
        ConnectionUpdated "connection.updated",
        /// The consent of an active connection ends soon.
        ConnectionExpiring "connection.expiring",
        /// The removal of a connection began.
        ConnectionRemoved "connection.removed",
        /// A user was removed with everything that belongs to them.
        UserRemoved "user.removed",
        /// A user tests whether the endpoint responds.
        Ping "endpoint.ping",
    }
}

/// Describes an event type that an endpoint can subscribe to.
#[cfg(feature = "openapi")]
pub struct SubscribableEvent;

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for SubscribableEvent {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        crate::connection::schema_of(EventType::SUBSCRIBABLE.iter().map(|event| event.as_str()))
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for SubscribableEvent {}

impl EventType {
    /// Event types that an endpoint of the installation can subscribe to.
    pub const SUBSCRIBABLE: &'static [Self] = &[
        Self::TransactionsSynced,
        Self::TradesSynced,
        Self::ConnectionCreated,
        Self::ConnectionUpdated,
        Self::ConnectionExpiring,
        Self::ConnectionRemoved,
        Self::UserRemoved,
    ];
    /// Event types that an endpoint of a user can subscribe to. It is removed with the user.
    pub const SUBSCRIBABLE_BY_USERS: &'static [Self] = Self::SUBSCRIBABLE.split_at(6).0;

    /// The lowest plan whose users' events of this type are sent: the one that may read the rows.
    #[must_use]
    pub fn plan_min(self) -> Plan {
        match self {
            Self::TransactionsSynced => Plan::Developer,
            Self::TradesSynced => Plan::Professional,
            Self::ConnectionCreated
            | Self::ConnectionUpdated
            | Self::ConnectionExpiring
            | Self::ConnectionRemoved
            | Self::UserRemoved
            | Self::Ping => Plan::Saver,
        }
    }
}

string_enum! {
    /// The version of an event's body.
    ApiVersion {
        V2026_11_01 "2026-11-01",
        /// Rows have their key and exact amount, and rows that are gone are reported.
        V2026_12_01 "2026-12-01",
    }
}

impl ApiVersion {
    /// The version of a user's endpoint that asks for none.
    pub const DEFAULT: Self = Self::V2026_11_01;
    /// The version of an endpoint of the installation that asks for none.
    pub const NEWEST: Self = Self::V2026_12_01;

    /// Whether rows have their key, and removed ones are reported.
    #[must_use]
    pub fn has_keys(self) -> bool {
        self >= Self::V2026_12_01
    }
}

string_enum! {
    /// Whether an endpoint receives events.
    EndpointStatus {
        Enabled "enabled",
        /// The service or the user disabled it. It stays so until the user enables it.
        Disabled "disabled",
    }
}

string_enum! {
    /// The state of the delivery of one event to one endpoint.
    DeliveryState {
        /// The next attempt is scheduled.
        Pending "pending",
        /// The previous chunk of the sync is not delivered yet.
        Waiting "waiting",
        /// The endpoint accepted the event.
        Delivered "delivered",
        /// All attempts failed. The user can redeliver the event.
        Failed "failed",
    }
}

/// A SipHash-2-4 of 128 bits with the connection's own key. Reveals nothing without that key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 16]);

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}
