//! Finds what changed: compares the rows that a run of a sync read with the stored fingerprints.
//! Pure.
//!
//! A row keeps its key when a renewed consent gives it another id, because a row that looks like
//! one that has just disappeared is that row. A row is gone when three complete reads over a day
//! have lacked it, or when the provider said so.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use bellbird_domain::{
    AccountTag, ContentDigest, Digest, Fingerprint, Fingerprints, RowDigests, RowKey, UtcDay,
};
use bellbird_providers::pages::RowKind;
use bellbird_webhooks::event::digest::RowHasher;
use jiff::{SignedDuration, Timestamp};

/// Fingerprints of which nothing changed are written again only when one of them is older than
/// this: once a day, not every sync.
const REWRITE_INTERVAL: SignedDuration = SignedDuration::from_hours(24);
/// A row is gone when so many complete reads have lacked it, over at least [`GONE_AFTER_SECONDS`]:
/// providers leave rows out for an hour.
const GONE_AFTER_MISSES: u8 = 3;
const GONE_AFTER_SECONDS: u32 = 24 * 3_600;
/// A client that polls every minute, with a change at each poll, can be away for three days.
const CHANGE_VERSIONS_MAX: usize = 4_096;

/// The meaning of two rows with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuplicateIds {
    /// One row that was read twice, because the provider's list moved between pages. The first
    /// reading counts.
    SameRow,
    /// Two rows, such as equal trades on one day.
    DistinctRows,
}

impl DuplicateIds {
    pub fn of<K: RowKind>() -> Self {
        if K::HAS_DISTINCT_IDS {
            Self::SameRow
        } else {
            Self::DistinctRows
        }
    }
}

/// The run that read the rows.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'r> {
    pub(crate) hasher: &'r RowHasher,
    pub(crate) duplicate_ids: DuplicateIds,
    pub(crate) now: Timestamp,
    /// Fingerprints that were last seen before this time are deleted.
    pub(crate) prune_before: Timestamp,
    pub(crate) coverage: &'r Coverage,
    /// Rows of which the provider said that they are gone.
    pub(crate) removal_hints: &'r HashSet<Digest>,
}

/// The days and accounts that a run has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// The days of which every row was read, by its time.
    pub(crate) days: RangeInclusive<UtcDay>,
    /// The first of them that the provider has not cut off either, which may count days in another
    /// time zone.
    pub(crate) first_certain_day: UtcDay,
    pub(crate) accounts: HashSet<AccountTag>,
    /// The days of rows that could not be read. `None`: unknown.
    pub(crate) unreadable: HashSet<Option<UtcDay>>,
}

impl Coverage {
    /// Whether the run lacks a row that it would have read if it were there. An unreadable row may
    /// be any row.
    fn lacks(&self, row: &RowDigests) -> bool {
        self.unreadable.is_empty() && row.day >= self.first_certain_day && self.has(row)
    }

    /// Whether a row that was not read may have another id now. On a day that was read in part, or
    /// with an unreadable row, it may still have its own. An unreadable row of an unknown day is
    /// hardly the one, and must not make all rows of a renewed connection new.
    fn may_be_renumbered(&self, row: &RowDigests) -> bool {
        self.has(row) && !self.unreadable.contains(&Some(row.day))
    }

    fn has(&self, row: &RowDigests) -> bool {
        self.days.contains(&row.day) && self.accounts.contains(&row.account)
    }
}

/// The result of a comparison. Rows that were read are named by their index among them, with their
/// key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Changes {
    /// Rows that were never seen before, in the order in which they were read.
    pub(crate) new: Vec<(usize, RowKey)>,
    /// Rows that were seen with another content, or that were gone, in the order in which they were
    /// read.
    pub(crate) updated: Vec<(usize, RowKey)>,
    pub(crate) gone: Vec<Fingerprint>,
    /// All fingerprints of the connection. None if the stored ones are good for another day.
    pub(crate) fingerprints: Option<Fingerprints>,
    /// Those of the provider's hints that a later run has to check.
    pub(crate) removal_hints: Vec<Digest>,
}

/// Compares the rows that were read, `seen`, with the stored fingerprints.
///
/// Rows with the same id are compared by content. A row with a known content is unchanged. Each
/// remaining row updates one of the remaining known contents, as long as there are any. Rows that
/// are left are compared with all known rows that were not seen: one that looks like the row is
/// that row under another id. The others are new.
pub(crate) fn detect_changes(
    known: &Fingerprints,
    seen: &[RowDigests],
    reading: &Reading<'_>,
) -> Changes {
    // Each row with its index. Rows with the same id and content come in the order in which they
    // were read.
    let mut order: Vec<(RowDigests, usize)> = seen.iter().copied().zip(0..).collect();
    match reading.duplicate_ids {
        DuplicateIds::SameRow => {
            order.sort_unstable_by_key(|(digests, index)| (digests.row, *index));
            order.dedup_by_key(|(digests, _)| digests.row);
        }
        DuplicateIds::DistinctRows => order.sort_unstable(),
    }
    let mut merge = Merge::new(known, reading, order.len());
    let mut groups = known
        .rows
        .chunk_by(|one, other| one.digests.row == other.digests.row)
        .peekable();
    for rows in order.chunk_by(|(one, _), (other, _)| one.row == other.row) {
        let row = rows[0].0.row;
        while let Some(unseen) = groups.next_if(|group| group[0].digests.row < row) {
            merge.unseen.extend_from_slice(unseen);
        }
        merge.compare(
            groups
                .next_if(|group| group[0].digests.row == row)
                .unwrap_or_default(),
            rows,
        );
    }
    groups.for_each(|unseen| merge.unseen.extend_from_slice(unseen));
    merge.match_renumbered();
    merge.add_new();
    merge.keep_unseen();
    merge.finish()
}

