//! Links accounts in the browser: link URLs, link sessions, consent sessions, callbacks, and the
//! connections that result.

mod apply;
pub(crate) mod callback;
mod decide;
#[cfg(test)]
mod fixtures;
pub(crate) mod link_page;
pub(crate) mod link_session;
pub(crate) mod outcome;
pub(crate) mod poll;
pub(crate) mod provider_user;
pub(crate) mod start;

use crate::state::part;

part! {
    /// Linking in the browser.
    Links
}
