//! The only list of providers.

use std::sync::Arc;
use std::time::Duration;

use crate::Provider;
use crate::fiskil::{Fiskil, FiskilSettings};

/// What the configuration says about providers.
#[derive(Debug)]
pub struct ProviderSettings {
    /// The longest that one call may take.
    pub call_timeout: Duration,
    /// Australian banking, if there are credentials.
    pub fiskil: Option<FiskilSettings>,
}

/// The providers that this installation offers.
#[derive(Clone, Default)]
pub struct Registry {
    providers: Arc<[Arc<dyn Provider>]>,
}

impl Registry {
    /// One adapter for each provider that has credentials.
    ///
    /// # Errors
    /// A sentence that names the setting that does not work.
    pub fn new(settings: ProviderSettings) -> Result<Self, String> {
        let mut providers: Vec<Arc<dyn Provider>> = Vec::new();
        if let Some(fiskil) = settings.fiskil {
            providers.push(Arc::new(Fiskil::new(fiskil, settings.call_timeout)?));
        }
        Ok(Self { providers: providers.into() })
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
