//! What a client gets that follows the changes of a connection: pure, but for
//! [`Syncs::freshen`].
//!
//! Fingerprints say which rows changed after the client's mark. The caller reads these rows from
//! the provider again, and asks for each row that comes in what it is to the client
//! ([`Followed::take`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{
    AccountTag, ConnectionId, ConnectionStatus, Digest, Fingerprint, Fingerprints, RowDigests,
    RowKey, TimestampExt as _, UserId, UtcDay,
};
use bellbird_providers::Cause;
use bellbird_storage::{ClaimedJob, JobKey, SyncState};
use bellbird_webhooks::event::digest::RowHasher;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::changes::DuplicateIds;
use super::{KIND, SyncReport, Syncs, WAIT_MAX};
use crate::ConnectionsError;
use crate::jobs::claim_or_wait;

/// Rows with one id that are compared with each row that is read. More of them mean that the
/// provider is faulty.
pub(super) const EQUAL_IDS_MAX: usize = 100;

/// Syncs at the same time that requests of one user start. Others of theirs wait.
const SYNCS_OF_USER_MAX: usize = 2;

/// How often it is stored that clients follow a connection.
const POLLS_STORED_EVERY: Duration = Duration::from_secs(86_400);

/// A row that the client is to get: now, or after a later sync, if the provider did not list it as
/// the last one saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingRow {
    pub key: RowKey,
    /// Whether the client never got the row, as far as its cursor tells.
    pub is_new: bool,
}

/// What the client has so far.
#[derive(Debug, Clone, Copy)]
pub enum ChangesSince<'a> {
    /// Nothing. It gets all rows, also those of days that are not watched, of which there are no
    /// fingerprints.
    Nothing,
    /// All changes up to a mark, but for pending rows.
    Mark {
        mark: u32,
        pending: &'a [PendingRow],
    },
}

/// The rows that a client is to get.
pub struct Followed<'a> {
    hasher: &'a RowHasher,
    duplicate_ids: DuplicateIds,
    watched_from: UtcDay,
    since: ChangesSince<'a>,
    /// By row digest. After [`ChangesSince::Mark`] only rows with a change.
    groups: HashMap<Digest, Group>,
    /// The rows of `groups` that the client is to get, and how many of them were read.
    wanted: HashMap<RowKey, Fingerprint>,
    wanted_read: usize,
    /// Those of `wanted` that a page has.
    delivered: HashSet<RowKey>,
    /// Rows that the client is to get once the provider lists them again.
    absent: Vec<Fingerprint>,
    gone: BTreeMap<RowKey, AccountTag>,
}

/// Which rows of a day were delivered: their number and the sum of their keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredDaySum {
    rows: u32,
    keys: u64,
}

impl DeliveredDaySum {
    fn insert(&mut self, key: RowKey) {
        self.rows = self.rows.wrapping_add(1);
        self.keys = self.keys.wrapping_add(u64::from_be_bytes(key.0));
    }
}

/// The rows with one id.
#[derive(Default)]
struct Group {
    /// Those that were not read yet.
    known: Vec<Fingerprint>,
    /// The occurrence of the next one without a fingerprint.
    next_occurrence: u32,
    /// Whether one was read.
    is_read: bool,
}

/// What a request that needs a recent sync may do.
enum Turn {
    /// Nothing: there is one.
    Fresh,
    /// Sync, in these places.
    Sync(ClaimedJob, Option<[OwnedSemaphorePermit; 2]>),
}

