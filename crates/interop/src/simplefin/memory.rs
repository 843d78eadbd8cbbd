//! What is remembered between the requests of a client that reads window after window, so that
//! windows before the first row of an account call no provider.

use std::time::Duration;

use bellbird_domain::{Account, AccountId, Caller, ConnectionId};
use bellbird_limits::Expiring;
use jiff::civil::Date;

use super::view::SetBalance;

/// Providers may load older rows later.
const HISTORY_TTL: Duration = Duration::from_secs(30 * 60);
/// How long a balance is sent again with windows that are known to have no rows.
const BALANCE_TTL: Duration = Duration::from_secs(60);
const REMEMBERED_MAX: u64 = 10_000;

/// An account at the user's revision, since the timezone decides the days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    connection_id: ConnectionId,
    account_id: AccountId,
    revision: i64,
}

impl Key {
    pub(super) fn new(account: &Account, caller: &Caller) -> Self {
        Self {
            connection_id: account.connection_id,
            account_id: account.id,
            revision: caller.revision,
        }
    }
}

/// How far back the rows of an account were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownHistory {
    /// Earlier days were not read, or have no rows.
    pub(super) oldest: Date,
    /// Earlier days have no rows. An account with very many rows takes several reads until this is
    /// known.
    pub(super) is_all: bool,
}

impl KnownHistory {
    pub(super) fn has_none_until(&self, day: Date) -> bool {
        self.is_all && day < self.oldest
    }
}

pub(crate) struct Memory {
    pub(super) histories: Expiring<Key, KnownHistory>,
    pub(super) balances: Expiring<Key, SetBalance>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            histories: Expiring::new(HISTORY_TTL, REMEMBERED_MAX, |_, _| 1),
            balances: Expiring::new(BALANCE_TTL, REMEMBERED_MAX, |_, _| 1),
        }
    }

    pub(crate) fn purge_expired(&self) {
        self.histories.purge_expired();
        self.balances.purge_expired();
    }

    pub(crate) fn evict_connection(&self, connection_id: ConnectionId) {
        self.histories
            .remove_where(|key| key.connection_id == connection_id);
        self.balances
            .remove_where(|key| key.connection_id == connection_id);
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::Currency;
    use jiff::Timestamp;
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
        let history = KnownHistory {
            oldest: date(2026, 1, 1),
            is_all: true,
        };
        let balance = SetBalance {
            balance: "1.00".to_owned(),
            available: None,
            currency: Currency::UNKNOWN,
            read_at: now,
        };
        for connection in [1, 2] {
            memory.histories.insert(key(connection), history, now);
            memory
                .balances
                .insert(key(connection), balance.clone(), now);
        }
        memory.evict_connection(key(1).connection_id);
        let is_kept = |connection| {
            let key = key(connection);
            (
                memory.histories.get(&key, now).is_some(),
                memory.balances.get(&key, now).is_some(),
            )
        };
        assert_eq!((is_kept(1), is_kept(2)), ((false, false), (true, true)));
    }

    #[test]
    fn days_before_the_first_row_are_empty_once_all_was_read() {
        let oldest = date(2026, 1, 1);
        let (all, part) = (
            KnownHistory {
                oldest,
                is_all: true,
            },
            KnownHistory {
                oldest,
                is_all: false,
            },
        );
        assert!(all.has_none_until(date(2025, 12, 31)) && !all.has_none_until(oldest));
        assert!(!part.has_none_until(date(2025, 12, 31)));
    }
}
