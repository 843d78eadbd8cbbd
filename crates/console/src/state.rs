//! The state shared by all handlers of the console.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bellbird_connections::{Connections, provider_names};
use bellbird_domain::Clock;
use bellbird_limits::RateLimiter;
use tokio::sync::Semaphore;

use crate::cookie::Cookie;
use crate::pages::Frame;
use crate::settings::{ConsoleSettings, Site};

/// Maximum number of large events read, and of events processed, at the same time for each provider.
pub(crate) const PROVIDER_EVENTS_CONCURRENT_MAX: usize = 64;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Console {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) connections: Connections,
    pub(crate) settings: ConsoleSettings,
    pub(crate) site: Site,
    pub(crate) frame: Frame,
    pub(crate) clock: Clock,
    pub(crate) failed_auth_limit: Option<RateLimiter<IpAddr>>,
    pub(crate) cookie: Cookie,
    pub(crate) link_cookie: Cookie,
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
    pub(crate) fn new(connections: Connections, settings: ConsoleSettings, site: Site, events_max: usize) -> Self {
        let frame = Frame::new(&settings, &site);
        let cookie = Cookie::of_browser(&site.console_url);
        let link_cookie = Cookie::of_link(&site.console_url);
        let permits = || EventPermits { running: Semaphore::new(events_max), reading: Semaphore::new(events_max) };
        let event_permits = provider_names().chain([""]).map(|name| (name, permits())).collect();
        let failed_auth_limit = RateLimiter::per_minute(settings.failed_auth_per_minute);
        let clock = Clock::system();
        let inner =
            Inner { connections, settings, site, frame, clock, failed_auth_limit, cookie, link_cookie, event_permits };
        Self { inner: Arc::new(inner) }
    }

    /// The permits of a provider, or those of all unknown names.
    pub(crate) fn event_permits(&self, provider: &str) -> Option<&EventPermits> {
        self.inner.event_permits.get(provider).or_else(|| self.inner.event_permits.get(""))
    }
}