impl<'a> Followed<'a> {
    /// `account` leaves out the rows of others. The days of the fingerprints are visible.
    pub fn new(
        hasher: &'a RowHasher,
        fingerprints: &Fingerprints,
        duplicate_ids: DuplicateIds,
        watched_from: UtcDay,
        since: ChangesSince<'a>,
        account: Option<AccountTag>,
    ) -> Self {
        let mut followed = Self {
            hasher,
            duplicate_ids,
            watched_from,
            since,
            groups: HashMap::new(),
            wanted: HashMap::new(),
            wanted_read: 0,
            delivered: HashSet::new(),
            absent: Vec::new(),
            gone: BTreeMap::new(),
        };
        let is_of_account =
            |row: &&Fingerprint| account.is_none_or(|account| row.digests.account == account);
        for rows in fingerprints
            .rows
            .chunk_by(|one, other| one.digests.row == other.digests.row)
        {
            let mut is_needed = matches!(since, ChangesSince::Nothing);
            for row in rows.iter().filter(is_of_account) {
                if row.is_gone {
                    if matches!(since, ChangesSince::Mark { mark, .. } if row.changed_version > mark)
                    {
                        followed.gone.insert(row.key, row.digests.account);
                    }
                } else if followed.has_changed(row) && row.misses > 0 {
                    followed.absent.push(*row);
                } else if followed.has_changed(row) {
                    is_needed = true;
                    followed.wanted.insert(row.key, *row);
                }
            }
            if is_needed {
                let next_occurrence = rows.last().map_or(0, |last| last.occurrence + 1);
                let group = Group {
                    known: rows.to_vec(),
                    next_occurrence,
                    is_read: false,
                };
                followed.groups.insert(rows[0].digests.row, group);
            }
        }
        followed
    }

    fn has_changed(&self, row: &Fingerprint) -> bool {
        match self.since {
            ChangesSince::Nothing => true,
            ChangesSince::Mark { mark, pending } => {
                row.changed_version > mark || pending.iter().any(|one| one.key == row.key)
            }
        }
    }

    /// The rows that are gone, by key.
    pub fn gone(&self) -> &BTreeMap<RowKey, AccountTag> {
        &self.gone
    }

    /// Whether all rows were read that the client is to get. Never known of a first copy.
    pub fn is_found(&self) -> bool {
        self.wanted_read == self.wanted.len() && matches!(self.since, ChangesSince::Mark { .. })
    }

    /// The days of the rows that the client is to get. `None` if there are none.
    pub fn days(&self) -> Option<RangeInclusive<UtcDay>> {
        let days = || self.wanted.values().map(|row| row.digests.day);
        Some(days().min()?..=days().max()?)
    }

    /// The account of the rows that the client is to get, if it is one.
    pub fn account(&self) -> Option<AccountTag> {
        let mut accounts = self.wanted.values().map(|row| row.digests.account);
        let first = accounts.next()?;
        accounts.all(|account| account == first).then_some(first)
    }

    /// A row of the provider's list. `None` if the client is not to get the row, or it was read
    /// before. What a page really has must be reported with
    /// [`Self::deliver`].
    pub fn take(&mut self, row: &RowDigests) -> Option<PendingRow> {
        let group = self.groups.entry(row.row).or_default();
        if std::mem::replace(&mut group.is_read, true)
            && self.duplicate_ids == DuplicateIds::SameRow
        {
            return None;
        }
        let rank = |(_, known): &(usize, &Fingerprint)| {
            let has_other_content = known.digests.content != row.content;
            let is_unwanted = !self.wanted.contains_key(&known.key);
            (
                has_other_content,
                known.is_gone,
                known.misses,
                is_unwanted,
                known.occurrence,
            )
        };
        if let Some((at, known)) = group
            .known
            .iter()
            .take(EQUAL_IDS_MAX)
            .enumerate()
            .min_by_key(rank)
        {
            // The row has changed after the last sync. If the client got it now, and it changed
            // back before the next sync, no sync would see a change.
            if known.digests.content != row.content && row.day >= self.watched_from {
                return None;
            }
            let known = group.known.swap_remove(at);
            return self.wanted(&known);
        }
        let occurrence = group.next_occurrence;
        group.next_occurrence += 1;
        self.unknown(row, occurrence)
    }

    fn wanted(&mut self, row: &Fingerprint) -> Option<PendingRow> {
        let is_wanted = self.wanted.contains_key(&row.key);
        self.wanted_read += usize::from(is_wanted);
        let is_whole_copy = matches!(self.since, ChangesSince::Nothing);
        (is_wanted || is_whole_copy).then(|| PendingRow {
            key: row.key,
            is_new: self.is_new(row),
        })
    }

    /// A page has the row with this key.
    pub fn deliver(&mut self, key: RowKey) {
        if self.wanted.contains_key(&key) {
            self.delivered.insert(key);
        }
    }

