//! The state shared by all handlers of the console.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bellbird_api::front::Access;
use bellbird_connections::{Connections, provider_names};
use bellbird_domain::{Clock, KeyId, UserId};
use bellbird_limits::{Expiring, RateLimiter};
use bellbird_storage::Storage;
use http::HeaderMap;
use tokio::sync::Semaphore;

use crate::api_client::ApiClient;
use crate::cookie::Cookie;
use crate::money_cache::CachedMoney;
use crate::oidc::IdentityProvider;
use crate::pages::Frame;
use crate::settings::{ConsoleSettings, Site};

/// Maximum number of large events read, and of events processed, at the same time for each provider.
pub(crate) const PROVIDER_EVENTS_CONCURRENT_MAX: usize = 64;

/// As long as balances.
const MONEY_TTL: Duration = Duration::from_secs(300);
const MONEY_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Of one user, because each is a request to another service, and is stored.
const PINGS_PER_MINUTE: u32 = 10;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Console {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// The services, which are the API's.
    pub(crate) access: Access,
    pub(crate) api: ApiClient,
    pub(crate) connections: Connections,
    pub(crate) settings: ConsoleSettings,
    pub(crate) site: Site,
    pub(crate) frame: Frame,
    pub(crate) clock: Clock,
    pub(crate) failed_auth_limit: Option<RateLimiter<IpAddr>>,
    pub(crate) cookie: Cookie,
    pub(crate) link_cookie: Cookie,
    pub(crate) session_cookie: Cookie,
    pub(crate) identity_provider: Option<IdentityProvider>,
    pub(crate) known_browser_cookie: Cookie,
    /// Sums of money in and out, by session.
    pub(crate) money_cache: Expiring<KeyId, CachedMoney>,
    /// Of test events to webhook endpoints.
    pub(crate) ping_limit: Option<RateLimiter<UserId>>,
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
    pub(crate) fn new(
        access: Access,
        api: ApiClient,
        settings: ConsoleSettings,
        site: Site,
        events_max: usize,
    ) -> Self {
        let frame = Frame::new(&settings, &site);
        let cookie = Cookie::of_browser(&site.console_url);
        let link_cookie = Cookie::of_link(&site.console_url);
        let permits = || EventPermits { running: Semaphore::new(events_max), reading: Semaphore::new(events_max) };
        let event_permits = provider_names().chain([""]).map(|name| (name, permits())).collect();
        let store = access.shared_store();
        let failed_auth_limit = RateLimiter::per_minute(settings.failed_auth_per_minute);
        let failed_auth_limit = failed_auth_limit.map(|limit| limit.shared(store, "console_failed_auth"));
        let ping_limit = RateLimiter::per_minute(PINGS_PER_MINUTE).map(|limit| limit.shared(store, "ping"));
        let (connections, clock) = (access.connections().clone(), access.clock().clone());
        let session_cookie = Cookie::of_session(&site.console_url);
        let identity_provider = settings.oidc.as_ref().map(|oidc| IdentityProvider::new(oidc, &site.console_url));
        let known_browser_cookie = Cookie::of_known_browser(&site.console_url);
        let money_cache = Expiring::new(MONEY_TTL, MONEY_BYTES_MAX, |_, cached: &CachedMoney| cached.bytes());
        let inner = Inner {
            access,
            api,
            connections,
            settings,
            site,
            frame,
            clock,
            failed_auth_limit,
            cookie,
            link_cookie,
            session_cookie,
            identity_provider,
            known_browser_cookie,
            money_cache,
            ping_limit,
            event_permits,
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn storage(&self) -> &Storage {
        self.inner.access.storage()
    }

    /// Whether the browser says that a user is signed in. It decides what a page offers, and never what it may do.
    pub(crate) fn has_session_cookie(&self, headers: &HeaderMap) -> bool {
        self.inner.session_cookie.value(headers).is_some()
    }

    /// A path of the console, as browsers see it.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.inner.frame.root)
    }

    /// The permits of a provider, or those of all unknown names.
    pub(crate) fn event_permits(&self, provider: &str) -> Option<&EventPermits> {
        self.inner.event_permits.get(provider).or_else(|| self.inner.event_permits.get(""))
    }
}
