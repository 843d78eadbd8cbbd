//! The list of providers, and the registry of those that the configuration enables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bellbird_domain::ProviderName;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::Provider;
use crate::http::ClientSettings;
use crate::settings::{Declaration, Form, Values};

/// All providers. A new provider is a folder and a line here.
pub const PROVIDERS: &[&Declaration] = &[
    &crate::fiskil::DECLARATION,
    &crate::akahu::DECLARATION,
    &crate::snaptrade::DECLARATION,
];

/// The settings of all providers, by provider name.
#[derive(Debug, Clone, Default)]
pub struct ProviderSettings {
    sections: BTreeMap<&'static str, Values>,
    /// The providers whose section is of a simulation.
    sandbox: BTreeSet<&'static str>,
}

impl ProviderSettings {
    /// The values of a provider's section. The configuration sets them.
    pub fn section(&mut self, provider: &Declaration) -> &mut Values {
        self.sections.entry(provider.name.as_str()).or_default()
    }

    /// Takes the values with which a provider's simulation is called.
    pub fn set_sandbox(&mut self, provider: &Declaration, values: Values) {
        self.sections.insert(provider.name.as_str(), values);
        self.sandbox.insert(provider.name.as_str());
    }

    /// Whether a provider is simulated.
    #[must_use]
    pub fn is_sandbox(&self, provider: &Declaration) -> bool {
        self.sandbox.contains(provider.name.as_str())
    }