    fn is_new(&self, row: &Fingerprint) -> bool {
        match self.since {
            ChangesSince::Nothing => true,
            ChangesSince::Mark { mark, pending } => {
                row.first_version > mark
                    || pending.iter().any(|one| one.key == row.key && one.is_new)
            }
        }
    }

    /// A row without a fingerprint. On a watched day the next sync finds it, and then the client
    /// gets it. Rows of earlier days are delivered now or never.
    fn unknown(&self, row: &RowDigests, occurrence: u32) -> Option<PendingRow> {
        match self.since {
            ChangesSince::Nothing if row.day < self.watched_from => Some(PendingRow {
                key: self.hasher.key(row.row, occurrence, 0),
                is_new: true,
            }),
            _ => None,
        }
    }

    /// The rows of these days that are in no page, because the provider did not list them when the
    /// pages were read, and those that the last sync lacked.
    ///
    /// When one of the latter is back, it gets a new mark. So it is pending only in case a backup
    /// is restored meanwhile, which has forgotten that it was missing, and nothing else knows of
    /// the restore.
    ///
    /// On the last of these days, earlier pages have rows too. If those are not exactly the ones
    /// that this page lacks, all of these are delivered again.
    pub fn pending(
        &self,
        days: RangeInclusive<UtcDay>,
        delivered_before: DeliveredDaySum,
    ) -> (Vec<PendingRow>, Vec<PendingRow>) {
        let last_day = *days.end();
        let missing = self
            .wanted
            .values()
            .filter(|row| !self.delivered.contains(&row.key));
        let missing = missing.filter(|row| days.contains(&row.digests.day));
        let (boundary, mut missing): (Vec<&Fingerprint>, Vec<_>) =
            missing.partition(|row| row.digests.day == last_day);
        let mut lacking = DeliveredDaySum::default();
        boundary.iter().for_each(|row| lacking.insert(row.key));
        if lacking != delivered_before {
            missing.extend(boundary);
        }
        missing.sort_by_key(|row| row.key);
        let pending = |row: &Fingerprint| PendingRow {
            key: row.key,
            is_new: self.is_new(row),
        };
        let absent = self
            .absent
            .iter()
            .filter(|row| days.contains(&row.digests.day));
        (
            missing.into_iter().map(pending).collect(),
            absent.map(pending).collect(),
        )
    }

    /// Which rows of a day this page has.
    pub fn delivered_on(&self, day: UtcDay) -> DeliveredDaySum {
        let mut sum = DeliveredDaySum::default();
        let of_day = self.delivered.iter().filter(|key| {
            self.wanted
                .get(key)
                .is_some_and(|row| row.digests.day == day)
        });
        of_day.for_each(|key| sum.insert(*key));
        sum
    }
}

impl std::ops::Add for DeliveredDaySum {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            rows: self.rows.wrapping_add(other.rows),
            keys: self.keys.wrapping_add(other.keys),
        }
    }
}

