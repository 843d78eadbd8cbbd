//! Keys and values of the response caches and of the single flights, which share one provider read between equal
//! requests.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use bellbird_domain::{Account, AccountId, Caller, ConnectionId, KeyId, Page};
use bellbird_reads::{ConnectionContext, QueryKey};
use bytes::Bytes;
use jiff::tz::TimeZone;

use crate::front::Problem;
use crate::v1::live::LiveBody;

/// The rows of a list that a client sees at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WindowKey {
    pub(crate) list: QueryKey,
    pub(crate) page: Page,
}

/// The key of a single flight. After a change of the user's data, a request joins no read that began before it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AtRevision<K> {
    pub(crate) key: K,
    pub(crate) revision: i64,
}

/// A set of accounts requested with one API key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BalancesKey {
    pub(crate) key_id: KeyId,
    /// Sorted and unique.
    pub(crate) account_ids: Arc<[AccountId]>,
}

#[derive(Clone)]
pub(crate) struct CachedBalances {
    pub(crate) body: LiveBody,
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

/// A finished response, and the timezone and accounts for which it is valid. Its dates depend on the timezone.
#[derive(Clone)]
pub(crate) struct CachedTrades {
    pub(crate) body: LiveBody,
    pub(crate) zone: TimeZone,
    pub(crate) accounts: Arc<[AccountId]>,
}

impl CachedTrades {
    pub(crate) fn new(caller: &Caller, context: &ConnectionContext, list: &QueryKey) -> Result<Self, Problem> {
        let accounts = context.accounts_of(list.account_id).map_err(|_| Problem::NotFound("Account"))?;
        Ok(Self {
            body: LiveBody::default(),
            zone: caller.timezone.clone(),
            accounts: accounts.iter().map(|account| account.id).collect(),
        })
    }

    pub(crate) fn is_valid_for(&self, caller: &Caller, context: &ConnectionContext, list: &QueryKey) -> bool {
        let same_accounts =
            |accounts: &[Account]| accounts.iter().map(|account| account.id).eq(self.accounts.iter().copied());
        self.zone == caller.timezone && context.accounts_of(list.account_id).is_ok_and(same_accounts)
    }
}
