//! Transactions of all banks, merged while they are read, with the command that reads the same, and
//! a file of what the page shows.

pub(crate) mod file;
mod filter;
mod find;
pub(crate) mod linked;
mod search;
pub(crate) mod transactions;
