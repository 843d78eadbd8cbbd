//! Answers a question about live data: whose account it is, what the provider says, and which window of it was asked
//! for. Rows pass through; nothing here keeps one.

pub mod balances;
pub mod error;
pub mod holdings;
pub mod page_map;
mod scope;
pub mod trades;
pub mod transactions;
pub mod window;

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{AccountId, ConnectionId, KeyId, UserId};
use bellbird_providers::{Call, Registry};
use bellbird_shared_state::{Clock, Expiring};
use bellbird_storage::Storage;
use parking_lot::Mutex;
use tokio::time::Instant;

pub use error::ReadError;
use page_map::PageMap;
pub use scope::Scope;
use scope::Scopes;
pub use trades::TradesKey;
use trades::TradesMap;

/// How long a page map is kept after it was last used.
const PAGE_MAP_LIFE: Duration = Duration::from_secs(600);
/// All page maps together, in bytes.
const PAGE_MAPS_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The bounds of a read.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest that one request may take.
    pub deadline: Duration,
    /// Rows that one request looks at, from its offset on.
    pub row_cap: u64,
}

/// The list that a page map is of: whose key, which rows, as asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListKey {
    /// The key that asks.
    pub key_id: KeyId,
    /// The connection.
    pub connection_id: ConnectionId,
    /// One account, or all.
    pub account_id: Option<AccountId>,
    /// As given.
    pub from: Option<String>,
    /// As given.
    pub to: Option<String>,
}

impl ListKey {
    fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        size_of::<Self>() + text(&self.from) + text(&self.to)
    }
}

/// Reads live data.
#[derive(Clone)]
pub struct Reads {
    inner: Arc<Inner>,
}

struct Inner {
    storage: Storage,
    providers: Registry,
    clock: Clock,
    limits: Limits,
    scopes: Scopes,
    page_maps: Expiring<ListKey, Arc<Mutex<PageMap>>>,
    trade_maps: Expiring<TradesKey, Arc<Mutex<TradesMap>>>,
}

impl Reads {
    /// A reader over these.
    #[must_use]
    pub fn new(storage: Storage, providers: Registry, clock: Clock, limits: Limits) -> Self {
        // Weighed anew with every window that uses it.
        let bytes_of = |list: &ListKey, map: &Arc<Mutex<PageMap>>| list.bytes() + map.lock().bytes();
        let page_maps = Expiring::new(PAGE_MAP_LIFE, PAGE_MAPS_BYTES_MAX, bytes_of);
        let bytes_of = |_: &TradesKey, map: &Arc<Mutex<TradesMap>>| size_of::<TradesKey>() + map.lock().bytes();
        let trade_maps = Expiring::new(PAGE_MAP_LIFE, PAGE_MAPS_BYTES_MAX, bytes_of);
        let scopes = Scopes::default();
        Self { inner: Arc::new(Inner { storage, providers, clock, limits, scopes, page_maps, trade_maps }) }
    }

    /// Forgets what is remembered of a connection that has ended, its opened grant first of all. Returns its accounts, as
    /// far as they were known here.
    pub fn forget(&self, user_id: UserId, connection_id: ConnectionId) -> Vec<AccountId> {
        self.inner.page_maps.remove_where(|list| list.connection_id == connection_id);
        self.inner.trade_maps.remove_where(|list| list.connection_id == connection_id);
        self.inner.scopes.take_out(user_id, connection_id)
    }

    /// The budget of a request that starts now.
    #[must_use]
    pub fn call(&self) -> Call {
        Call::new(Instant::now() + self.inner.limits.deadline, self.inner.clock.now())
    }
}
