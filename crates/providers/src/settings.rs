//! What a provider wants to know from the configuration, and what it was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::ProviderName;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};

use crate::Provider;

/// One provider, as the configuration knows it: a section of the settings file with its keys.
pub struct Declaration {
    /// The provider's name, which is also that of the section.
    pub name: ProviderName,
    /// Its own name, as it writes it.
    pub title: &'static str,
    /// What it reaches, as people say it: `Australian banks`.
    pub reaches: &'static str,
    /// What the section is about, line by line.
    pub help: &'static [&'static str],
    /// Its keys.
    pub settings: &'static [Setting],
    /// The keys without which it is not offered.
    pub needs: &'static [&'static str],
    /// Makes the adapter, once all that it needs is set. The time is the longest that one call may take.
    pub open: fn(&Values, Duration) -> Opened,
}

/// The adapter, or a sentence that names the setting that does not work.
pub type Opened = Result<Arc<dyn Provider>, String>;

/// One key of a provider's section.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The key.
    pub name: &'static str,
    /// What it is for, line by line.
    pub help: &'static [&'static str],
    /// What it takes.
    pub form: Form,
}

/// What a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An http or https URL without a slash at its end; this one when it is not set.
    Url(&'static str),
    /// A text that may be shown.
    Text,
    /// A text that is shown nowhere.
    Secret,
}

/// The values of one provider's section, checked for their form.
#[derive(Debug, Clone, Default)]
pub struct Values(BTreeMap<&'static str, SecretString>);

impl Values {
    /// Sets a key.
    pub fn set(&mut self, name: &'static str, value: SecretString) {
        self.0.insert(name, value);
    }

    /// A value, if it is set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.expose_secret())
    }

    /// A secret, if it is set.
    #[must_use]
    pub fn secret(&self, name: &str) -> Option<SecretString> {
        self.0.get(name).cloned()
    }

    /// A value that is needed; the registry has seen that it is set.
    ///
    /// # Errors
    /// A sentence, when it is not.
    pub fn needed(&self, name: &str) -> Result<&str, String> {
        self.get(name).ok_or_else(|| format!("{name} is not set"))
    }

    /// A URL that has a default.
    ///
    /// # Errors
    /// A sentence, when it is none: the configuration has let something through.
    pub fn url(&self, name: &str) -> Result<Url, String> {
        let url = self.get(name).and_then(|text| text.parse::<Url>().ok());
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        url.ok_or_else(|| format!("{name} must be an http or https URL"))
    }
}
