//! The list of providers, and the registry of those that the configuration enables.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::http::ClientSettings;
use crate::settings::{Declaration, Form, Values};
use crate::{Provider, akahu, fiskil, snaptrade};

/// All providers. A new provider is a folder and a line here.
pub const PROVIDERS: &[&Declaration] = &[
    &fiskil::DECLARATION,
    &akahu::DECLARATION,
    &snaptrade::DECLARATION,
];

/// The settings of all providers, by provider name.
#[derive(Debug, Clone, Default)]
pub struct ProviderSettings(BTreeMap<&'static str, Values>);

impl ProviderSettings {
    /// The values of a provider's section. The configuration sets them.
    pub fn section(&mut self, provider: &Declaration) -> &mut Values {
        self.0.entry(provider.name.as_str()).or_default()
    }

    /// A required key that is not set although another required key of the provider is: most likely
    /// an oversight.
    pub fn missing_setting(&self, provider: &Declaration) -> Option<&'static str> {
        let values = self.of(provider);
        let is_set = |needed: &&&str| values.get(needed).is_some();
        let any_is_set = provider.needs.iter().any(|needed| is_set(&needed));
        provider
            .needs
            .iter()
            .find(|needed| any_is_set && !is_set(needed))
            .copied()
    }

    /// The values of a provider's section, with its defaults.
    pub fn of(&self, provider: &Declaration) -> Values {
        let mut values = self
            .0
            .get(provider.name.as_str())
            .cloned()
            .unwrap_or_default();
        for setting in provider.settings {
            if let (Form::Url(default), None) = (setting.form, values.get(setting.name)) {
                values.set(setting.name, default.into());
            }
        }
        values
    }
}

/// The enabled providers.
#[derive(Clone, Default)]
pub struct Registry {
    providers: Arc<[Arc<dyn Provider>]>,
}

impl Registry {
    /// Opens the adapter of each provider whose required settings are set. The error message names
    /// the invalid setting.
    pub fn new(settings: &ProviderSettings, client: ClientSettings<'_>) -> Result<Self, String> {
        let mut enabled = Vec::new();
        for provider in PROVIDERS {
            let values = settings.of(provider);
            if provider
                .needs
                .iter()
                .all(|needed| values.get(needed).is_some())
            {
                let opened = (provider.open)(&values, client);
                enabled.push(opened.map_err(|error| format!("{}: {error}", provider.name))?);
            }
        }
        Ok(Self {
            providers: enabled.into(),
        })
    }

    /// A registry of the given providers, for tests.
    pub fn of(providers: Vec<Arc<dyn Provider>>) -> Self {
        Self {
            providers: providers.into(),
        }
    }

    /// The adapter of an enabled provider.
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        self.providers
            .iter()
            .find(|provider| provider.name().as_str() == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.providers.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_provider_has_a_complete_declaration() {
        let mut names = std::collections::BTreeSet::new();
        for provider in PROVIDERS {
            assert!(
                names.insert(provider.name.as_str()),
                "{} is listed twice",
                provider.name
            );
            assert!(
                !provider.title.is_empty() && !provider.reaches.is_empty(),
                "{}",
                provider.name
            );
            assert!(!provider.settings.is_empty(), "{}", provider.name);
            for setting in provider.settings {
                let plain = setting
                    .name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                assert!(plain, "{}.{}", provider.name, setting.name);
            }
            let is_known = |needed: &&str| {
                provider
                    .settings
                    .iter()
                    .any(|setting| setting.name == *needed)
            };
            assert!(
                !provider.needs.is_empty() && provider.needs.iter().all(is_known),
                "{}",
                provider.name
            );
        }
    }

    #[test]
    fn words_are_those_of_the_adapter() {
        for provider in PROVIDERS {
            let folder = format!("{}/src/{}", env!("CARGO_MANIFEST_DIR"), provider.name);
            let sources = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path());
            let sources =
                sources.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
            let source: String = sources
                .map(|path| std::fs::read_to_string(path).unwrap())
                .collect();
            for word in provider
                .words
                .iter()
                .flat_map(|(_, words)| words.split_whitespace())
            {
                assert!(
                    source.contains(&format!("\"{word}\"")),
                    "{}: {word}",
                    provider.name
                );
            }
        }
    }

    #[test]
    fn provider_without_credentials_is_not_enabled() {
        let client = ClientSettings {
            call_timeout: Duration::from_secs(20),
            user_calls_per_minute: 0,
            store: None,
        };
        let registry = Registry::new(&ProviderSettings::default(), client).unwrap();
        assert_eq!(registry.iter().count(), 0);
    }
}
