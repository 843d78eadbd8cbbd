//! The state shared by all handlers of the console.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::ConnectInfo;
use bellbird_api::http::ApiContext;
use bellbird_connections::{Connections, provider_names};
use bellbird_domain::{Clock, KeyId, UserId};
use bellbird_limits::client_address::{client_address, rate_limit_key};
use bellbird_limits::{Expiring, InFlight, RateLimiter};
use bellbird_storage::{SignedIn, Storage, StorageError};
use http::{Extensions, HeaderMap};
use jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc};

use crate::api_client::ApiClient;
use crate::cookie::Cookie;
use crate::emails::Mailer;
use crate::emails::asked_links::AskedLink;
use crate::money_cache::CachedMoney;
use crate::oidc::IdentityProvider;
use crate::pages::Frame;
use crate::rows::found::CachedRows;
use crate::settings::{ConsoleSettings, Site};

/// Maximum number of large events read, and of events processed, at the same time for each
/// provider.
pub(crate) const PROVIDER_EVENTS_CONCURRENT_MAX: usize = 64;

/// As long as balances.
const MONEY_TTL: Duration = Duration::from_secs(300);
/// Of each cache.
const CACHE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How long a session's cookie counts as known after it has worked. Whether it still works is read
/// for each request.
const KNOWN_COOKIE_TTL: Duration = Duration::from_secs(24 * 3600);
const KNOWN_COOKIES_MAX: u64 = 10_000;
/// Of one user, because each is a request to another service, and is stored.
const PINGS_PER_MINUTE: u32 = 10;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Console {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// The services, which are the API's.
    pub(crate) context: ApiContext,
    pub(crate) api: ApiClient,
    pub(crate) connections: Connections,
    pub(crate) settings: ConsoleSettings,
    pub(crate) site: Site,
    pub(crate) frame: Frame,
    pub(crate) clock: Clock,
    /// Whether no first start awaits an operator, which a process need not ask again.
    pub(crate) is_setup_over: AtomicBool,
    pub(crate) failed_auth_limit: Option<RateLimiter<IpAddr>>,
    /// Of pages and of forms that a user who is signed in asks for.
    pub(crate) page_limit: Option<RateLimiter<UserId>>,
    pub(crate) form_limit: Option<RateLimiter<UserId>>,
    /// Files of a user's own data that are being sent.
    pub(crate) own_data_permits: InFlight<UserId>,
    /// SHA-256 of the sessions' cookies that have worked in the last day. They are looked up at
    /// once.
    known_cookies: Expiring<[u8; 32], ()>,
    /// Links to sign in that are to be sent. None: no e-mails are.
    pub(crate) asked_links: Option<mpsc::Sender<AskedLink>>,
    pub(crate) cookie: Cookie,
    pub(crate) link_cookie: Cookie,
    pub(crate) session_cookie: Cookie,
    pub(crate) identity_provider: Option<IdentityProvider>,
    pub(crate) known_browser_cookie: Cookie,
    pub(crate) page_cookie: Cookie,
    /// Sums of money in and out, by session.
    pub(crate) money_cache: Expiring<KeyId, CachedMoney>,
    /// Pages of trades, by session and query.
    pub(crate) rows_cache: Expiring<(KeyId, String), CachedRows>,
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
        context: ApiContext,
        api: ApiClient,
        settings: ConsoleSettings,
        site: Site,
        events_max: usize,
    ) -> Self {
        let frame = Frame::new(&settings, &site, context.connections().registry());
        let cookie = Cookie::of_browser(&site.console_url);
        let link_cookie = Cookie::of_link(&site.console_url);
        let permits = || EventPermits {
            running: Semaphore::new(events_max),
            reading: Semaphore::new(events_max),
        };
        let event_permits = provider_names()
            .chain([""])
            .map(|name| (name, permits()))
            .collect();
        let store = context.shared_store();
        let failed_auth_limit = RateLimiter::per_minute(settings.failed_auth_per_minute);
        let failed_auth_limit =
            failed_auth_limit.map(|limit| limit.shared(store, "console_failed_auth"));
        let limit_of_user = |name, per_minute| {
            RateLimiter::per_minute(per_minute).map(|limit| limit.shared(store, name))
        };
        let page_limit = limit_of_user("console", settings.console_per_minute);
        let form_limit = limit_of_user("console_forms", settings.console_forms_per_minute);
        let send_links = |mailer: Mailer| {
            mailer.send_asked_links(context.storage().clone(), context.clock().clone(), store)
        };
        let asked_links = site.mailer.clone().map(send_links);
        let ping_limit =
            RateLimiter::per_minute(PINGS_PER_MINUTE).map(|limit| limit.shared(store, "ping"));
        let (connections, clock) = (context.connections().clone(), context.clock().clone());
        let session_cookie = Cookie::of_session(&site.console_url);
        let identity_provider = settings
            .oidc
            .as_ref()
            .map(|oidc| IdentityProvider::new(oidc, &site.console_url));
        let known_browser_cookie = Cookie::of_known_browser(&site.console_url);
        let page_cookie = Cookie::of_page(&site.console_url);
        let money_cache = Expiring::new(MONEY_TTL, CACHE_BYTES_MAX, |_, cached: &CachedMoney| {
            cached.bytes()
        });
        // What nothing was found for takes room too.
        let bytes_of = |(_, query): &(_, String), rows: &CachedRows| query.len() + rows.bytes();
        let rows_cache = Expiring::new(settings.trades_cache, CACHE_BYTES_MAX, bytes_of);
        let inner = Inner {
            context,
            api,
            connections,
            settings,
            site,
            frame,
            clock,
            is_setup_over: AtomicBool::new(false),
            failed_auth_limit,
            page_limit,
            form_limit,
            own_data_permits: InFlight::new(1),
            known_cookies: Expiring::new(KNOWN_COOKIE_TTL, KNOWN_COOKIES_MAX, |_, ()| 1),
            asked_links,
            cookie,
            link_cookie,
            session_cookie,
            identity_provider,
            known_browser_cookie,
            page_cookie,
            money_cache,
            rows_cache,
            ping_limit,
            event_permits,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn storage(&self) -> &Storage {
        self.inner.context.storage()
    }

    /// The client's address, as limits count it. None without a listener.
    pub(crate) fn limited_address(
        &self,
        extensions: &Extensions,
        headers: &HeaderMap,
    ) -> Option<IpAddr> {
        let peer = extensions.get::<ConnectInfo<SocketAddr>>()?.0;
        Some(rate_limit_key(client_address(
            peer,
            headers,
            &self.inner.settings.trusted_proxies,
        )))
    }

    /// Who is signed in with a cookie.
    pub(crate) async fn find_session(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<SignedIn>, StorageError> {
        let known = &self.inner.known_cookies;
        let mut of_cookie = [0; 32];
        of_cookie.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let lookup = self.storage().sessions().find(token, now);
        if known.renew(&of_cookie, now).is_none() {
            let found = self.inner.connections.unverified_read(lookup).await?;
            if found.is_some() {
                known.insert(of_cookie, (), now);
            }
            return Ok(found);
        }
        let found = lookup.await?;
        if found.is_none() {
            known.remove(&of_cookie);
        }
        Ok(found)
    }

    /// Whether the browser says that a user is signed in. It decides what a page offers, and never
    /// what it may do.
    pub(crate) fn has_session_cookie(&self, headers: &HeaderMap) -> bool {
        self.inner.session_cookie.value(headers).is_some()
    }

    /// A path of the console, as browsers see it.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.inner.frame.root)
    }

    /// The permits of a provider, or those of all unknown names.
    pub(crate) fn event_permits(&self, provider: &str) -> Option<&EventPermits> {
        self.inner
            .event_permits
            .get(provider)
            .or_else(|| self.inner.event_permits.get(""))
    }
}
