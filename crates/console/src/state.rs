//! The state shared by all handlers of the console.

use std::sync::Arc;

use bellbird_connections::Connections;
use tokio::sync::Semaphore;

use crate::assets::Assets;
use crate::cookie::BrowserCookie;

/// Maximum number of large provider events read, and of events processed, at the same time.
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
    pub(crate) event_permits: Semaphore,
    pub(crate) large_event_permits: Semaphore,
}

impl Console {
    /// `events_max` limits the provider events in progress: see [`PROVIDER_EVENTS_CONCURRENT_MAX`].
    pub(crate) fn new(connections: Connections, settings: ConsoleSettings, events_max: usize) -> Self {
        let assets = Assets::new(&settings.console_url);
        let cookie = BrowserCookie::new(&settings.console_url);
        let (event_permits, large_event_permits) = (Semaphore::new(events_max), Semaphore::new(events_max));
        Self { inner: Arc::new(Inner { connections, settings, assets, cookie, event_permits, large_event_permits }) }
    }
}
