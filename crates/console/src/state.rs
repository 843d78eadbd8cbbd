//! The state shared by all handlers of the console.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bellbird_connections::{Connections, provider_names};
use bellbird_shared_state::client_address::Network;
use bellbird_shared_state::{Clock, RateLimiter};
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
    /// Proxies whose `X-Forwarded-For` header is trusted.
    pub trusted_proxies: Vec<Network>,
    /// Requests a minute with unknown link tokens and states, for each client address. 0 means no limit.
    pub failed_auth_per_minute: u32,
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
    pub(crate) clock: Clock,
    pub(crate) failed_auth_limit: Option<RateLimiter<IpAddr>>,
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
        let failed_auth_limit = RateLimiter::per_minute(settings.failed_auth_per_minute);
        let clock = Clock::system();
        let inner = Inner { connections, settings, assets, clock, failed_auth_limit, cookie, event_permits };
        Self { inner: Arc::new(inner) }
    }

    /// The permits of a provider, or those of all unknown names.
    pub(crate) fn event_permits(&self, provider: &str) -> Option<&EventPermits> {
        self.inner.event_permits.get(provider).or_else(|| self.inner.event_permits.get(""))
    }
}
