//! Reads all rows of a range, page by page of the provider, newest first.
//!
//! A range belongs to one request or command and borrows nothing of it, so a streamed response can
//! own it. Its caller decides when the next page is read. Memory holds one page, and hashes of the
//! ids of the page before.

mod attempts;
mod trades;
mod transactions;

pub use attempts::{Attempts, NewCall};
pub use trades::TradeRange;
pub use transactions::TransactionRange;

#[cfg(test)]
mod tests;
