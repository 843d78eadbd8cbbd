//! The state shared by all handlers of the console.

use std::collections::HashMap;
use std::sync::Arc;

use bellbird_connections::{Connections, provider_names};
use tokio::sync::Semaphore;

use crate::assets::Assets;
use crate::cookie::BrowserCookie;

/// Maximum number of large events read, and of events processed, at the same time for each provider.
pub(crate) const PROVIDER_EVENTS_CONCURRENT_MAX: usize = 64;

/// The public URLs of the service.
#[derive(Debug, Clone)]
pub struct ConsoleSettings {
    pub api_url: String,
    pub console_url: String,
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Console {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) connections: Connections,
    pub(crate) settings: ConsoleSettings,
    pub(crate) assets: Assets,
    pub(crate) cookie: BrowserCookie,
    /// By provider. Unknown names share the permits of the empty name.
    event_permits: HashMap<&'static str, EventPermits>,
}

/// The permits for the events of one provider, so that those of another cannot use them up.
pub(crate) struct EventPermits {
    pub(crate) running: Semaphore,
    /// For large events while they are read.
    pub(crate) reading: Semaphore,
}

impl Console {
    /// `events_max` limits the provider events in progress: see [`PROVIDER_EVENTS_CONCURRENT_MAX`].
    pub(crate) fn new(connections: Connections, settings: ConsoleSettings, events_max: usize) -> Self {
        let assets = Assets::new(&settings.console_url);
        let cookie = BrowserCookie::new(&settings.console_url);
        let permits = || EventPermits { running: Semaphore::new(events_max), reading: Semaphore::new(events_max) };
        let event_permits = provider_names().chain([""]).map(|name| (name, permits())).collect();
        Self { inner: Arc::new(Inner { connections, settings, assets, cookie, event_permits }) }
    }

    /// The permits of a provider, or those of all unknown names.
    pub(crate) fn event_permits(&self, provider: &str) -> Option<&EventPermits> {
        self.inner.event_permits.get(provider).or_else(|| self.inner.event_permits.get(""))
    }
}
