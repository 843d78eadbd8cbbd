//! The state shared by all handlers: storage, provider reads, rate limits, caches and single flights.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bellbird_connections::Connections;
use bellbird_domain::{AccountId, ConnectionId, KeyId, Page, UserId};
use bellbird_reads::{ListKey, Reads};
use bellbird_shared_state::client_address::Network;
use bellbird_shared_state::{Clock, Expiring, InFlight, RateLimiter, SingleFlight};
use bellbird_storage::Storage;
use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::Semaphore;

use crate::cache::{
    AccountHoldings, BalancesKey, CachedBalances, CachedTrades, HoldingsKey, MetadataCache, SharedOutcome,
    holdings_bytes,
};

/// Limit of each response cache, in bytes.
const CACHE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How long a key counts as known after its first request. Whether it still works is read for each request.
const KNOWN_KEY_TTL: Duration = Duration::from_secs(24 * 3600);
const KNOWN_KEYS_MAX: u64 = 10_000;
/// Unknown keys looked up at the same time. Anyone can make one up, so they must leave database connections to others.
const UNKNOWN_KEY_LOOKUPS_MAX: usize = 4;

#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// How long balances are cached; zero disables the cache.
    pub balances_cache: Duration,
    /// As [`Self::balances_cache`], for holdings.
    pub holdings_cache: Duration,
    /// As [`Self::balances_cache`], for trades.
    pub trades_cache: Duration,
    /// Requests a minute for each key: connections, accounts and categories. 0 disables this and every limit below.
    pub metadata_per_minute: u32,
    /// Requests a minute for each key: balances.
    pub balances_per_minute: u32,
    /// Requests a minute for each key: transactions, holdings and trades together.
    pub live_per_minute: u32,
    /// Concurrent requests for each key: transactions, holdings and trades together.
    pub live_in_flight: u32,
    /// Provider calls a minute for the requests of each user, at each provider.
    pub provider_calls_per_minute: u32,
    /// Failed authentications a minute for each client address.
    pub failed_auth_per_minute: u32,
    /// Proxies whose `X-Forwarded-For` header is trusted.
    pub trusted_proxies: Vec<Network>,
    /// Origins whose pages may call the API from a browser. Empty disables CORS.
    pub cors_origins: Vec<String>,
    /// The public URL of the API, without a trailing slash.
    pub public_url: String,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) storage: Storage,
    pub(crate) reads: Reads,
    pub(crate) connections: Connections,
    pub(crate) clock: Clock,
    pub(crate) settings: ApiSettings,
    /// The `Link` header of a deprecated request.
    pub(crate) deprecation_link: HeaderValue,
    pub(crate) metadata_limit: Option<RateLimiter<KeyId>>,
    pub(crate) balances_limit: Option<RateLimiter<KeyId>>,
    pub(crate) live_limit: Option<RateLimiter<KeyId>>,
    pub(crate) failed_auth_limit: Option<RateLimiter<IpAddr>>,
    /// SHA-256 of the keys that worked lately. Their requests are not limited by failures of others at their address.
    pub(crate) known_keys: Expiring<[u8; 32], ()>,
    /// Permits to look up any other key.
    pub(crate) unknown_key_lookups: Semaphore,
    pub(crate) live_in_flight: InFlight<KeyId>,
    /// Keys whose last-used time is being written. One permit for each key.
    pub(crate) last_used_writes: InFlight<KeyId>,
    pub(crate) balances_cache: Expiring<BalancesKey, CachedBalances>,
    pub(crate) metadata_cache: MetadataCache,
    pub(crate) holdings_cache: Expiring<HoldingsKey, Arc<[(AccountId, Bytes)]>>,
    pub(crate) trades_cache: Expiring<(ListKey, Page), CachedTrades>,
    // Flights by revision: after a change, a request joins no read that began before it.
    pub(crate) balances_flights: SingleFlight<(BalancesKey, i64), SharedOutcome>,
    pub(crate) holdings_flights: SingleFlight<(HoldingsKey, i64), SharedOutcome<AccountHoldings>>,
    pub(crate) trades_flights: SingleFlight<((ListKey, Page), i64), SharedOutcome>,
    pub(crate) transactions_flights: SingleFlight<((ListKey, Page), i64), SharedOutcome>,
}

impl AppState {
    #[must_use]
    pub fn new(storage: Storage, reads: Reads, connections: Connections, clock: Clock, settings: ApiSettings) -> Self {
        let bytes_of = |key: &BalancesKey, value: &CachedBalances| key.account_ids.len() * 16 + value.body.len() + 200;
        let link = format!("<{}/docs>; rel=\"deprecation\"; type=\"text/html\"", settings.public_url);
        let tasks = connections.tasks().clone();
        let inner = Inner {
            deprecation_link: HeaderValue::from_str(&link)
                .unwrap_or(HeaderValue::from_static("</docs>; rel=\"deprecation\"")),
            metadata_limit: RateLimiter::per_minute(settings.metadata_per_minute),
            balances_limit: RateLimiter::per_minute(settings.balances_per_minute),
            live_limit: RateLimiter::per_minute(settings.live_per_minute),
            failed_auth_limit: RateLimiter::per_minute(settings.failed_auth_per_minute),
            known_keys: Expiring::with_lru(KNOWN_KEY_TTL, KNOWN_KEYS_MAX, |_, ()| 1),
            unknown_key_lookups: Semaphore::new(UNKNOWN_KEY_LOOKUPS_MAX),
            live_in_flight: InFlight::new(settings.live_in_flight),
            last_used_writes: InFlight::new(1),
            balances_cache: Expiring::new(settings.balances_cache, CACHE_BYTES_MAX, bytes_of),
            holdings_cache: Expiring::new(settings.holdings_cache, CACHE_BYTES_MAX, holdings_bytes),
            trades_cache: Expiring::new(settings.trades_cache, CACHE_BYTES_MAX, |_, cached: &CachedTrades| {
                cached.answer.body.len() + 300
            }),
            metadata_cache: MetadataCache::new(),
            balances_flights: SingleFlight::tracked(tasks.clone()),
            holdings_flights: SingleFlight::tracked(tasks.clone()),
            trades_flights: SingleFlight::tracked(tasks.clone()),
            transactions_flights: SingleFlight::tracked(tasks.clone()),
            storage,
            reads,
            connections,
            clock,
            settings,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Frees the memory of all cached answers, credentials and page maps that have expired.
    pub fn purge_expired(&self) {
        self.inner.reads.purge_expired();
        self.inner.balances_cache.purge_expired();
        self.inner.holdings_cache.purge_expired();
        self.inner.trades_cache.purge_expired();
        self.inner.metadata_cache.purge_expired();
    }

    /// Evicts a removed connection from all caches. This frees memory only: every request checks first that the
    /// connection belongs to the caller, so a stale entry is never served.
    pub fn evict_connection(&self, user_id: UserId, connection_id: ConnectionId) {
        let accounts = self.inner.reads.evict(user_id, connection_id);
        let is_affected = |key: &BalancesKey| accounts.iter().any(|id| key.account_ids.contains(id));
        self.inner.balances_cache.remove_where(is_affected);
        self.inner.holdings_cache.remove_where(|key| key.connection_id == connection_id);
        self.inner.trades_cache.remove_where(|(list, _)| list.connection_id == connection_id);
        self.inner.metadata_cache.evict(user_id);
    }
}
