//! Keys and values of the response caches.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use bellbird_domain::{AccountId, ConnectionId, KeyId};
use bytes::Bytes;
use jiff::tz::TimeZone;

use crate::front::Problem;
use crate::v1::live::LiveBody;

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
    pub(crate) account_ids: Vec<AccountId>,
}
