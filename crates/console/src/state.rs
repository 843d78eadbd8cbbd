//! The state shared by all handlers of the console.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_api::http::ApiContext;
use bellbird_connections::{Connections, provider_names};
use bellbird_domain::{Clock, Connection, KeyId, UserId};
use bellbird_limits::client_address::{client_address, rate_limit_key};
use bellbird_limits::gcra::Limit;
use bellbird_limits::{Expiring, InFlight, RateLimiter};
use bellbird_storage::{SignedIn, Storage, StorageError};
use http::{Extensions, HeaderMap};
use jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc};

use crate::api_client::ApiClient;
use crate::cookie::Cookies;
use crate::emails::Mailer;
use crate::emails::asked_links::AskedLink;
use crate::money_cache::MoneySums;
use crate::oidc::IdentityProvider;
use crate::pages::{AskedBank, BankNames, Frame};
use crate::rows::found::Found;
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
pub(crate) type Console = Arc<Inner>;

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
    pub(crate) cookies: Cookies,
    pub(crate) identity_provider: Option<IdentityProvider>,
    /// Sums of money in and out, by session.
    pub(crate) money_cache: Expiring<KeyId, Arc<MoneySums>>,
    /// Pages of trades, by session and query.
    pub(crate) rows_cache: Expiring<(KeyId, String), Arc<Found>>,
    /// Of test events to webhook endpoints.
    pub(crate) ping_limit: RateLimiter<UserId>,
    /// By provider. Unknown names share the permits of the empty name.
    event_permits: HashMap<&'static str, EventPermits>,
}

/// The permits for the events of one provider, so that those of another cannot use them up.
pub(crate) struct EventPermits {
    pub(crate) running: Semaphore,
    /// For large events while they are read.
    pub(crate) reading: Semaphore,
}

impl Inner {
    pub(crate) fn new(
        context: ApiContext,
        api: ApiClient,
        settings: ConsoleSettings,
        site: Site,
    ) -> Self {
        let store = context.shared_store();
        let limit_of_user = |name, per_minute| {
            RateLimiter::per_minute(per_minute).map(|limit| limit.shared(store, name))
        };
        let send_links = |mailer: Mailer| {
            let (storage, clock) = (context.storage().clone(), context.clock().clone());
            mailer.send_asked_links(settings.lets_in_by_link(true), storage, clock, store)
        };
        let events = |name| {
            let permits = || Semaphore::new(PROVIDER_EVENTS_CONCURRENT_MAX);
            let (running, reading) = (permits(), permits());
            (name, EventPermits { running, reading })
        };
        let sign_in_at = |oidc| IdentityProvider::new(oidc, &site.console_url);
        // What nothing was found for takes room too.
        let bytes_of = |(_, query): &(_, String), found: &Arc<Found>| query.len() + found.bytes();
        Self {
            connections: context.connections().clone(),
            frame: Frame::new(&settings, &site, context.connections().registry()),
            clock: context.clock().clone(),
            is_setup_over: AtomicBool::new(false),
            failed_auth_limit: RateLimiter::per_minute(settings.failed_auth_per_minute)
                .map(|limit| limit.shared(store, "console_failed_auth")),
            page_limit: limit_of_user("console", settings.console_per_minute),
            form_limit: limit_of_user("console_forms", settings.console_forms_per_minute),
            own_data_permits: InFlight::new(1),
            known_cookies: Expiring::new(KNOWN_COOKIE_TTL, KNOWN_COOKIES_MAX, |_, ()| 1),
            asked_links: site.mailer.clone().map(send_links),
            cookies: Cookies::new(&site.console_url),
            identity_provider: settings.oidc.as_ref().map(sign_in_at),
            money_cache: Expiring::new(MONEY_TTL, CACHE_BYTES_MAX, |_, sums: &Arc<MoneySums>| {
                sums.bytes()
            }),
            rows_cache: Expiring::new(settings.trades_cache, CACHE_BYTES_MAX, bytes_of),
            ping_limit: RateLimiter::new(Limit::per_minute(PINGS_PER_MINUTE)).shared(store, "ping"),
            event_permits: provider_names().chain([""]).map(events).collect(),
            context,
            api,
            settings,
            site,
        }
    }

    pub(crate) fn storage(&self) -> &Storage {
        self.context.storage()
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
            &self.settings.trusted_proxies,
        )))
    }

    /// Who is signed in with a cookie.
    pub(crate) async fn find_session(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<SignedIn>, StorageError> {
        let known = &self.known_cookies;
        let mut of_cookie = [0; 32];
        of_cookie.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let lookup = self.storage().sessions().find(token, now);
        if known.renew(&of_cookie, now).is_none() {
            let found = self.connections.unverified_read(lookup).await?;
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

    /// A bank of which something is said to its user.
    pub(crate) fn asked<'a>(
        &self,
        connection: &'a Connection,
        names: &'a BankNames,
    ) -> AskedBank<'a> {
        AskedBank {
            connection,
            names,
            linkable: self.connections.links().providers(),
            is_sandbox: self.frame.providers.is_sandbox(&connection.provider),
        }
    }

    /// Leads to a path of the console.
    pub(crate) fn redirect(&self, path: &str) -> Response {
        Redirect::to(&format!("{}{path}", self.frame.root)).into_response()
    }

    /// The permits of a provider, or those of all unknown names.
    pub(crate) fn event_permits(&self, provider: &str) -> &EventPermits {
        let known = self.event_permits.get(provider);
        known.unwrap_or_else(|| &self.event_permits[""])
    }
}