/// A row without a known id.
#[derive(Clone, Copy)]
struct Fresh {
    digests: RowDigests,
    index: usize,
    occurrence: u32,
}

/// The merge of stored fingerprints with the rows that were read.
struct Merge<'r> {
    reading: &'r Reading<'r>,
    known: &'r Fingerprints,
    /// The change version of this run, if it finds a change.
    change_version: u32,
    now: u32,
    /// An unchanged fingerprint of this time or earlier is a reason to write.
    rewrite_at: u32,
    changes: Changes,
    merged: Vec<Fingerprint>,
    /// Known rows that were not read under their id.
    unseen: Vec<Fingerprint>,
    fresh: Vec<Fresh>,
    forgotten_version: u32,
    has_changes: bool,
    must_write: bool,
    /// Known fingerprints of one row by content. Kept to allocate once.
    by_content: Vec<Fingerprint>,
}

/// Those of two equal rows that are still there come first.
fn presence(row: &Fingerprint) -> (bool, u8, u32) {
    (row.is_gone, row.misses, row.occurrence)
}

impl<'r> Merge<'r> {
    fn new(known: &'r Fingerprints, reading: &'r Reading<'r>, rows: usize) -> Self {
        let now = Fingerprint::seconds(reading.now);
        let rewrite_at = reading
            .now
            .saturating_sub(REWRITE_INTERVAL)
            .unwrap_or(Timestamp::MIN);
        Self {
            reading,
            known,
            change_version: now.max(known.change_version().saturating_add(1)),
            now,
            rewrite_at: Fingerprint::seconds(rewrite_at),
            changes: Changes::default(),
            merged: Vec::with_capacity(known.rows.len() + rows),
            unseen: Vec::new(),
            fresh: Vec::new(),
            forgotten_version: known.forgotten_version,
            has_changes: false,
            must_write: false,
            by_content: Vec::new(),
        }
    }

    /// Compares the rows with one id. Both lists may be long: a hostile provider can give all rows
    /// the same id.
    fn compare(&mut self, known: &[Fingerprint], rows: &[(RowDigests, usize)]) {
        let mut next_occurrence = known.last().map_or(0, |last| last.occurrence + 1);
        let mut by_content = std::mem::take(&mut self.by_content);
        by_content.clear();
        by_content.extend_from_slice(known);
        by_content.sort_unstable_by_key(|known| (known.digests.content, presence(known)));
        let (mut changed, mut unmatched) = (Vec::new(), Vec::new());
        let mut known = by_content.iter().peekable();
        for (digests, index) in rows {
            while let Some(other) = known.next_if(|known| known.digests.content < digests.content) {
                changed.push(*other);
            }
            match known.next_if(|known| known.digests.content == digests.content) {
                Some(same) => self.see(*same, *digests, *index),
                None => unmatched.push((*digests, *index)),
            }
        }
        changed.extend(known);
        changed.sort_unstable_by_key(presence);
        let mut changed = changed.into_iter();
        // Sorted by content: the same rows get the same occurrence numbers in whatever order they
        // were read.
        for (digests, index) in unmatched {
            if let Some(before) = changed.next() {
                self.see(before, digests, index);
            } else {
                self.fresh.push(Fresh {
                    digests,
                    index,
                    occurrence: next_occurrence,
                });
                next_occurrence += 1;
            }
        }
        self.unseen.extend(changed);
        self.by_content = by_content;
    }

    /// A known row was read.
    fn see(&mut self, before: Fingerprint, digests: RowDigests, index: usize) {
        let is_updated = before.digests.content != digests.content || before.is_gone;
        if is_updated {
            self.changes.updated.push((index, before.key));
        }
        // A client that read while the row was missing, after an earlier change, has not got that
        // change.
        let is_changed = is_updated || before.misses > 0;
        self.has_changes |= is_changed;
        self.must_write |= before.seen_at <= self.rewrite_at || before.digests != digests;
        self.merged.push(Fingerprint {
            digests,
            seen_at: if is_changed {
                self.now
            } else {
                self.now.max(before.seen_at)
            },
            misses: 0,
            is_gone: false,
            changed_version: if is_changed {
                self.change_version
            } else {
                before.changed_version
            },
            ..before
        });
    }

