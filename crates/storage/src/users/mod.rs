//! Users, their API keys, setup tokens and sessions, and all that is stored about one.

pub(crate) mod caller_lookups;
pub(crate) mod emails;
pub(crate) mod identities;
pub(crate) mod key_reads;
pub(crate) mod keys;
pub(crate) mod own_data;
pub(crate) mod removal;
pub(crate) mod sessions;
pub(crate) mod setup_tokens;
pub(crate) mod timezone;
pub(crate) mod user;
