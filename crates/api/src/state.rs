//! What the handlers share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use bellbird_connections::Connections;
use bellbird_domain::{AccountId, ConnectionId, KeyId, Page, UserId};
use bellbird_reads::{ListKey, Reads, TradesKey};
use bellbird_shared_state::{Clock, Expiring, InFlight, RateLimiter, SingleFlight};
use bellbird_storage::Storage;
use bytes::Bytes;
use http::HeaderValue;

use crate::client_address::Network;
use crate::handlers::holdings::{AccountHoldings, HoldingsKey};
use crate::handlers::trades::CachedTrades;
use crate::live::LiveOutcome;

/// All cached answers of an endpoint together, in bytes.
const CACHE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Lists of connections are kept while they are asked for; what makes them right is their revision.
const LISTS_LIFE: Duration = Duration::from_secs(600);
const LISTS_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// How the API is set up.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// How long balances are kept; zero switches the cache off.
    pub balances_cache: Duration,
    /// How long holdings are kept.
    pub holdings_cache: Duration,
    /// How long trades are kept.
    pub trades_cache: Duration,
    /// Calls a minute for each key: connections, accounts, categories. 0 is no limit; so for the others.
    pub metadata_per_minute: u32,
    /// Calls a minute for each key: balances.
    pub balances_per_minute: u32,
    /// Calls a minute for each key: transactions, holdings and trades together.
    pub live_per_minute: u32,
    /// Live requests at once for each key.
    pub live_in_flight: u32,
    /// Failed authentications a minute for each client address.
    pub failed_auth_per_minute: u32,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Network>,
    /// Origins that browsers may read from; none switches CORS off.
    pub cors_origins: Vec<String>,
    /// The address under which the world knows the API, without a slash at its end.
    pub public_url: String,
}

/// A set of accounts asked for by one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BalancesKey {
    pub(crate) key_id: KeyId,
    /// Sorted.
    pub(crate) account_ids: Arc<[AccountId]>,
}

/// A finished answer about balances.
#[derive(Clone)]
pub(crate) struct CachedBalances {
    pub(crate) body: Bytes,
    /// The owner's revision at which the accounts were last found to be the caller's.
    pub(crate) revision: Arc<AtomicI64>,
}

fn holdings_bytes(_: &HoldingsKey, accounts: &Arc<[(AccountId, Bytes)]>) -> usize {
    accounts.iter().map(|(_, rows)| rows.len() + 100).sum::<usize>() + 100
}

/// What the handlers share; cheap to clone.
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
    /// What the `Link` header of a deprecated call says.
    pub(crate) deprecation_link: HeaderValue,
    pub(crate) metadata_limit: Option<RateLimiter<KeyId>>,
    pub(crate) balances_limit: Option<RateLimiter<KeyId>>,
    pub(crate) live_limit: Option<RateLimiter<KeyId>>,
    pub(crate) failed_auth_limit: Option<RateLimiter<IpAddr>>,
    pub(crate) live_in_flight: InFlight<KeyId>,
    /// Keys whose last use is being written.
    pub(crate) touching: InFlight<KeyId>,
    pub(crate) balances_cache: Expiring<BalancesKey, CachedBalances>,
    /// Each user's connections as JSON, with the revision at which they are so.
    pub(crate) connection_lists: Expiring<UserId, (i64, Bytes)>,
    pub(crate) holdings_cache: Expiring<HoldingsKey, Arc<[(AccountId, Bytes)]>>,
    pub(crate) trades_cache: Expiring<(TradesKey, Page), CachedTrades>,
    pub(crate) balances_flights: SingleFlight<BalancesKey, LiveOutcome>,
    pub(crate) holdings_flights: SingleFlight<(HoldingsKey, i64), LiveOutcome<AccountHoldings>>,
    pub(crate) trades_flights: SingleFlight<((TradesKey, Page), i64), LiveOutcome>,
    pub(crate) transactions_flights: SingleFlight<(ListKey, Page), LiveOutcome>,
}

impl AppState {
    /// Puts the parts together.
    #[must_use]
    pub fn new(storage: Storage, reads: Reads, connections: Connections, clock: Clock, settings: ApiSettings) -> Self {
        let bytes_of = |key: &BalancesKey, value: &CachedBalances| key.account_ids.len() * 16 + value.body.len() + 200;
        let link = format!("<{}/docs>; rel=\"deprecation\"; type=\"text/html\"", settings.public_url);
        let inner = Inner {
            deprecation_link: HeaderValue::from_str(&link)
                .unwrap_or(HeaderValue::from_static("</docs>; rel=\"deprecation\"")),
            metadata_limit: RateLimiter::per_minute(settings.metadata_per_minute),
            balances_limit: RateLimiter::per_minute(settings.balances_per_minute),
            live_limit: RateLimiter::per_minute(settings.live_per_minute),
            failed_auth_limit: RateLimiter::per_minute(settings.failed_auth_per_minute),
            live_in_flight: InFlight::new(settings.live_in_flight),
            touching: InFlight::new(1),
            balances_cache: Expiring::new(settings.balances_cache, CACHE_BYTES_MAX, bytes_of),
            holdings_cache: Expiring::new(settings.holdings_cache, CACHE_BYTES_MAX, holdings_bytes),
            trades_cache: Expiring::new(settings.trades_cache, CACHE_BYTES_MAX, |_, cached: &CachedTrades| {
                cached.answer.body.len() + 300
            }),
            connection_lists: Expiring::new(LISTS_LIFE, LISTS_BYTES_MAX, |_, (_, list): &(i64, Bytes)| {
                list.len() + 100
            }),
            balances_flights: SingleFlight::default(),
            holdings_flights: SingleFlight::default(),
            trades_flights: SingleFlight::default(),
            transactions_flights: SingleFlight::default(),
            storage,
            reads,
            connections,
            clock,
            settings,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Forgets what is kept in memory about a connection that has ended. Nothing of it could be served any more: every
    /// answer begins with the question whose the connection is.
    pub fn forget(&self, user_id: UserId, connection_id: ConnectionId) {
        let accounts = self.inner.reads.forget(user_id, connection_id);
        let concerns = |key: &BalancesKey| accounts.iter().any(|id| key.account_ids.contains(id));
        self.inner.balances_cache.remove_where(concerns);
        self.inner.holdings_cache.remove_where(|key| key.connection_id == connection_id);
        self.inner.trades_cache.remove_where(|(list, _)| list.connection_id == connection_id);
        self.inner.connection_lists.remove_where(|owner| *owner == user_id);
    }
}
