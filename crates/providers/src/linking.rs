//! Linking in the browser: the trait that adapters with a consent page implement.
//!
//! A consent session registers a provider user if the provider needs one, and sends the browser to
//! the provider's consent page. The provider redirects the browser to the redirect URI with the
//! result. That result is only a hint, since anyone can forge it. The caller asks the provider with
//! the credentials from [`Linking::finish`].

use async_trait::async_trait;
use secrecy::SecretString;
pub use url::Url;

use crate::{CallContext, Error};

/// Why a consent session visits the consent page.
#[derive(Clone, Copy)]
pub enum Purpose<'a> {
    /// To give a new consent.
    Link {
        /// The result of [`Linking::register`]. None if the provider does not register users.
        provider_user: Option<&'a SecretString>,
    },
    /// To reconnect an existing connection.
    Repair {
        credentials: &'a SecretString,
        institution_id: &'a str,
    },
}

/// What a consent session sends to the provider's consent page.
#[derive(Clone, Copy)]
pub struct AuthorizationRequest<'a> {
    pub purpose: Purpose<'a>,
    /// The user's e-mail address. The provider prefills it or sends notices to it.
    pub email: &'a str,
    /// The callback page as registered with the provider, without a query.
    pub redirect_uri: &'a Url,
    /// The value that the callback must return as the parameter `state`. ASCII letters and digits
    /// only.
    pub state: &'a str,
}

impl AuthorizationRequest<'_> {
    /// The redirect URI with the state as a parameter, for providers that do not return `state`
    /// themselves.
    pub(crate) fn redirect_uri_with_state(&self) -> Url {
        let mut url = self.redirect_uri.clone();
        url.query_pairs_mut()
            .append_pair("state", self.state)
            .append_pair(MARKER_PARAM.0, MARKER_PARAM.1);
        url
    }
}

/// The last parameter of [`AuthorizationRequest::redirect_uri_with_state`].
///
/// Some providers might append their parameters to a redirect URI that has a query with a second
/// `?` (docs/providers/fiskil.md#redirects, docs/providers/snaptrade.md#portal-results). The
/// parameters after it then become part of this value and not of the state.
const MARKER_PARAM: (&str, &str) = ("via", "bellbird");

/// The parameters of a callback, including those after a second `?` (`MARKER_PARAM`).
pub fn untangle_params(params: &[(String, String)]) -> Vec<(String, String)> {
    let mut untangled = Vec::with_capacity(params.len());
    for (name, value) in params {
        match value
            .split_once('?')
            .filter(|(via, _)| (name.as_str(), *via) == MARKER_PARAM)
        {
            Some((_, joined)) => {
                let (name, value) = joined.split_once('=').unwrap_or((joined, ""));
                untangled.push((name.to_owned(), value.to_owned()));
            }
            None if name == MARKER_PARAM.0 => {}
            None => untangled.push((name.clone(), value.clone())),
        }
    }
    untangled
}

/// Parses the URL of a consent page. Only http and https are accepted, so that a browser never runs
/// a `javascript:` URL.
pub(crate) fn consent_page_url(text: &str) -> Result<Url, Error> {
    let url = text
        .parse::<Url>()
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or(Error::Malformed("the consent page is not a URL"))
}

/// The first parameter with this name.
pub(crate) fn find_param<'a>(params: &'a [(String, String)], name: &str) -> Option<&'a str> {
    params
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.as_str())
}

/// The callback of a consent session.
#[derive(Clone, Copy)]
pub struct CallbackParams<'a> {
    pub purpose: Purpose<'a>,
    /// The same URI as in the [`AuthorizationRequest`].
    pub redirect_uri: &'a Url,
    /// The decoded parameters of the callback, without `state`.
    pub params: &'a [(String, String)],
}

/// Why the visit to the consent page did not end with consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoConsent {
    /// The user declined or left the page.
    Declined,
    /// The provider reported an error. Holds a sentence for the user from this code, never text
    /// from the provider.
    Failed(&'static str),
}

/// An adapter that registers users must have all three functions: a default that succeeded would
/// leave a user behind at the provider.
fn registers_nobody() -> Error {
    Error::InvalidCredentials(
        "the provider does not register users; they register themselves".to_owned(),
    )
}

/// A provider with a consent page.
#[async_trait]
pub trait Linking: Send + Sync {
    /// Whether the provider needs a registered provider user before a consent. Otherwise the three
    /// functions about registrations keep their defaults.
    fn registers_users(&self) -> bool {
        false
    }

    /// Registers a provider user in one attempt without retries: the provider may have registered
    /// the user even if the response got lost.
    ///
    /// The caller stores `reference` first and uses it for one attempt only.
    /// [`Linking::abandon_registration`] finds the user by it after a failure. Returns credentials
    /// that cover every later consent of this user, in the form that [`crate::Provider::discover`]
    /// takes.
    async fn register(
        &self,
        _context: &CallContext,
        _reference: &str,
        _email: &str,
    ) -> Result<SecretString, Error> {
        Err(registers_nobody())
    }

    /// The provider's id of a registered user, equal to
    /// [`crate::FoundConnection::provider_user_id`]. None if the provider has no such id or it is
    /// secret.
    fn provider_user_id(&self, _provider_user: &SecretString) -> Option<String> {
        None
    }

    /// Deletes the provider user that a failed registration with this reference may have created.
    /// Idempotent.
    async fn abandon_registration(
        &self,
        _context: &CallContext,
        _reference: &str,
        _email: &str,
    ) -> Result<(), Error> {
        Err(registers_nobody())
    }

    /// Deletes a provider user with all consents. Idempotent.
    async fn unregister(
        &self,
        _context: &CallContext,
        _provider_user: &SecretString,
    ) -> Result<(), Error> {
        Err(registers_nobody())
    }

    /// The URL of the provider's page for one consent. Can be called repeatedly; each URL works for
    /// one visit.
    async fn authorize(
        &self,
        context: &CallContext,
        request: &AuthorizationRequest<'_>,
    ) -> Result<Url, Error>;

    /// Reads the outcome from the callback's parameters. Only a hint, since anyone can forge a
    /// callback.
    fn hint(&self, params: &[(String, String)]) -> Result<(), NoConsent>;

    /// Whether the parameters suffice for [`Linking::finish`]. If not, polling the provider is
    /// pointless.
    fn can_finish(&self, params: &[(String, String)]) -> bool;

    /// Returns credentials that cover the user's consent, in the form that
    /// [`crate::Provider::discover`] takes.
    ///
    /// A provider's authorization code works once. A second call with the same code fails with
    /// [`Error::InvalidCredentials`].
    async fn finish(
        &self,
        context: &CallContext,
        callback: &CallbackParams<'_>,
    ) -> Result<SecretString, Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_after_a_second_question_mark() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        for (params, expected) in [
            (
                &[("state", "s"), ("via", "bellbird"), ("status", "SUCCESS")][..],
                &[("state", "s"), ("status", "SUCCESS")][..],
            ),
            (
                &[
                    ("state", "s"),
                    ("via", "bellbird?status=ERROR"),
                    ("error_code", "3000"),
                ],
                &[("state", "s"), ("status", "ERROR"), ("error_code", "3000")],
            ),
            (&[("via", "bellbird?error")], &[("error", "")]),
            (
                &[("code", "a?b=c"), ("via", "elsewhere?state=x")],
                &[("code", "a?b=c")],
            ),
        ] {
            assert_eq!(untangle_params(&pairs(params)), pairs(expected));
        }
    }
}
