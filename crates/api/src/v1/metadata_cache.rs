//! The lists that are read from the database, cached until the user's revision changes.

use std::time::Duration;

use bellbird_domain::{Caller, Page, UserId};
use bellbird_limits::Expiring;
use bytes::Bytes;
use jiff::Timestamp;

/// The revision decides whether a response is valid, but for `lastRefreshedAt`, which raises none.
const METADATA_TTL: Duration = Duration::from_secs(60);
const METADATA_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// A larger response is not cached, so that one user cannot evict those of all others.
const LIST_BYTES_MAX: usize = 256 * 1024;
/// Pages of accounts kept for each user. Further pages replace these.
const ACCOUNT_PAGES_MAX: u64 = 8;

/// A list that is read from the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataList {
    Connections,
    Accounts(Page),
}

/// The number of a list among those of its user.
type Slot = u64;

#[derive(Clone)]
struct CachedList {
    revision: i64,
    list: MetadataList,
    body: Bytes,
}

/// The connections and the last pages of accounts of each user as JSON. A response is valid for one
/// revision of the user. A user has a fixed number of slots, so one who reads many pages replaces
/// their own.
pub(crate) struct MetadataCache {
    lists: Expiring<(UserId, Slot), CachedList>,
}

impl MetadataCache {
    pub(crate) fn new() -> Self {
        let bytes_of = |_: &(UserId, Slot), cached: &CachedList| cached.body.len() + 200;
        Self {
            lists: Expiring::new(METADATA_TTL, METADATA_BYTES_MAX, bytes_of),
        }
    }

    pub(crate) fn get(&self, caller: &Caller, list: MetadataList, now: Timestamp) -> Option<Bytes> {
        let (cached, _) = self.lists.get(&(caller.user_id, list.slot()), now)?;
        (cached.revision == caller.revision && cached.list == list).then_some(cached.body)
    }

    /// `body` was read after the revision of `caller`, so it can be newer. Later callers then have
    /// a higher revision and ignore it.
    pub(crate) fn insert(&self, caller: &Caller, list: MetadataList, body: Bytes, now: Timestamp) {
        if body.len() <= LIST_BYTES_MAX {
            let cached = CachedList {
                revision: caller.revision,
                list,
                body,
            };
            self.lists
                .insert((caller.user_id, list.slot()), cached, now);
        }
    }

    pub(crate) fn purge_expired(&self) {
        self.lists.purge_expired();
    }

    pub(crate) fn evict(&self, user_id: UserId) {
        for slot in 0..=ACCOUNT_PAGES_MAX {
            self.lists.remove(&(user_id, slot));
        }
    }
}

impl MetadataList {
    /// Consecutive pages have different slots.
    fn slot(self) -> Slot {
        match self {
            Self::Connections => 0,
            Self::Accounts(page) => {
                1 + page.offset / u64::from(page.limit.max(1)) % ACCOUNT_PAGES_MAX
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::{KeyId, Plan};
    use jiff::tz::TimeZone;

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
    fn response_is_valid_for_its_user_revision_and_list() {
        let cache = MetadataCache::new();
        let olivia = caller(7);
        cache.insert(&olivia, page(50, 0), Bytes::from_static(b"accounts"), NOW);
        cache.insert(
            &olivia,
            MetadataList::Connections,
            Bytes::from_static(b"connections"),
            NOW,
        );
        assert_eq!(cache.get(&olivia, page(50, 0), NOW).unwrap(), "accounts");
        assert_eq!(
            cache.get(&olivia, MetadataList::Connections, NOW).unwrap(),
            "connections"
        );
        for other in [page(51, 0), page(50, 1), page(50, 50)] {
            assert_eq!(cache.get(&olivia, other, NOW), None, "{other:?}");
        }
        assert_eq!(
            cache.get(&caller(7), page(50, 0), NOW),
            None,
            "another user"
        );
        for revision in [6, 8] {
            assert_eq!(
                cache.get(
                    &Caller {
                        revision,
                        ..olivia.clone()
                    },
                    page(50, 0),
                    NOW
                ),
                None
            );
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
        let kept: Vec<&MetadataList> = pages
            .iter()
            .filter(|page| cache.get(&olivia, **page, NOW).is_some())
            .collect();
        assert_eq!(kept, pages[992..].iter().collect::<Vec<_>>());
        let large = Bytes::from(vec![0; LIST_BYTES_MAX + 1]);
        cache.insert(&olivia, MetadataList::Connections, large, NOW);
        assert_eq!(cache.get(&olivia, MetadataList::Connections, NOW), None);
    }
}
