//! Live reads: balances, transactions, holdings and trades, read from the provider on each request.
//!
//! A read checks that the connection belongs to the caller, queries the provider, and returns the requested window of
//! rows. No row is stored.

pub mod balances;
mod connection_context;
pub mod error;
pub mod holdings;
pub mod page_map;
pub mod trades;
pub mod transactions;
pub mod window;

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{AccountId, ConnectionId, KeyId, UserId};
use bellbird_providers::{CallContext, Registry};
use bellbird_shared_state::{Clock, Expiring};
use bellbird_storage::Storage;
use parking_lot::Mutex;
use tokio::time::Instant;

pub use connection_context::ConnectionContext;
use connection_context::ConnectionContexts;
pub use error::ReadError;
use page_map::PageMap;
pub use trades::TradesKey;
use trades::TradesMap;

/// Time to live of a page map after its last use.
const PAGE_MAP_TTL: Duration = Duration::from_secs(600);
/// Maximum size in bytes of all page maps of one kind (transactions or trades).
const PAGE_MAPS_BYTES_MAX: u64 = 32 * 1024 * 1024;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum duration of one request.
    pub deadline: Duration,
    /// Maximum number of rows that one request reads or counts, from its offset on.
    pub row_cap: u64,
}

/// Key of a page map: the API key, the connection and the filters of a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListKey {
    pub key_id: KeyId,
    pub connection_id: ConnectionId,
    /// `None` for all accounts.
    pub account_id: Option<AccountId>,
    /// The query parameter as sent.
    pub from: Option<String>,
    /// The query parameter as sent.
    pub to: Option<String>,
}

impl ListKey {
    fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        size_of::<Self>() + text(&self.from) + text(&self.to)
    }
}

/// The entry point of this crate. Cloning is cheap.
#[derive(Clone)]
pub struct Reads {
    inner: Arc<Inner>,
}

struct Inner {
    storage: Storage,
    providers: Registry,
    clock: Clock,
    limits: Limits,
    connection_contexts: ConnectionContexts,
    page_maps: Expiring<ListKey, Arc<Mutex<PageMap>>>,
    trade_maps: Expiring<TradesKey, Arc<Mutex<TradesMap>>>,
}

impl Reads {
    #[must_use]
    pub fn new(storage: Storage, providers: Registry, clock: Clock, limits: Limits) -> Self {
        // Each request that uses a map measures it again, because maps grow.
        let bytes_of = |list: &ListKey, map: &Arc<Mutex<PageMap>>| list.bytes() + map.lock().bytes();
        let page_maps = Expiring::new(PAGE_MAP_TTL, PAGE_MAPS_BYTES_MAX, bytes_of);
        let bytes_of = |_: &TradesKey, map: &Arc<Mutex<TradesMap>>| size_of::<TradesKey>() + map.lock().bytes();
        let trade_maps = Expiring::new(PAGE_MAP_TTL, PAGE_MAPS_BYTES_MAX, bytes_of);
        let connection_contexts = ConnectionContexts::default();
        Self {
            inner: Arc::new(Inner { storage, providers, clock, limits, connection_contexts, page_maps, trade_maps }),
        }
    }

    /// Evicts everything cached about a removed connection, above all its decrypted credentials. Returns the accounts
    /// that were cached.
    pub fn evict(&self, user_id: UserId, connection_id: ConnectionId) -> Vec<AccountId> {
        self.inner.page_maps.remove_where(|list| list.connection_id == connection_id);
        self.inner.trade_maps.remove_where(|list| list.connection_id == connection_id);
        self.inner.connection_contexts.remove(user_id, connection_id)
    }

    /// The call context of a user's request that starts now. `calls_per_minute` is the user's budget at each provider;
    /// 0 means no limit.
    #[must_use]
    pub fn call_context(&self, user_id: UserId, calls_per_minute: u32) -> CallContext {
        CallContext::new(Instant::now() + self.inner.limits.deadline, self.inner.clock.now())
            .for_request_of(user_id, calls_per_minute)
    }
}
