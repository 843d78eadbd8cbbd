//! The only list of providers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::settings::{Declaration, Form, Values};
use crate::{Provider, akahu, fiskil, snaptrade};

/// Every provider there is. A new one is a line here.
pub const PROVIDERS: &[&Declaration] = &[&fiskil::DECLARATION, &akahu::DECLARATION, &snaptrade::DECLARATION];

/// What the configuration says about the providers, by name.
#[derive(Debug, Clone, Default)]
pub struct ProviderSettings(BTreeMap<&'static str, Values>);

impl ProviderSettings {
    /// The values of a provider's section, to be filled.
    pub fn section(&mut self, provider: &Declaration) -> &mut Values {
        self.0.entry(provider.name.as_str()).or_default()
    }

    /// A key that the provider needs and does not have, though it has others of those: somebody has forgotten it.
    #[must_use]
    pub fn forgotten(&self, provider: &Declaration) -> Option<&'static str> {
        let values = self.of(provider);
        let is_set = |needed: &&&str| values.get(needed).is_some();
        let some = provider.needs.iter().any(|needed| is_set(&needed));
        provider.needs.iter().find(|needed| some && !is_set(needed)).copied()
    }

    fn of(&self, provider: &Declaration) -> Values {
        let mut values = self.0.get(provider.name.as_str()).cloned().unwrap_or_default();
        for setting in provider.settings {
            if let (Form::Url(default), None) = (setting.form, values.get(setting.name)) {
                values.set(setting.name, default.into());
            }
        }
        values
    }
}

/// The providers that this installation offers.
#[derive(Clone, Default)]
pub struct Registry {
    providers: Arc<[Arc<dyn Provider>]>,
}

impl Registry {
    /// One adapter for each provider that has credentials; each call takes at most `call_timeout`.
    ///
    /// # Errors
    /// A sentence that names the setting that does not work.
    pub fn new(settings: &ProviderSettings, call_timeout: Duration) -> Result<Self, String> {
        let mut offered = Vec::new();
        for provider in PROVIDERS {
            let values = settings.of(provider);
            if provider.needs.iter().all(|needed| values.get(needed).is_some()) {
                let opened = (provider.open)(&values, call_timeout);
                offered.push(opened.map_err(|error| format!("{}: {error}", provider.name))?);
            }
        }
        Ok(Self { providers: offered.into() })
    }

    /// A registry of these, for tests.
    #[must_use]
    pub fn of(providers: Vec<Arc<dyn Provider>>) -> Self {
        Self { providers: providers.into() }
    }

    /// The adapter with this name, if it is offered here.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        self.providers.iter().find(|provider| provider.name().as_str() == name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.providers.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_is_declared_in_full() {
        let mut names = std::collections::BTreeSet::new();
        for provider in PROVIDERS {
            assert!(names.insert(provider.name.as_str()), "{} stands twice", provider.name);
            assert!(!provider.title.is_empty() && !provider.reaches.is_empty(), "{}", provider.name);
            assert!(!provider.help.is_empty() && !provider.settings.is_empty(), "{}", provider.name);
            for setting in provider.settings {
                assert!(!setting.help.is_empty(), "{}.{}", provider.name, setting.name);
                let plain = setting.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                assert!(plain, "{}.{}", provider.name, setting.name);
            }
            let is_known = |needed: &&str| provider.settings.iter().any(|setting| setting.name == *needed);
            assert!(!provider.needs.is_empty() && provider.needs.iter().all(is_known), "{}", provider.name);
        }
    }

    #[test]
    fn without_credentials_nothing_is_offered() {
        let registry = Registry::new(&ProviderSettings::default(), Duration::from_secs(20)).unwrap();
        assert_eq!(registry.iter().count(), 0);
    }
}