    /// A required key that is not set although another required key of the provider is: most likely
    /// an oversight.
    pub fn missing_setting(&self, provider: &Declaration) -> Option<&'static str> {
        let missing = self.missing(provider);
        let any_is_set = missing.len() < provider.needs.len();
        missing.first().copied().filter(|_| any_is_set)
    }

    /// Whether all required keys of a provider are set.
    #[must_use]
    pub fn is_complete(&self, provider: &Declaration) -> bool {
        self.missing(provider).is_empty()
    }

    /// The required keys of a provider that are not set.
    fn missing(&self, provider: &Declaration) -> Vec<&'static str> {
        let values = self.of(provider);
        let needed = provider.needs.iter().copied();
        needed.filter(|key| values.get(key).is_none()).collect()
    }

    /// The values of a provider's section, with its defaults.
    pub fn of(&self, provider: &Declaration) -> Values {
        let mut values = self
            .sections
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

/// The enabled providers, which can be exchanged while requests run. Cheap to clone: all clones see
/// the same providers.
#[derive(Clone)]
pub struct Registry(Arc<Shared>);

struct Shared {
    providers: ArcSwap<Vec<Enabled>>,
    /// Those of which operators have chosen the simulation, enabled or not.
    sandbox: Mutex<BTreeSet<&'static str>>,
    /// Counts the exchanges.
    exchanged: watch::Sender<u64>,
}

/// An enabled provider.
#[derive(Clone)]
pub struct Enabled {
    pub provider: Arc<dyn Provider>,
    /// Whether it is simulated.
    pub is_sandbox: bool,
}

impl Default for Registry {
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

impl Registry {
    /// Opens the adapter of each provider whose required settings are set. The error message names
    /// the invalid setting.
    pub fn new(settings: &ProviderSettings, client: ClientSettings<'_>) -> Result<Self, String> {
        let mut enabled = Vec::new();
        for declared in PROVIDERS {
            enabled.extend(open(declared, settings, client)?);
        }
        Ok(Self::of_enabled(enabled))
    }

    /// A registry of the given providers, for tests.
    pub fn of(providers: Vec<Arc<dyn Provider>>) -> Self {
        let enabled = |provider| Enabled {
            provider,
            is_sandbox: false,
        };
        Self::of_enabled(providers.into_iter().map(enabled).collect())
    }

    fn of_enabled(enabled: Vec<Enabled>) -> Self {
        Self(Arc::new(Shared {
            providers: ArcSwap::from_pointee(enabled),
            sandbox: Mutex::default(),
            exchanged: watch::Sender::new(0),
        }))
    }

    /// The adapter of an enabled provider. Whoever keeps it calls that provider to the end, also
    /// after an exchange.
    pub fn find(&self, name: &str) -> Option<Arc<dyn Provider>> {
        let providers = self.0.providers.load();
        let found = providers
            .iter()
            .find(|enabled| enabled.provider.name().as_str() == name)?;
        Some(Arc::clone(&found.provider))
    }

    /// Whether a provider is simulated, also while it is not enabled, because its connections stay
    /// simulated ones.
    #[must_use]
    pub fn is_sandbox(&self, name: &str) -> bool {
        let providers = self.0.providers.load();
        let mut of_sandbox = providers.iter().filter(|enabled| enabled.is_sandbox);
        self.0.sandbox.lock().contains(name)
            || of_sandbox.any(|enabled| enabled.provider.name().as_str() == name)
    }

    /// Says whether an operator has chosen the simulation of a provider.
    pub fn set_sandbox(&self, provider: &'static Declaration, is_sandbox: bool) {
        let mut sandbox = self.0.sandbox.lock();
        if is_sandbox {
            sandbox.insert(provider.name.as_str());
        } else {
            sandbox.remove(provider.name.as_str());
        }
    }

    /// The providers that are enabled now.
    #[must_use]
    pub fn enabled(&self) -> Arc<Vec<Enabled>> {
        self.0.providers.load_full()
    }

    /// Replaces a provider, adds it, or with None removes it. Calls in flight complete with the old
    /// one, and each holder of the registry uses the new one from its next call on.
    pub fn exchange(&self, name: &str, with: Option<Enabled>) {
        self.0.providers.rcu(|now| {
            let is_kept = |kept: &&Enabled| kept.provider.name().as_str() != name;
            let kept = now.iter().filter(is_kept).cloned();
            let mut next: Vec<Enabled> = kept.chain(with.clone()).collect();
            next.sort_by_key(|enabled| position(enabled.provider.name()));
            next
        });
        self.0.exchanged.send_modify(|count| *count += 1);
    }

    /// Tells when providers are exchanged.
    #[must_use]
    pub fn exchanges(&self) -> watch::Receiver<u64> {
        self.0.exchanged.subscribe()
    }
}

/// Opens the adapter of a provider, if all required settings are set.
pub fn open(
    declared: &Declaration,
    settings: &ProviderSettings,
    client: ClientSettings<'_>,
) -> Result<Option<Enabled>, String> {
    if !settings.is_complete(declared) {
        return Ok(None);
    }
    let opened = (declared.open)(&settings.of(declared), client);
    let provider = opened.map_err(|error| format!("{}: {error}", declared.name))?;
    Ok(Some(Enabled {
        provider,
        is_sandbox: settings.is_sandbox(declared),
    }))
}

/// The declaration of a provider.
#[must_use]
pub fn declaration(name: &str) -> Option<&'static Declaration> {
    let mut declared = PROVIDERS.iter();
    declared
        .find(|declared| declared.name.as_str() == name)
        .copied()
}

/// The name of a provider for people. An unknown one is returned as it is.
#[must_use]
pub fn provider_title(name: &str) -> &str {
    declaration(name).map_or(name, |declared| declared.title)
}

/// Where a person can end a consent without this service, for users.
#[must_use]
pub fn consents_place(name: &str) -> &'static str {
    declaration(name).map_or("at the provider", |declared| declared.consents)
}

/// The place in [`PROVIDERS`].
fn position(name: ProviderName) -> usize {
    PROVIDERS
        .iter()
        .position(|declared| declared.name == name)
        .unwrap_or(PROVIDERS.len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_provider_has_a_complete_declaration() {
        let mut names = BTreeSet::new();
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
        assert_eq!(registry.enabled().len(), 0);
    }
}
