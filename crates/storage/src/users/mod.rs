//! Users and their API keys.

pub(crate) mod keys;
pub(crate) mod user;
