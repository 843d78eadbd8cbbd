//! Links accounts in the browser: link URLs, link sessions, callbacks, and the connections that result.

mod apply_consents;
pub(crate) mod callback;
mod provider_user;
pub(crate) mod start;
