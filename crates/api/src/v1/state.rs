//! The state shared by all handlers: caches and single flights.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use bellbird_domain::{ConnectionId, CurrentText, UserId};
use bellbird_limits::Expiring;
use bellbird_reads::WindowKey;
use http::HeaderValue;

use crate::http::{ApiContext, UserState};
use crate::v1::cache::{
    AccountHoldings, BalancesKey, CachedBalances, CachedHoldings, CachedTrades, HoldingsKey,
    ResponseCache,
};
use crate::v1::live::{CacheStatus, LiveBody, LiveFlights};
use crate::v1::metadata_cache::MetadataCache;

/// Limit of the memory of recent syncs, in bytes.
const SYNCED_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// How long balances are cached; zero disables the cache.
    pub balances_cache: Duration,
    /// As [`Self::balances_cache`], for holdings.
    pub holdings_cache: Duration,
    /// As [`Self::balances_cache`], for trades.
    pub trades_cache: Duration,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct V1State {
    pub(crate) context: ApiContext,
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// The public URL of the API, without a trailing slash.
    pub public_url: CurrentText,
    /// The public URL of the console. Empty: there is none.
    pub console_url: CurrentText,
    pub balances_cache: ResponseCache<BalancesKey, CachedBalances>,
    pub metadata_cache: MetadataCache,
    pub holdings_cache: ResponseCache<HoldingsKey, CachedHoldings>,
    pub trades_cache: ResponseCache<WindowKey, CachedTrades>,
    pub balances_flights: LiveFlights<BalancesKey, (LiveBody, CacheStatus)>,
    pub holdings_flights: LiveFlights<HoldingsKey, (AccountHoldings, CacheStatus)>,
    pub trades_flights: LiveFlights<WindowKey, (LiveBody, CacheStatus)>,
    pub transactions_flights: LiveFlights<WindowKey>,
    /// Connections that were synced for a request, also if the sync found no row and does not count
    /// as the first.
    pub recently_synced: Expiring<ConnectionId, ()>,
    pub sync_flights: LiveFlights<ConnectionId, ()>,
}

impl FromRef<UserState<Self>> for V1State {
    fn from_ref(state: &UserState<Self>) -> Self {
        state.state().clone()
    }
}

impl V1State {
    /// `public_url` is that of the API, without a trailing slash, and `console_url` that of the
    /// console, to which the reference page leads back.
    pub fn new(
        context: ApiContext,
        settings: &ApiSettings,
        public_url: CurrentText,
        console_url: CurrentText,
    ) -> Self {
        let bytes_of = |key: &BalancesKey, value: &CachedBalances| {
            key.account_ids.len() * 16 + value.body.json.0.len() + 200
        };
        let (tasks, store) = (context.connections().tasks(), context.shared_store());
        let inner = Inner {
            balances_cache: ResponseCache::new(
                "balances",
                settings.balances_cache,
                store,
                bytes_of,
            ),
            holdings_cache: ResponseCache::new(
                "holdings",
                settings.holdings_cache,
                store,
                |_, cached: &CachedHoldings| {
                    let rows = cached.iter().map(|(_, rows)| rows.0.len() + 100);
                    100 + rows.sum::<usize>()
                },
            ),
            trades_cache: ResponseCache::new(
                "trades",
                settings.trades_cache,
                store,
                |_, cached: &CachedTrades| cached.body.json.0.len() + 300,
            ),
            metadata_cache: MetadataCache::new(),
            balances_flights: LiveFlights::new(tasks),
            holdings_flights: LiveFlights::new(tasks),
            trades_flights: LiveFlights::new(tasks),
            transactions_flights: LiveFlights::new(tasks),
            recently_synced: Expiring::new(
                context.inner.settings.changes_max_age,
                SYNCED_BYTES_MAX,
                |_, ()| 64,
            ),
            sync_flights: LiveFlights::new(tasks),
            public_url,
            console_url,
        };
        Self {
            context,
            inner: Arc::new(inner),
        }
    }

    /// The `Link` header of a deprecated request.
    pub(crate) fn deprecation_link(&self) -> HeaderValue {
        let url = self.inner.public_url.get();
        let link = format!("<{url}/docs>; rel=\"deprecation\"; type=\"text/html\"");
        HeaderValue::from_str(&link)
            .unwrap_or(HeaderValue::from_static("</docs>; rel=\"deprecation\""))
    }

    /// What all interfaces of the listener share.
    pub fn context(&self) -> &ApiContext {
        &self.context
    }

    /// Frees the memory of all cached responses, credentials and cursors that have expired.
    pub fn purge_expired(&self) {
        self.context.reads().purge_expired();
        self.inner.balances_cache.purge_expired();
        self.inner.holdings_cache.purge_expired();
        self.inner.trades_cache.purge_expired();
        self.inner.metadata_cache.purge_expired();
        self.inner.recently_synced.purge_expired();
    }

    /// Evicts a removed connection from all caches. This frees memory only: every request checks
    /// first that the connection belongs to the caller, so a stale entry is never served.
    pub fn evict_connection(&self, user_id: UserId, connection_id: ConnectionId) {
        let accounts = self.context.reads().evict(user_id, connection_id);
        let is_affected =
            |key: &BalancesKey| accounts.iter().any(|id| key.account_ids.contains(id));
        self.inner.balances_cache.remove_where(is_affected);
        self.inner
            .holdings_cache
            .remove_where(|key| key.connection_id == connection_id);
        self.inner
            .trades_cache
            .remove_where(|key| key.query.connection_id == connection_id);
        self.inner.metadata_cache.evict(user_id);
    }
}
