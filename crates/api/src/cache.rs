//! Keys and values of the response caches and of the single flights, which share one provider read between equal
//! requests.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use bellbird_domain::{Account, AccountId, Caller, ConnectionId, KeyId, Page, UserId};
use bellbird_limits::Expiring;
use bellbird_reads::{ConnectionContext, QueryKey};
use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use uuid::Uuid;

use crate::front::problem::Problem;

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
    pub(crate) fn new(caller: &Caller, context: &ConnectionContext, list: &QueryKey) -> Result<Self, Problem> {
        let accounts = context.accounts_of(list.account_id).map_err(|_| Problem::NotFound("Account"))?;
        Ok(Self {
            answer: LiveAnswer { body: Bytes::new(), truncated: false, complete: false },
            zone: caller.timezone.clone(),
            accounts: accounts.iter().map(|account| account.id).collect(),
        })
    }

    pub(crate) fn is_valid_for(&self, caller: &Caller, context: &ConnectionContext, list: &QueryKey) -> bool {
        let same_accounts =
            |accounts: &[Account]| accounts.iter().map(|account| account.id).eq(self.accounts.iter().copied());
        self.zone == caller.timezone && context.accounts_of(list.account_id).is_ok_and(same_accounts)
    }

    pub(crate) fn with_answer(self, answer: LiveAnswer) -> Self {
        Self { answer, ..self }
    }
}

/// The revision decides whether an answer is valid, so this only limits how long an unused one is kept.
const METADATA_TTL: Duration = Duration::from_secs(600);
const METADATA_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// A larger answer is not cached, so that one user cannot evict the answers of all others.
const METADATA_ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Pages of accounts kept for each user. Further pages replace these.
const ACCOUNT_PAGES_MAX: u64 = 8;

/// A list that is read from the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataList {
    Connections,
    Accounts(Page),
}

/// The number of an answer among those of its user.
type Slot = u64;

#[derive(Clone)]
struct MetadataAnswer {
    revision: i64,
    list: MetadataList,
    body: Bytes,
}

/// The connections and the last pages of accounts of each user as JSON. An answer is valid for one revision of the
/// user. A user has a fixed number of slots, so one who reads many pages replaces their own.
pub(crate) struct MetadataCache {
    answers: Expiring<(UserId, Slot), MetadataAnswer>,
}

impl MetadataCache {
    pub(crate) fn new() -> Self {
        let bytes_of = |_: &(UserId, Slot), answer: &MetadataAnswer| answer.body.len() + 200;
        Self { answers: Expiring::new(METADATA_TTL, METADATA_BYTES_MAX, bytes_of) }
    }

    pub(crate) fn get(&self, caller: &Caller, list: MetadataList, now: Timestamp) -> Option<Bytes> {
        let (answer, _) = self.answers.get(&(caller.user_id, list.slot()), now)?;
        (answer.revision == caller.revision && answer.list == list).then_some(answer.body)
    }

    /// `body` was read after the revision of `caller`, so it can be newer. Later callers then have a higher revision
    /// and ignore it.
    pub(crate) fn insert(&self, caller: &Caller, list: MetadataList, body: Bytes, now: Timestamp) {
        if body.len() <= METADATA_ANSWER_BYTES_MAX {
            let answer = MetadataAnswer { revision: caller.revision, list, body };
            self.answers.insert((caller.user_id, list.slot()), answer, now);
        }
    }

    pub(crate) fn purge_expired(&self) {
        self.answers.purge_expired();
    }

    pub(crate) fn evict(&self, user_id: UserId) {
        for slot in 0..=ACCOUNT_PAGES_MAX {
            self.answers.remove(&(user_id, slot));
        }
    }
}

impl MetadataList {
    /// Consecutive pages have different slots.
    fn slot(self) -> Slot {
        match self {
            Self::Connections => 0,
            Self::Accounts(page) => 1 + page.offset / u64::from(page.limit.max(1)) % ACCOUNT_PAGES_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::Plan;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn caller(revision: i64) -> Caller {
        Caller {
            key_id: KeyId::new(),
            user_id: UserId::new(),
            plan: Plan::Developer,
            timezone: TimeZone::UTC,
            revision,
        }
    }

    fn page(limit: u32, offset: u64) -> MetadataList {
        MetadataList::Accounts(Page { limit, offset })
    }

    #[test]
    fn answer_is_valid_for_its_user_revision_and_list() {
        let cache = MetadataCache::new();
        let olivia = caller(7);
        cache.insert(&olivia, page(50, 0), Bytes::from_static(b"accounts"), NOW);
        cache.insert(&olivia, MetadataList::Connections, Bytes::from_static(b"connections"), NOW);
        assert_eq!(cache.get(&olivia, page(50, 0), NOW).unwrap(), "accounts");
        assert_eq!(cache.get(&olivia, MetadataList::Connections, NOW).unwrap(), "connections");
        for other in [page(51, 0), page(50, 1), page(50, 50)] {
            assert_eq!(cache.get(&olivia, other, NOW), None, "{other:?}");
        }
        assert_eq!(cache.get(&caller(7), page(50, 0), NOW), None, "another user");
        for revision in [6, 8] {
            assert_eq!(cache.get(&Caller { revision, ..olivia.clone() }, page(50, 0), NOW), None);
        }
        cache.evict(olivia.user_id);
        assert_eq!(cache.get(&olivia, page(50, 0), NOW), None);
    }

    #[test]
    fn user_with_many_pages_keeps_a_few() {
        let cache = MetadataCache::new();
        let olivia = caller(1);
        let pages: Vec<MetadataList> = (0..1_000).map(|number| page(50, number * 50)).collect();
        for page in &pages {
            cache.insert(&olivia, *page, Bytes::from_static(b"[]"), NOW);
        }
        let kept: Vec<&MetadataList> = pages.iter().filter(|page| cache.get(&olivia, **page, NOW).is_some()).collect();
        assert_eq!(kept, pages[992..].iter().collect::<Vec<_>>());
        let large = Bytes::from(vec![0; METADATA_ANSWER_BYTES_MAX + 1]);
        cache.insert(&olivia, MetadataList::Connections, large, NOW);
        assert_eq!(cache.get(&olivia, MetadataList::Connections, NOW), None);
    }
}
