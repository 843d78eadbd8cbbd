//! Links, consent sessions, provider users and provider events.

pub(crate) mod cleanup;
pub(crate) mod consent_session_claims;
pub(crate) mod consent_sessions;
pub mod links;
pub(crate) mod provider_events;
pub(crate) mod provider_users;
