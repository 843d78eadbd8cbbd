//! The domain types of Bellbird: users, keys, connections, accounts, balances, transactions,
//! holdings, trades and webhook events, with exact decimals and dates.
//!
//! Nothing here does I/O or is async. The current time is an argument, which callers take from a
//! [`Clock`], so that tests can set it.

pub mod account;
pub mod actor;
pub mod balance;
pub mod category;
pub mod clock;
pub mod connection;
pub mod currency;
pub mod current_text;
pub mod date;
pub mod decimal;
pub mod email;
pub mod fingerprint;
pub mod holding;
pub mod id;
pub mod key;
#[cfg(feature = "test-support")]
pub mod lab;
pub mod linking;
pub mod minor_units;
pub mod page;
pub mod random;
pub mod sum;
#[cfg(any(test, feature = "test-support"))]
pub mod table;
pub mod timestamp;
pub mod trade;
pub mod transaction;
pub mod user;
pub mod webhook_event;

pub use account::{Account, AccountType, MaskedNumber};
pub use actor::{Actor, ActorKind};
pub use balance::Balance;
pub use category::Category;
pub use clock::Clock;
pub use connection::{Connection, ConnectionCategory, ConnectionStatus, ProviderName};
pub use currency::Currency;
pub use current_text::CurrentText;
pub use date::{Bound, DateFilter, DateRange};
pub use decimal::Decimal;
pub use email::EmailKind;
pub use fingerprint::{
    AccountTag, ContentDigest, Fingerprint, Fingerprints, RemovedRow, RowDigests, RowKey,
    RowKeyError, UtcDay,
};
pub use holding::Holding;
pub use id::{
    AccountId, ConnectionId, EndpointId, EventId, KeyId, OperatorKeyId, SyncRunId, UserId,
};
pub use key::{ApiKey, KeyStatus, OperatorKey, SetupToken};
pub use linking::{Confirmation, LinkOutcome, LinkPhase, LinkStatus};
pub use minor_units::MinorUnits;
pub use page::{Page, PageLimits};
pub use sum::ExactSum;
pub use timestamp::TimestampExt;
pub use trade::{Trade, TradeTime, TradeType};
pub use transaction::{Direction, Transaction};
pub use user::{Caller, Plan, User};
#[cfg(feature = "openapi")]
pub use webhook_event::SubscribableEvent;
pub use webhook_event::{ApiVersion, DeliveryState, Digest, EndpointStatus, EventType};
