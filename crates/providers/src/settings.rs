//! The settings of a provider: the declaration of its configuration section, and the values that
//! are set.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bellbird_domain::ProviderName;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::Provider;
use crate::http::ClientSettings;
use crate::http::recording::KnownWords;

/// Declares a provider and its section of the settings file. `bellbird.example.toml` documents the
/// section.
pub struct Declaration {
    /// The name of the provider and of the section.
    pub name: ProviderName,
    /// The name as the provider writes it.
    pub title: &'static str,
    /// The institutions that the provider reaches, for users: `Australian banks`.
    pub reaches: &'static str,
    /// Where a person can end a consent without this service: `at your bank`.
    pub consents: &'static str,
    /// Where an operator gets the credentials, for a form: `in the Fiskil console`.
    pub credentials_at: &'static str,
    /// What a test of the credentials does not show, for the same form.
    pub untested: Option<&'static str>,
    /// The members of responses with the words that the adapter compares them with, and names of
    /// its own. `bellbird record` masks neither.
    pub words: KnownWords,
    pub settings: &'static [Setting],
    /// The required keys. Without them the provider is not enabled.
    pub needs: &'static [&'static str],
    /// Creates the adapter once all required keys are set. The duration is the timeout of one
    /// provider call, and the store is where instances count together what the provider limits.
    pub open: fn(&Values, ClientSettings<'_>) -> Opened,
}

/// The adapter, or an error message that names the invalid setting.
pub type Opened = Result<Arc<dyn Provider>, String>;

/// One key of a provider's section.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub name: &'static str,
    /// How a form calls it, as the provider does. Empty for a URL, which no form has.
    pub label: &'static str,
    pub form: Form,
}

impl Setting {
    pub(crate) const fn url(name: &'static str, default: &'static str) -> Self {
        Self {
            name,
            label: "",
            form: Form::Url(default),
        }
    }

    pub(crate) const fn text(name: &'static str, label: &'static str) -> Self {
        Self {
            name,
            label,
            form: Form::Text,
        }
    }

    pub(crate) const fn secret(name: &'static str, label: &'static str) -> Self {
        Self {
            name,
            label,
            form: Form::Secret,
        }
    }
}

/// The type of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An https URL, or an http URL of this machine, without a trailing slash. Holds the default.
    Url(&'static str),
    /// A string that may be shown.
    Text,
    /// A string that is never shown or logged.
    Secret,
}

/// The values of one provider's section. The configuration has validated their form.
#[derive(Debug, Clone, Default)]
pub struct Values(BTreeMap<&'static str, SecretString>);

impl Values {
    pub fn set(&mut self, name: &'static str, value: SecretString) {
        self.0.insert(name, value);
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.expose_secret())
    }

    pub fn secret(&self, name: &str) -> Option<SecretString> {
        self.0.get(name).cloned()
    }

    /// A required value. The registry opens a provider only if all of them are set.
    pub fn required(&self, name: &str) -> Result<&str, String> {
        self.get(name).ok_or_else(|| format!("{name} is not set"))
    }

    /// A URL that has a default. An error means that the configuration has not validated the value.
    pub fn url(&self, name: &str) -> Result<Url, String> {
        let url = self.get(name).and_then(provider_url);
        url.ok_or_else(|| format!("{name} must be an https URL, or an http URL of this machine"))
    }
}

/// Parses the URL of a provider. Calls to it carry credentials, so http is for simulated providers
/// on this machine.
pub fn provider_url(text: &str) -> Option<Url> {
    text.parse().ok().filter(has_safe_scheme)
}

/// Whether nobody between a caller and the host can read what is sent to this URL: by this service
/// to a provider, and by a browser that returns to an app. A change has to be safe for both.
pub fn has_safe_scheme(url: &Url) -> bool {
    match (url.scheme(), url.host_str()) {
        ("https", Some(_)) => true,
        ("http", Some(host)) => is_this_machine(host),
        _ => false,
    }
}

/// Whether a host of a URL is this machine, so that plain HTTP to it is safe.
pub fn is_this_machine(host: &str) -> bool {
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
