//! Users, their API keys, setup tokens and sessions, and all that is stored about one.

pub(crate) mod caller_lookups;
pub mod emails;
pub mod identities;
pub(crate) mod key_reads;
pub mod keys;
pub(crate) mod own_data;
pub mod removal;
pub mod sessions;
pub mod setup_tokens;
pub(crate) mod timezone;
pub mod user;
