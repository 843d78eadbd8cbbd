//! Live reads: balances, transactions, holdings and trades, read from the provider on each request.
//!
//! A read checks that the connection belongs to the caller, queries the provider, and returns the
//! requested window of rows. No row is stored.

pub mod balances;
mod connection_context;
mod cursor_cache;
pub mod error;
pub mod filter;
pub mod holdings;
pub mod merged;
pub mod range;
mod row_index;
mod select;
pub mod summary;
#[cfg(test)]
mod test_support;
pub mod trades;
pub mod transactions;
pub mod window;

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::Clock;
use bellbird_domain::{AccountId, ConnectionId, UserId};
use bellbird_limits::SharedStore;
use bellbird_providers::Registry;
use bellbird_storage::Storage;
use tokio::time::Instant;

pub use bellbird_providers::pages::{RowKind, Trades, Transactions};
pub use bellbird_providers::{CallContext, Cause};
pub use connection_context::ConnectionContext;
use connection_context::{ConnectionContexts, new_contexts};
use cursor_cache::CursorCache;
pub use cursor_cache::{QueryKey, WindowKey};
pub use error::ReadError;
pub use filter::TransactionFilter;
pub use merged::Merged;
pub use range::{Attempts, NewCall, Range};
pub use select::{
    FoundConnection, SelectError, Selected, SelectedAccounts, Selection, UnreadableConnection,
};
pub use summary::{Group, GroupBy, GroupTotals, Summary};
use trades::TradeCursorIndex;
use transactions::CursorIndex;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum duration of one request.
    pub deadline: Duration,
    /// Maximum number of rows that one request reads or counts, from its offset on.
    pub row_cap: u64,
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
    transaction_cursors: CursorCache<CursorIndex>,
    trade_cursors: CursorCache<TradeCursorIndex>,
}

impl Reads {
    /// Instances that share a `store` continue each other's windows.
    pub fn new(
        storage: Storage,
        providers: Registry,
        clock: Clock,
        limits: Limits,
        store: Option<&SharedStore>,
    ) -> Self {
        let transaction_cursors = CursorCache::new(store, "transaction-cursors");
        let trade_cursors = CursorCache::new(store, "trade-cursors");
        Self {
            inner: Arc::new(Inner {
                storage,
                providers,
                clock,
                limits,
                connection_contexts: new_contexts(),
                transaction_cursors,
                trade_cursors,
            }),
        }
    }

    /// Evicts everything cached about a removed connection, above all its decrypted credentials.
    /// Returns the accounts that were cached.
    pub fn evict(&self, user_id: UserId, connection_id: ConnectionId) -> Vec<AccountId> {
        self.inner
            .transaction_cursors
            .remove_connection(connection_id);
        self.inner.trade_cursors.remove_connection(connection_id);
        let (contexts, key) = (&self.inner.connection_contexts, (user_id, connection_id));
        let context = contexts.get(&key, self.inner.clock.now());
        contexts.remove(&key);
        context
            .iter()
            .flat_map(|(context, _)| &context.accounts)
            .map(|account| account.id)
            .collect()
    }

    /// Frees the memory of everything cached that has expired.
    pub fn purge_expired(&self) {
        self.inner.transaction_cursors.purge_expired();
        self.inner.trade_cursors.purge_expired();
        self.inner.connection_contexts.purge_expired();
    }

    pub fn cursor_index_bytes(&self) -> u64 {
        self.inner.transaction_cursors.bytes()
    }

    pub fn call_context(&self, cause: Cause) -> CallContext {
        CallContext::new(
            Instant::now() + self.inner.limits.deadline,
            self.inner.clock.now(),
            cause,
        )
    }
}
