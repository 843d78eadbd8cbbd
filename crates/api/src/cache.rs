//! Keys and values of the response caches and of the single flights, which share one provider read between equal
//! requests.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use bellbird_domain::{Account, AccountId, Caller, ConnectionId, KeyId};
use bellbird_reads::{ConnectionContext, TradesKey};
use bytes::Bytes;
use jiff::tz::TimeZone;
use uuid::Uuid;

use crate::problem::Problem;

/// The body of a finished live read.
#[derive(Clone)]
pub(crate) struct LiveAnswer {
    /// JSON.
    pub(crate) body: Bytes,
    /// Whether counting stopped before the end of the provider's list.
    pub(crate) truncated: bool,
    /// Whether every account was read. An incomplete answer is never cached.
    pub(crate) complete: bool,
}

/// The result of a live read, and the number of provider calls it took.
pub(crate) type LiveOutcome<T = LiveAnswer> = (Result<T, Problem>, u32);

/// The outcome of a live read for all requests that share it, and the id of the request that started it.
pub(crate) type SharedOutcome<T = LiveAnswer> = (LiveOutcome<T>, Uuid);

/// A set of accounts requested with one API key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BalancesKey {
    pub(crate) key_id: KeyId,
    /// Sorted and unique.
    pub(crate) account_ids: Arc<[AccountId]>,
}

#[derive(Clone)]
pub(crate) struct CachedBalances {
    pub(crate) body: Bytes,
    /// The user's revision at which the accounts were last verified to belong to the user.
    pub(crate) revision: Arc<AtomicI64>,
}

/// Approximate memory of a cache entry.
pub(crate) fn holdings_bytes(_: &HoldingsKey, accounts: &Arc<[(AccountId, Bytes)]>) -> usize {
    accounts.iter().map(|(_, rows)| rows.len() + 100).sum::<usize>() + 100
}

/// The holdings of one connection, as read with one API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct HoldingsKey {
    pub(crate) key_id: KeyId,
    pub(crate) connection_id: ConnectionId,
}

/// The holdings of each account as JSON objects separated by commas, or the reason for which the read failed.
pub(crate) type AccountHoldings = Arc<[(AccountId, Result<Bytes, Problem>)]>;

/// A finished answer, and the timezone and accounts for which it is valid. Dates in the answer depend on the timezone.
#[derive(Clone)]
pub(crate) struct CachedTrades {
    pub(crate) answer: LiveAnswer,
    zone: TimeZone,
    accounts: Arc<[AccountId]>,
}

impl CachedTrades {
    pub(crate) fn new(caller: &Caller, context: &ConnectionContext, list: &TradesKey) -> Result<Self, Problem> {
        let accounts = context.accounts_of(list.account_id).map_err(|_| Problem::NotFound("Account"))?;
        Ok(Self {
            answer: LiveAnswer { body: Bytes::new(), truncated: false, complete: false },
            zone: caller.timezone.clone(),
            accounts: accounts.iter().map(|account| account.id).collect(),
        })
    }

    pub(crate) fn is_valid_for(&self, caller: &Caller, context: &ConnectionContext, list: &TradesKey) -> bool {
        let same_accounts =
            |accounts: &[Account]| accounts.iter().map(|account| account.id).eq(self.accounts.iter().copied());
        self.zone == caller.timezone && context.accounts_of(list.account_id).is_ok_and(same_accounts)
    }

    pub(crate) fn with_answer(self, answer: LiveAnswer) -> Self {
        Self { answer, ..self }
    }
}
