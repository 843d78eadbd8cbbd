//! What is kept in memory between the requests of a client that reads window after window.

use std::time::Duration;

use bellbird_domain::{Account, AccountId, Caller, ConnectionId};
use bellbird_limits::Expiring;
use jiff::Timestamp;

use super::history::Known;
use super::view::BalanceView;

/// Providers may load older rows later.
const HISTORY_TTL: Duration = Duration::from_secs(30 * 60);
/// How long a balance is sent again with windows that are known to have no rows.
const BALANCE_TTL: Duration = Duration::from_secs(60);
const ACCOUNTS_MAX: u64 = 10_000;

/// An account at the user's revision, since the timezone decides the days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    connection_id: ConnectionId,
    account_id: AccountId,
    revision: i64,
}

impl Key {
    pub(super) fn new(account: &Account, caller: &Caller) -> Self {
        Self { connection_id: account.connection_id, account_id: account.id, revision: caller.revision }
    }
}

pub(crate) struct Memory {
    histories: Expiring<Key, Known>,
    balances: Expiring<Key, BalanceView>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            histories: Expiring::with_lru(HISTORY_TTL, ACCOUNTS_MAX, |_, _| 1),
            balances: Expiring::with_lru(BALANCE_TTL, ACCOUNTS_MAX, |_, _| 1),
        }
    }

    pub(super) fn history(&self, key: Key, now: Timestamp) -> Known {
        self.histories.get(&key, now).map(|(known, _)| known).unwrap_or_default()
    }

    pub(super) fn set_history(&self, key: Key, known: Known, now: Timestamp) {
        self.histories.insert(key, known, now);
    }

    pub(super) fn balance(&self, key: Key, now: Timestamp) -> Option<BalanceView> {
        self.balances.get(&key, now).map(|(balance, _)| balance)
    }

    pub(super) fn set_balance(&self, key: Key, balance: BalanceView, now: Timestamp) {
        self.balances.insert(key, balance, now);
    }

    pub(crate) fn purge_expired(&self) {
        self.histories.purge_expired();
        self.balances.purge_expired();
    }

    pub(crate) fn evict_connection(&self, connection_id: ConnectionId) {
        self.histories.remove_where(|key| key.connection_id == connection_id);
        self.balances.remove_where(|key| key.connection_id == connection_id);
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn removed_connection_is_evicted() {
        let (memory, now) = (Memory::new(), Timestamp::UNIX_EPOCH);
        let key = |connection: u128| Key {
            connection_id: Uuid::from_u128(connection).into(),
            account_id: Uuid::from_u128(connection + 10).into(),
            revision: 1,
        };
        let known = Known::default().learn(date(2026, 1, 1), None);
        let balance =
            BalanceView { balance: "1.00".to_owned(), available: None, currency: "AUD".to_owned(), read_at: now };
        for connection in [1, 2] {
            memory.set_history(key(connection), known, now);
            memory.set_balance(key(connection), balance.clone(), now);
        }
        memory.evict_connection(key(1).connection_id);
        let kept = |connection| {
            (memory.history(key(connection), now) == known, memory.balance(key(connection), now).is_some())
        };
        assert_eq!((kept(1), kept(2)), ((false, false), (true, true)));
    }
}
