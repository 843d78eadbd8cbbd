//! What Bellbird talks about: ids, exact decimals, days and instants, connections, accounts, balances, transactions, holdings, trades,
//! categories, pages, users, plans and keys.
//!
//! Nothing here does I/O, is async, or reads a clock: the present moment is always an argument.

pub mod account;
pub mod balance;
pub mod category;
pub mod connection;
pub mod currency;
pub mod date;
pub mod decimal;
pub mod holding;
pub mod id;
pub mod key;
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
pub use holding::Holding;
pub use id::{AccountId, ConnectionId, KeyId, UserId};
pub use key::ApiKey;
pub use page::{Page, PageLimits};
pub use trade::{Trade, TradeTime, TradeType};
pub use transaction::Transaction;
pub use user::{Caller, Plan, User};
