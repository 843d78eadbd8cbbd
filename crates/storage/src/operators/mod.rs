//! Operators, who manage users by API and read no financial data.

pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod keys;
pub(crate) mod requests;