    /// Finds rows that have another id than before: they look like a row that was not seen. Those
    /// whose other fields are equal too come first.
    fn match_renumbered(&mut self) {
        if self.fresh.is_empty() || self.unseen.is_empty() {
            return;
        }
        let fresh = std::mem::take(&mut self.fresh);
        let fresh = self.match_unseen(fresh, |row| (row.likeness, row.content));
        self.fresh = self.match_unseen(fresh, |row| (row.likeness, ContentDigest::default()));
    }

    /// Returns the rows that no unseen one is equal to.
    fn match_unseen(
        &mut self,
        fresh: Vec<Fresh>,
        looks: impl Fn(&RowDigests) -> (ContentDigest, ContentDigest),
    ) -> Vec<Fresh> {
        let mut alike: HashMap<_, Vec<Fingerprint>> = fresh
            .iter()
            .map(|row| (looks(&row.digests), Vec::new()))
            .collect();
        let coverage = self.reading.coverage;
        // Few of many unseen rows look like one of the few rows without a known id.
        self.unseen
            .retain(|row| match alike.get_mut(&looks(&row.digests)) {
                Some(rows) if coverage.may_be_renumbered(&row.digests) => {
                    rows.push(*row);
                    false
                }
                _ => true,
            });
        // The rows that are still there are taken first, from the end.
        for rows in alike.values_mut() {
            rows.sort_unstable_by_key(|row| Reverse((presence(row), row.digests.row)));
        }
        let mut left = Vec::new();
        for row in fresh {
            match alike.get_mut(&looks(&row.digests)).and_then(Vec::pop) {
                Some(before) => {
                    self.must_write = true;
                    self.see(
                        Fingerprint {
                            occurrence: row.occurrence,
                            ..before
                        },
                        row.digests,
                        row.index,
                    );
                }
                None => left.push(row),
            }
        }
        self.unseen.extend(alike.into_values().flatten());
        left
    }

    fn add_new(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        let keys = self
            .merged
            .iter()
            .chain(&self.unseen)
            .map(|known| known.key);
        let mut keys: HashSet<RowKey> = keys.collect();
        for Fresh {
            digests,
            index,
            occurrence,
        } in std::mem::take(&mut self.fresh)
        {
            let key = |attempt| self.reading.hasher.key(digests.row, occurrence, attempt);
            // A row under another id has the key of its first one, which may be in use again.
            let Some(key) = (0..).map(key).find(|key| keys.insert(*key)) else {
                continue;
            };
            self.changes.new.push((index, key));
            self.has_changes = true;
            self.merged.push(Fingerprint {
                digests,
                occurrence,
                key,
                seen_at: self.now,
                misses: 0,
                is_gone: false,
                first_version: self.change_version,
                changed_version: self.change_version,
            });
        }
    }

    /// Keeps the fingerprints of rows that were not seen, unless they are too old.
    fn keep_unseen(&mut self) {
        let prune_before = Fingerprint::seconds(self.reading.prune_before);
        for mut row in std::mem::take(&mut self.unseen) {
            if !row.is_gone {
                if self.reading.coverage.lacks(&row.digests) {
                    self.miss(&mut row);
                } else if self.reading.removal_hints.contains(&row.digests.row) {
                    self.changes.removal_hints.push(row.digests.row);
                }
            }
            if row.seen_at < prune_before {
                self.must_write = true;
                self.forgotten_version = self.forgotten_version.max(row.changed_version);
            } else {
                self.merged.push(row);
            }
        }
    }

    /// A complete read lacks the row.
    fn miss(&mut self, row: &mut Fingerprint) {
        if row.misses < GONE_AFTER_MISSES {
            if row.misses == 0 {
                row.seen_at = self.now;
            }
            row.misses += 1;
            self.must_write = true;
        }
        let is_missing_long = row.misses == GONE_AFTER_MISSES
            && self.now.saturating_sub(row.seen_at) >= GONE_AFTER_SECONDS;
        if is_missing_long || self.reading.removal_hints.contains(&row.digests.row) {
            (row.is_gone, row.changed_version) = (true, self.change_version);
            self.has_changes = true;
            self.changes.gone.push(*row);
        }
    }

    fn finish(mut self) -> Changes {
        self.changes.new.sort_unstable();
        self.changes.updated.sort_unstable();
        if self.must_write || self.has_changes {
            // A few sorted runs, which this sort merges.
            self.merged.sort_by_key(Fingerprint::id);
            let own = self.has_changes.then_some(self.change_version);
            let mut change_versions: Vec<u32> = self
                .known
                .change_versions
                .iter()
                .copied()
                .chain(own)
                .collect();
            change_versions.retain(|change_version| *change_version >= self.forgotten_version);
            change_versions.drain(..change_versions.len().saturating_sub(CHANGE_VERSIONS_MAX));
            let forgotten_version = self.forgotten_version;
            self.changes.fingerprints = Some(Fingerprints {
                rows: self.merged,
                change_versions,
                forgotten_version,
            });
        }
        self.changes.removal_hints.sort_unstable();
        self.changes.removal_hints.dedup();
        self.changes
    }
}

#[cfg(test)]
mod tests;
