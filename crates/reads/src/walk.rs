//! Walks: read all rows of a range, page by page of the provider, newest first.
//!
//! A walk belongs to one request or command and borrows nothing of it, so a streamed response can own it. Its caller
//! decides when the next page is read. Memory holds one page, and hashes of the ids of the page before.

mod patience;
pub mod trades;
pub mod transactions;

pub use patience::Patience;
pub use trades::{KeepTrade, TradeWalk};
pub use transactions::TransactionWalk;

/// What a page ends with.
const NEXT_PAGE_IS_THIS_PAGE: bellbird_providers::Error =
    bellbird_providers::Error::Malformed("the next page is the current page");
const TOO_MANY_PAGES: bellbird_providers::Error = bellbird_providers::Error::Malformed("too many pages");

#[cfg(test)]
mod tests;