impl Syncs<'_> {
    /// Syncs the connection if its last sync began longer ago than `age_max`, and a run at most. If
    /// another task is syncing it, waits for that sync, which may be recent enough.
    ///
    /// Fails with [`ConnectionsError::ConsentInactive`] if the consent is gone, and with
    /// [`ConnectionsError::Busy`] if the other task takes too long.
    pub async fn freshen(
        self,
        user: UserId,
        id: ConnectionId,
        age_max: Duration,
    ) -> Result<(), ConnectionsError> {
        let provider = self.0.connection(user, id).await?.provider;
        let asked_at = self.0.clock.now();
        let turn = claim_or_wait(Instant::now() + WAIT_MAX, || {
            self.find_turn((user, id), &provider, age_max, asked_at)
        });
        let (claim, _places) = match turn.await?.ok_or(ConnectionsError::Busy)? {
            Turn::Fresh => return Ok(()),
            Turn::Sync(claim, places) => (claim, places),
        };
        // A sync is many calls deep.
        let SyncReport { status, .. } =
            Box::pin(self.run_job(&claim, Cause::RequestedJob(user))).await?;
        if status == ConnectionStatus::Active {
            Ok(())
        } else {
            Err(ConnectionsError::ConsentInactive(status))
        }
    }

    /// None while another task syncs the connection.
    async fn find_turn(
        self,
        (user, id): (UserId, ConnectionId),
        provider: &str,
        age_max: Duration,
        asked_at: Timestamp,
    ) -> Result<Option<Turn>, ConnectionsError> {
        // A sync that takes longer than `age_max` is recent for those who waited for it.
        if self.was_fresh(&self.state(user, id).await?, age_max, asked_at) {
            return Ok(Some(Turn::Fresh));
        }
        let (key, jobs) = (JobKey::new(KIND.name, user, id), self.0.storage.jobs());
        // Whoever waits for another task leaves the places to those who read from the provider.
        if jobs.is_running(&key, self.0.clock.now()).await? {
            return Ok(None);
        }
        let places = self.places(user, provider).await;
        let (state, now) = (self.state(user, id).await?, self.0.clock.now());
        // Another task may have synced it meanwhile.
        if self.was_fresh(&state, age_max, asked_at) {
            return Ok(Some(Turn::Fresh));
        }
        // Before the job is claimed, because a run that is refused would plan the next one again.
        if let Some(refused) = self.0.provider(provider)?.refusal(user, now) {
            return Err(refused.into());
        }
        if state
            .last_changes_poll_at
            .is_none_or(|at| at <= now.minus(POLLS_STORED_EVERY))
        {
            self.0
                .storage
                .syncs()
                .set_last_changes_poll(user, id, now)
                .await?;
        }
        let claim = self.0.claim(&KIND, &key).await?;
        Ok(claim.map(|claim| Turn::Sync(claim, places)))
    }

    /// Waits for a place of the user, and then for one of the lane.
    async fn places(self, user: UserId, provider: &str) -> Option<[OwnedSemaphorePermit; 2]> {
        let fresh = || Arc::new(Semaphore::new(SYNCS_OF_USER_MAX));
        let of_user = self
            .0
            .syncs_of_users
            .renew_or_insert_with(&user, self.0.clock.now(), fresh);
        // The user's own first: who waits for it must not hold one of all.
        let of_user = of_user.acquire_owned().await.ok()?;
        Some([
            of_user,
            self.0.places(&KIND, provider).acquire_owned().await.ok()?,
        ])
    }

    /// Whether the last sync is complete, and began within `age_max`.
    pub fn is_fresh(self, state: &SyncState, age_max: Duration) -> bool {
        self.was_fresh(state, age_max, self.0.clock.now())
    }

    /// As [`Self::is_fresh`], for a request that was made then: a later sync counts too.
    fn was_fresh(self, state: &SyncState, age_max: Duration, asked_at: Timestamp) -> bool {
        let now = self.0.clock.now();
        // A sync in the future was timed by a clock that went back since.
        state.unread.is_none()
            && state
                .synced_at
                .is_some_and(|at| at <= now && asked_at < at.plus(age_max))
    }

    /// What is known of the syncs of a connection.
    pub async fn state(
        self,
        user: UserId,
        id: ConnectionId,
    ) -> Result<SyncState, ConnectionsError> {
        self.0
            .storage
            .syncs()
            .find(user, id)
            .await?
            .ok_or(ConnectionsError::NotFound)
    }

    /// The fingerprints of a connection, and what they are made with.
    pub async fn fingerprints(
        self,
        user: UserId,
        id: ConnectionId,
    ) -> Result<(RowHasher, Fingerprints), ConnectionsError> {
        let key = self.0.storage.syncs().fingerprint_key(user, id).await?;
        let key = key.ok_or(ConnectionsError::NotFound)?;
        let hasher = RowHasher::new(key.expose_secret().as_bytes());
        let mut fingerprints = self.0.storage.syncs().fingerprints(user, id).await?;
        hasher.mask_days(&mut fingerprints.rows);
        Ok((hasher, fingerprints))
    }

    /// The first day of which every change is found.
    pub fn watched_from(self, state: &SyncState) -> UtcDay {
        let covered = state
            .covered_from
            .unwrap_or_else(|| self.0.clock.now().minus(self.0.sync_settings.first));
        let unread_to = state.unread.as_ref().map(|unread| unread.to);
        UtcDay::first_whole(unread_to.map_or(covered, |to| to.max(covered)))
    }
}
