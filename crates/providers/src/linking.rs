//! Consent in the browser: what a provider needs for it.
//!
//! The way is the same for all: a user of the provider's is registered where consents hang on one, the browser is sent
//! to the provider's own page, and comes back to ours with an answer. That answer is a hint only: what counts is what
//! the provider says when it is asked with the grant that [`Linking::finish`] gives.

use async_trait::async_trait;
pub use reqwest::Url;
use secrecy::SecretString;

use crate::{Call, Error};

/// What the browser is sent to the provider for.
#[derive(Clone, Copy)]
pub enum Purpose<'a> {
    /// A new consent.
    Link {
        /// Whose it will be, as [`Linking::register`] gave it; none where the provider registers nobody.
        owner: Option<&'a SecretString>,
    },
    /// A connection that is to work again.
    Repair {
        /// Its grant.
        grant: &'a SecretString,
        /// The provider's id of its institution.
        institution_id: &'a str,
    },
}

/// Where the browser goes, and how it comes back.
#[derive(Clone, Copy)]
pub struct Departure<'a> {
    /// What for.
    pub purpose: Purpose<'a>,
    /// The user's address, for the provider's notices, or to be filled in.
    pub email: &'a str,
    /// Our page, as it is registered with the provider: without a query.
    pub return_url: &'a Url,
    /// What has to come back as the parameter `state`: ASCII letters and digits only.
    pub state: &'a str,
}

impl Departure<'_> {
    /// Our page with the state: for providers that do not carry it themselves.
    pub(crate) fn way_back(&self) -> Url {
        let mut url = self.return_url.clone();
        url.query_pairs_mut().append_pair("state", self.state).append_pair(VIA.0, VIA.1);
        url
    }
}

/// The last parameter of our address. How a provider joins its own to an address that has some is not known
/// (docs/providers/fiskil.md#redirects, docs/providers/snaptrade.md#portal-results): what follows a second `?` ends up
/// in this one's value, and not in the state.
const VIA: (&str, &str) = ("via", "bellbird");

/// The parameters of an answer, those behind a second `?` among them.
#[must_use]
pub fn untangled(answer: &[(String, String)]) -> Vec<(String, String)> {
    let mut untangled = Vec::with_capacity(answer.len());
    for (name, value) in answer {
        match value.split_once('?').filter(|(via, _)| (name.as_str(), *via) == VIA) {
            Some((_, joined)) => {
                let (name, value) = joined.split_once('=').unwrap_or((joined, ""));
                untangled.push((name.to_owned(), value.to_owned()));
            }
            None if name == VIA.0 => {}
            None => untangled.push((name.clone(), value.clone())),
        }
    }
    untangled
}

/// A provider's page that browsers can be sent to.
///
/// # Errors
/// [`Error::Malformed`] for anything but an http or https URL.
pub(crate) fn page(text: &str) -> Result<Url, Error> {
    let url = text.parse::<Url>().ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or(Error::Malformed("a page that is no URL"))
}

/// A parameter of an answer; the first, where there are several.
pub(crate) fn parameter<'a>(answer: &'a [(String, String)], name: &str) -> Option<&'a str> {
    answer.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// What came back with the browser.
#[derive(Clone, Copy)]
pub struct Return<'a> {
    /// What it was sent for.
    pub purpose: Purpose<'a>,
    /// The same page as at departure.
    pub return_url: &'a Url,
    /// The parameters, decoded, `state` left out.
    pub answer: &'a [(String, String)],
}

/// Why the provider's page did not end with consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoConsent {
    /// The user did not want to, or went away.
    Declined,
    /// Something did not work; one of our own sentences for the user, never the provider's words.
    Failed(&'static str),
}

/// A provider whose consent page we can send browsers to.
#[async_trait]
pub trait Linking: Send + Sync {
    /// Whether consents hang on a user who has to be registered first.
    fn registers_users(&self) -> bool;

    /// Registers a user, in one attempt that is never repeated, as it might have been done though no answer came.
    /// `reference` is our own text, written down before and never used for another attempt, by which
    /// [`Linking::abandon`] finds what became of it. Gives the grant that covers whatever this user will consent to, in
    /// the form that [`crate::Provider::discover`] takes.
    async fn register(&self, call: &Call, reference: &str, email: &str) -> Result<SecretString, Error>;

    /// The provider's id of a registered user, where it is no secret: the same as [`crate::FoundConnection::owner`].
    fn owner_id(&self, _owner: &SecretString) -> Option<String> {
        None
    }

    /// Removes what an attempt to register with this reference may have left behind. Done also when that is nothing.
    async fn abandon(&self, call: &Call, reference: &str, email: &str) -> Result<(), Error>;

    /// Removes a registered user, with all consents there may be. Done also when there is no such user any more.
    async fn unregister(&self, call: &Call, owner: &SecretString) -> Result<(), Error>;

    /// The provider's page for one consent. May be asked any number of times; each page serves once.
    async fn depart(&self, call: &Call, departure: &Departure<'_>) -> Result<Url, Error>;

    /// What the answer says of the outcome. A hint only, and forged by whoever likes.
    ///
    /// # Errors
    /// [`NoConsent`].
    fn hint(&self, answer: &[(String, String)]) -> Result<(), NoConsent>;

    /// Whether the answer holds all that is needed to ask the provider. Without it, waiting helps nobody.
    fn can_finish(&self, answer: &[(String, String)]) -> bool;

    /// The grant that covers what the user has consented to, in the form that [`crate::Provider::discover`] takes.
    /// What is exchanged for it is gone: where that has happened, a second attempt fails with [`Error::BadGrant`].
    async fn finish(&self, call: &Call, returned: &Return<'_>) -> Result<SecretString, Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_behind_a_second_question_mark() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        for (answer, expected) in [
            (
                &[("state", "s"), ("via", "bellbird"), ("status", "SUCCESS")][..],
                &[("state", "s"), ("status", "SUCCESS")][..],
            ),
            (
                &[("state", "s"), ("via", "bellbird?status=ERROR"), ("error_code", "3000")],
                &[("state", "s"), ("status", "ERROR"), ("error_code", "3000")],
            ),
            (&[("via", "bellbird?error")], &[("error", "")]),
            (&[("code", "a?b=c"), ("via", "elsewhere?state=x")], &[("code", "a?b=c")]),
        ] {
            assert_eq!(untangled(&pairs(answer)), pairs(expected));
        }
    }
}
