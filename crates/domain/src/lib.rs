//! What Bellbird talks about: ids, exact decimals, days and instants, connections, accounts, balances, transactions, holdings, trades,
//! categories, pages, users, plans, keys and events.
//!
//! Nothing here does I/O, is async, or reads a clock: the present moment is always an argument.

pub mod account;
pub mod balance;
pub mod category;
pub mod connection;
pub mod currency;
pub mod date;
pub mod decimal;
pub mod event;
pub mod holding;
pub mod id;
pub mod key;
pub mod minor_units;
pub mod page;
pub mod trade;
pub mod transaction;
pub mod user;

pub use account::{Account, AccountType, MaskedNumber};
pub use balance::Balance;
pub use category::Category;
pub use connection::{Connection, ConnectionCategory, ConnectionStatus, ProviderName};
pub use currency::Currency;
pub use date::{Bound, Interval, Span};
pub use decimal::Decimal;
pub use event::{ApiVersion, DeliveryState, Digest, EndpointStatus, EventType, Mark};
pub use holding::Holding;
pub use id::{AccountId, ConnectionId, EndpointId, EventId, KeyId, SyncRunId, UserId};
pub use key::ApiKey;
pub use minor_units::MinorUnits;
pub use page::{Page, PageLimits};
pub use trade::{Trade, TradeTime, TradeType};
pub use transaction::Transaction;
pub use user::{Caller, Plan, User};
