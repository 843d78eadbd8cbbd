//! Users, their API keys, and setup tokens.

pub(crate) mod caller_lookups;
pub(crate) mod emails;
pub(crate) mod identities;
pub(crate) mod key_reads;
pub(crate) mod keys;
pub(crate) mod removal;
pub(crate) mod sessions;
pub(crate) mod setup_tokens;
pub(crate) mod timezone;
pub(crate) mod user;
