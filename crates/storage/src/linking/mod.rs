//! Links, link sessions, provider users and provider events.

pub(crate) mod cleanup;
pub(crate) mod link_session_claims;
pub(crate) mod link_sessions;
pub(crate) mod links;
pub(crate) mod provider_events;
pub(crate) mod provider_users;
