//! Operators, who manage users by API and read no financial data.

pub(crate) mod keys;
