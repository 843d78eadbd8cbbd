//! The JSON bodies of the API, one file a resource. Doc comments here become descriptions in the OpenAPI document.

mod account;
mod balance;
mod category;
mod connection;
mod health;
mod holding;
mod pagination;
mod trade;
mod transaction;

pub use account::{AccountList, AccountView};
pub use balance::{BalanceList, BalanceView};
pub use category::{CategoryList, CategoryView};
pub use connection::{ConnectionList, ConnectionView};
pub use health::Health;
pub use holding::{HoldingList, HoldingView};
pub use pagination::{Pagination, TradesPagination};
pub use trade::{TradeList, TradeView};
pub use transaction::{TransactionList, TransactionView};
