//! Finds what changed: compares the rows that a run of a sync read with the stored fingerprints. Pure.
//!
//! A row keeps its key when a renewed consent gives it another id, because a row that looks like one that has just
//! disappeared is that row. A row is gone when three complete reads over a day have lacked it, or when the provider
//! said so.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use bellbird_domain::{AccountTag, ContentDigest, Digest, Fingerprint, Fingerprints, RowDigests, RowKey, UtcDay};
use bellbird_webhooks::event::digest::RowHasher;
use jiff::{SignedDuration, Timestamp};

/// Fingerprints of which nothing changed are written again only when one of them is older than this: once a day, not
/// every sync.
const REWRITE_INTERVAL: SignedDuration = SignedDuration::from_hours(24);
/// A row is gone when so many complete reads have lacked it, over at least [`GONE_AFTER_SECONDS`]: providers leave rows
/// out for an hour.
const GONE_AFTER_MISSES: u8 = 3;
const GONE_AFTER_SECONDS: u32 = 24 * 3_600;
/// A client that polls every minute, with a change at each poll, can be away for three days.
const MARKS_MAX: usize = 4_096;

/// The meaning of two rows with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuplicateIds {
    /// One row that was read twice, because the provider's list moved between pages. The later reading counts.
    SameRow,
    /// Two rows, such as equal trades on one day.
    DistinctRows,
}

/// The run that read the rows.
#[derive(Clone, Copy)]
pub(super) struct Reading<'r> {
    pub(super) hasher: &'r RowHasher,
    pub(super) duplicate_ids: DuplicateIds,
    pub(super) now: Timestamp,
    /// Fingerprints that were last seen before this time are deleted.
    pub(super) prune_before: Timestamp,
    /// What was read whole. `None` if a row could not be read, since that may be any row that is missing.
    pub(super) coverage: Option<&'r Coverage>,
    /// Rows of which the provider said that they are gone.
    pub(super) said_gone: &'r HashSet<Digest>,
}

/// The days and accounts of which a run has read every row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Coverage {
    pub(super) first_day: UtcDay,
    pub(super) last_day: UtcDay,
    pub(super) accounts: HashSet<AccountTag>,
}

impl Coverage {
    fn has(&self, row: &RowDigests) -> bool {
        (self.first_day..=self.last_day).contains(&row.day) && self.accounts.contains(&row.account)
    }
}

/// The result of a comparison. Rows that were read are named by their index among them, with their key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Changes {
    /// Rows that were never seen before, in the order in which they were read.
    pub(super) new: Vec<(usize, RowKey)>,
    /// Rows that were seen with another content, or that were gone, in the order in which they were read.
    pub(super) updated: Vec<(usize, RowKey)>,
    /// Rows that are gone.
    pub(super) gone: Vec<Fingerprint>,
    /// All fingerprints of the connection. None if the stored ones are good for another day.
    pub(super) fingerprints: Option<Fingerprints>,
}

/// Compares the rows that were read, `seen`, with the stored fingerprints.
///
/// Rows with the same id are compared by content. A row with a known content is unchanged. Each remaining row updates
/// one of the remaining known contents, as long as there are any. Rows that are left are compared with all known rows
/// that were not seen: one that looks like the row is that row under another id. The others are new.
pub(super) fn detect_changes(known: &Fingerprints, seen: &[RowDigests], reading: &Reading<'_>) -> Changes {
    // Each row with its index. Rows with the same id and content come in the order in which they were read.
    let mut order: Vec<(RowDigests, usize)> = seen.iter().copied().zip(0..).collect();
    match reading.duplicate_ids {
        DuplicateIds::SameRow => {
            order.sort_unstable_by_key(|(digests, index)| (digests.row, Reverse(*index)));
            order.dedup_by_key(|(digests, _)| digests.row);
        }
        DuplicateIds::DistinctRows => order.sort_unstable(),
    }
    let mut merge = Merge::new(known, reading, order.len());
    let mut groups = known.rows.chunk_by(|one, other| one.digests.row == other.digests.row).peekable();
    for rows in order.chunk_by(|(one, _), (other, _)| one.row == other.row) {
        let row = rows[0].0.row;
        while let Some(unseen) = groups.next_if(|group| group[0].digests.row < row) {
            merge.unseen.extend_from_slice(unseen);
        }
        merge.compare(groups.next_if(|group| group[0].digests.row == row).unwrap_or_default(), rows);
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
    /// The mark of this run, if it finds a change.
    mark: u32,
    now: u32,
    /// An unchanged fingerprint of this time or earlier is a reason to write.
    rewrite_at: u32,
    changes: Changes,
    merged: Vec<Fingerprint>,
    /// Known rows that were not read under their id.
    unseen: Vec<Fingerprint>,
    fresh: Vec<Fresh>,
    forgotten_mark: u32,
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
        let rewrite_at = reading.now.saturating_sub(REWRITE_INTERVAL).unwrap_or(Timestamp::MIN);
        Self {
            reading,
            known,
            mark: now.max(known.mark().saturating_add(1)),
            now,
            rewrite_at: Fingerprint::seconds(rewrite_at),
            changes: Changes::default(),
            merged: Vec::with_capacity(known.rows.len() + rows),
            unseen: Vec::new(),
            fresh: Vec::new(),
            forgotten_mark: known.forgotten_mark,
            has_changes: false,
            must_write: false,
            by_content: Vec::new(),
        }
    }

    /// Compares the rows with one id. Both lists may be long: a hostile provider can give all rows the same id.
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
        // Sorted by content: the same rows get the same occurrence numbers in whatever order they were read.
        for (digests, index) in unmatched {
            if let Some(before) = changed.next() {
                self.see(before, digests, index);
            } else {
                self.fresh.push(Fresh { digests, index, occurrence: next_occurrence });
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
        // A client that read while the row was missing, after an earlier change, has not got that change.
        let is_changed = is_updated || before.misses > 0;
        self.has_changes |= is_changed;
        self.must_write |= before.seen_at <= self.rewrite_at || before.digests != digests;
        self.merged.push(Fingerprint {
            digests,
            seen_at: if is_changed { self.now } else { self.now.max(before.seen_at) },
            misses: 0,
            is_gone: false,
            changed_mark: if is_changed { self.mark } else { before.changed_mark },
            ..before
        });
    }

    /// Finds rows that have another id than before: they look like a row that was not seen. Those whose other fields
    /// are equal too come first.
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
        let mut unseen: HashMap<_, Vec<Fingerprint>> = HashMap::new();
        // The rows that are still there are taken first, from the end.
        self.unseen.sort_unstable_by_key(|row| Reverse((presence(row), row.digests.row)));
        for row in self.unseen.drain(..) {
            unseen.entry(looks(&row.digests)).or_default().push(row);
        }
        let mut left = Vec::new();
        for row in fresh {
            match unseen.get_mut(&looks(&row.digests)).and_then(Vec::pop) {
                Some(before) => {
                    self.must_write = true;
                    self.see(Fingerprint { occurrence: row.occurrence, ..before }, row.digests, row.index);
                }
                None => left.push(row),
            }
        }
        self.unseen.extend(unseen.into_values().flatten());
        left
    }

    fn add_new(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        let keys = self.merged.iter().chain(&self.unseen).map(|known| known.key);
        let mut keys: HashSet<RowKey> = keys.collect();
        for Fresh { digests, index, occurrence } in std::mem::take(&mut self.fresh) {
            let key = |attempt| self.reading.hasher.key(digests.row, occurrence, attempt);
            // A row under another id has the key of its first one, which may be in use again.
            let Some(key) = (0..).map(key).find(|key| keys.insert(*key)) else { continue };
            self.changes.new.push((index, key));
            self.has_changes = true;
            self.merged.push(Fingerprint {
                digests,
                occurrence,
                key,
                seen_at: self.now,
                misses: 0,
                is_gone: false,
                first_mark: self.mark,
                changed_mark: self.mark,
            });
        }
    }

    /// Keeps the fingerprints of rows that were not seen, unless they are too old.
    fn keep_unseen(&mut self) {
        let prune_before = Fingerprint::seconds(self.reading.prune_before);
        for mut row in std::mem::take(&mut self.unseen) {
            if !row.is_gone && self.reading.coverage.is_some_and(|coverage| coverage.has(&row.digests)) {
                self.miss(&mut row);
            }
            if row.seen_at < prune_before {
                self.must_write = true;
                self.forgotten_mark = self.forgotten_mark.max(row.changed_mark);
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
        let is_missing_long =
            row.misses == GONE_AFTER_MISSES && self.now.saturating_sub(row.seen_at) >= GONE_AFTER_SECONDS;
        if is_missing_long || self.reading.said_gone.contains(&row.digests.row) {
            (row.is_gone, row.changed_mark) = (true, self.mark);
            self.has_changes = true;
            self.changes.gone.push(*row);
        }
    }

    fn finish(mut self) -> Changes {
        self.changes.new.sort_unstable();
        self.changes.updated.sort_unstable();
        if self.must_write || self.has_changes {
            self.merged.sort_unstable_by_key(Fingerprint::id);
            let own = self.has_changes.then_some(self.mark);
            let mut marks: Vec<u32> = self.known.marks.iter().copied().chain(own).collect();
            marks.retain(|mark| *mark >= self.forgotten_mark);
            marks.drain(..marks.len().saturating_sub(MARKS_MAX));
            let forgotten_mark = self.forgotten_mark;
            self.changes.fingerprints = Some(Fingerprints { rows: self.merged, marks, forgotten_mark });
        }
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use DuplicateIds::{DistinctRows, SameRow};

    const ACCOUNT: AccountTag = AccountTag(7);
    /// The days of the range that every read covers, and one of a row outside of it.
    const DAYS: [u16; 2] = [100, 200];

    fn seen(rows: &[(u8, u8)]) -> Vec<RowDigests> {
        rows.iter().map(|(row, content)| row_digests(*row, *content)).collect()
    }

    /// Rows that look alike have contents that differ by a multiple of 100.
    fn row_digests(row: u8, content: u8) -> RowDigests {
        RowDigests {
            row: Digest([row; 16]),
            content: ContentDigest([content; 8]),
            likeness: ContentDigest([content % 100; 8]),
            account: ACCOUNT,
            day: UtcDay(150),
        }
    }

    fn hours(hours: i64) -> Timestamp {
        "2026-11-20T09:30:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_hours(hours)
    }

    /// Reads that come after each other.
    struct Reads {
        known: Fingerprints,
        duplicate_ids: DuplicateIds,
        hasher: RowHasher,
        coverage: Option<Coverage>,
        said_gone: HashSet<Digest>,
    }

    impl Reads {
        fn new(duplicate_ids: DuplicateIds) -> Self {
            let coverage =
                Coverage { first_day: UtcDay(DAYS[0]), last_day: UtcDay(DAYS[1]), accounts: HashSet::from([ACCOUNT]) };
            let (known, hasher) = (Fingerprints::default(), RowHasher::new(&[7; 32]));
            Self { known, duplicate_ids, hasher, coverage: Some(coverage), said_gone: HashSet::new() }
        }

        /// A read of these rows, so many hours after the first.
        fn read(&mut self, at: i64, rows: &[(u8, u8)]) -> Changes {
            self.read_digests(at, &seen(rows))
        }

        fn read_digests(&mut self, at: i64, seen: &[RowDigests]) -> Changes {
            let reading = Reading {
                hasher: &self.hasher,
                duplicate_ids: self.duplicate_ids,
                now: hours(at),
                prune_before: hours(at - 72),
                coverage: self.coverage.as_ref(),
                said_gone: &self.said_gone,
            };
            let found = detect_changes(&self.known, seen, &reading);
            if let Some(after) = &found.fingerprints {
                assert!(after.rows.is_sorted_by(|one, other| one.id() < other.id()), "sorted, without repetitions");
                assert!(after.marks.is_sorted_by(|one, other| one < other));
                let keys: HashSet<RowKey> = after.rows.iter().map(|row| row.key).collect();
                assert_eq!(keys.len(), after.rows.len(), "keys are unique");
                self.known = after.clone();
            }
            found
        }

        /// Row, occurrence, and the hours of the reads that saw the row first and its present content.
        fn marks(&self) -> Vec<(u8, u32, i64, i64)> {
            let hour = |mark: u32| (i64::from(mark) - hours(0).as_second()) / 3600;
            let entry = |row: &Fingerprint| {
                (row.digests.row.0[0], row.occurrence, hour(row.first_mark), hour(row.changed_mark))
            };
            self.known.rows.iter().map(entry).collect()
        }

        fn keys(&self) -> Vec<RowKey> {
            self.known.rows.iter().map(|row| row.key).collect()
        }
    }

    fn indexes(found: &[(usize, RowKey)]) -> Vec<usize> {
        found.iter().map(|(index, _)| *index).collect()
    }

    fn rows(found: &[(usize, RowKey)], seen: &[(u8, u8)]) -> Vec<(u8, u8)> {
        found.iter().map(|(index, _)| seen[*index]).collect()
    }

    #[test]
    fn second_of_two_equal_trades_is_new() {
        let mut reads = Reads::new(DistinctRows);
        reads.read(1, &[(1, 1)]);
        let found = reads.read(2, &[(1, 1), (1, 1)]);
        assert_eq!((indexes(&found.new), found.updated), (vec![1], vec![]));
        assert_eq!(reads.marks(), [(1, 0, 1, 1), (1, 1, 2, 2)]);
        assert_eq!(reads.read(3, &[(1, 1), (1, 1)]), Changes::default());
    }

    #[test]
    fn row_read_twice_counts_once() {
        let mut reads = Reads::new(SameRow);
        assert_eq!(indexes(&reads.read(1, &[(1, 1), (2, 1), (1, 9)]).new), [1, 2]);
        let contents: Vec<u8> = reads.known.rows.iter().map(|row| row.digests.content.0[0]).collect();
        assert_eq!(contents, [9, 1], "the later reading");
    }

    #[test]
    fn marks_say_which_read_saw_a_row_first_and_changed() {
        let mut reads = Reads::new(SameRow);
        reads.coverage = None;
        for (hour, rows, expected) in [
            (1, [(1, 1), (2, 11)].as_slice(), [(1, 0, 1, 1), (2, 0, 1, 1)].as_slice()),
            (2, &[(1, 1), (2, 12), (3, 21)], &[(1, 0, 1, 1), (2, 0, 1, 2), (3, 0, 2, 2)]),
            (3, &[(1, 1)], &[(1, 0, 1, 1), (2, 0, 1, 2), (3, 0, 2, 2)]),
            (4, &[(2, 11)], &[(1, 0, 1, 1), (2, 0, 1, 4), (3, 0, 2, 2)]),
            // Rows that are too old are forgotten, and new when they are seen again.
            (80, &[(2, 11)], &[(2, 0, 1, 4)]),
            (81, &[(1, 1)], &[(1, 0, 81, 81), (2, 0, 1, 4)]),
        ] {
            reads.read(hour, rows);
            assert_eq!(reads.marks(), expected, "{hour}");
        }
        let mark = |hour: i64| Fingerprint::seconds(hours(hour));
        let reached: Vec<bool> = [0, mark(1), mark(2), mark(3), mark(4), mark(81)]
            .into_iter()
            .map(|mark| reads.known.reach_back_to(mark))
            .collect();
        assert_eq!(reached, [false, false, true, false, true, true], "row 3 was forgotten, read 3 found nothing");
    }

    #[test]
    fn unchanged_rows_are_rewritten_once_a_day() {
        for (hour, rows, rewritten) in [(0, 2, false), (23, 2, false), (24, 1, true), (48, 2, true), (48, 0, false)] {
            let mut reads = Reads::new(SameRow);
            reads.coverage = None;
            let all = [(1, 1), (2, 2)];
            reads.read(0, &all);
            let before = reads.marks();
            let found = reads.read(hour, &all[..rows]);
            assert_eq!((found.new.len(), found.updated.len()), (0, 0), "{hour}");
            assert_eq!(found.fingerprints.is_some(), rewritten, "{hour}");
            assert_eq!(reads.marks(), before, "{hour}");
            if rewritten {
                let now = Fingerprint::seconds(hours(hour));
                assert_eq!(reads.known.rows.iter().filter(|row| row.seen_at == now).count(), rows, "{hour}");
            }
        }
    }

    #[test]
    fn fingerprints_out_of_range_are_deleted() {
        for (hour, left) in [(72, 2), (73, 0)] {
            let mut reads = Reads::new(SameRow);
            reads.coverage = None;
            reads.read(0, &[(1, 1), (2, 2)]);
            reads.read(hour, &[]);
            assert_eq!(reads.known.rows.len(), left, "{hour}");
        }
        let mut reads = Reads::new(SameRow);
        reads.read(0, &[(1, 1), (2, 2)]);
        reads.coverage = None;
        reads.read(500, &[(2, 2)]);
        assert_eq!(reads.marks(), [(2, 0, 0, 0)], "a row that is seen stays, however old");
    }

    #[test]
    fn row_is_gone_after_three_reads_over_a_day() {
        for (lacking, gone_at) in [
            ([1, 2, 3, 24].as_slice(), None),
            (&[1, 2, 3, 25], Some(25)),
            (&[1, 2, 24, 26], Some(26)),
            (&[1, 26], None),
            (&[1, 26, 50], Some(50)),
        ] {
            let mut reads = Reads::new(SameRow);
            reads.read(0, &[(1, 1), (2, 2)]);
            let key = reads.keys()[0];
            let mut found_at = None;
            for hour in lacking {
                let found = reads.read(*hour, &[(2, 2)]);
                if let [gone] = found.gone.as_slice() {
                    assert_eq!((gone.key, found.updated.len()), (key, 0));
                    found_at = Some(*hour);
                }
            }
            assert_eq!(found_at, gone_at, "{lacking:?}");
        }
    }

    #[test]
    fn returning_row_has_its_key_and_a_new_mark() {
        let mut reads = Reads::new(SameRow);
        reads.read(0, &[(1, 1), (2, 2)]);
        let keys = reads.keys();
        reads.read(1, &[(2, 2)]);
        assert_eq!(reads.read(2, &[(1, 1), (2, 2)]).updated, [], "not reported again");
        assert_eq!(reads.marks(), [(1, 0, 0, 2), (2, 0, 0, 0)], "but for clients that follow");
        for hour in [3, 4, 30] {
            reads.read(hour, &[(2, 2)]);
        }
        assert!(reads.known.rows[0].is_gone);
        assert_eq!(indexes(&reads.read(31, &[(1, 1), (2, 2)]).updated), [0], "it was reported as gone");
        assert_eq!((reads.marks()[0], reads.keys()), ((1, 0, 0, 31), keys));
    }

    #[test]
    fn only_covered_rows_are_missed() {
        let elsewhere = |coverage: &mut Coverage| coverage.accounts = HashSet::from([AccountTag(8)]);
        let later = |coverage: &mut Coverage| coverage.first_day = UtcDay(151);
        for (name, change) in
            [("another account", elsewhere as fn(&mut Coverage)), ("later days", later as fn(&mut Coverage))]
        {
            let mut reads = Reads::new(SameRow);
            reads.read(0, &[(1, 1), (2, 2)]);
            reads.coverage.iter_mut().for_each(change);
            for hour in [1, 2, 3, 30, 60] {
                assert_eq!(reads.read(hour, &[(2, 2)]).gone, [], "{name}");
            }
        }
    }

    #[test]
    fn provider_says_that_a_row_is_gone() {
        let mut reads = Reads::new(SameRow);
        reads.read(0, &[(1, 1), (2, 2)]);
        reads.said_gone = HashSet::from([Digest([1; 16]), Digest([2; 16])]);
        let found = reads.read(1, &[(2, 2)]);
        assert_eq!(found.gone.iter().map(|gone| gone.digests.row).collect::<Vec<_>>(), [Digest([1; 16])]);
    }

    #[test]
    fn row_under_another_id_keeps_its_key_and_is_no_news() {
        let mut reads = Reads::new(SameRow);
        // 3 and 4 look alike, but differ in another field.
        reads.read(0, &[(1, 1), (2, 2), (3, 3), (4, 103)]);
        let [one, two, three, four] = reads.keys()[..] else { panic!("four rows") };
        let found = reads.read(1, &[(14, 103), (12, 2), (13, 3), (11, 101), (15, 5)]);
        assert_eq!(
            (indexes(&found.new), indexes(&found.updated)),
            (vec![4], vec![3]),
            "only one row changed, and one is new"
        );
        let key = |row: u8| reads.known.rows.iter().find(|known| known.digests.row.0[0] == row).unwrap().key;
        assert_eq!([key(11), key(12), key(13), key(14)], [one, two, three, four]);
        assert_eq!(reads.marks()[1..4], [(12, 0, 0, 0), (13, 0, 0, 0), (14, 0, 0, 0)]);
        // The first ids come back for other rows: keys stay unique, which each read checks.
        let found = reads.read(2, &[(14, 103), (12, 2), (13, 3), (11, 101), (15, 5), (1, 50)]);
        assert_eq!(indexes(&found.new), [5]);
    }

    #[test]
    fn one_of_two_equal_trades_disappears() {
        let mut reads = Reads::new(DistinctRows);
        reads.read(0, &[(1, 1), (1, 1)]);
        let mut gone = Vec::new();
        for hour in [1, 2, 3, 30, 31] {
            gone.extend(reads.read(hour, &[(1, 1)]).gone);
        }
        assert_eq!(gone.len(), 1, "always the same one");
    }

    /// All rows may have one id. A quadratic comparison of these would take minutes.
    #[test]
    fn many_rows_with_one_id_are_compared_quickly() {
        let content = |number: u64| ContentDigest(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        let rows = |numbers: std::ops::Range<u64>| -> Vec<RowDigests> {
            let row = |number| RowDigests { content: content(number), likeness: content(number), ..row_digests(1, 1) };
            numbers.map(row).collect()
        };
        let mut reads = Reads::new(DistinctRows);
        reads.read_digests(1, &rows(0..100_000));
        let found = reads.read_digests(2, &rows(50_000..150_000));
        assert_eq!((found.new.len(), found.updated.len()), (0, 50_000));
    }

    /// Contents of rows by their id. No two rows look alike.
    fn contents_by_id() -> impl Strategy<Value = BTreeMap<u8, u8>> {
        let unlike = |contents: BTreeMap<u8, u8>| contents.into_iter().map(|(id, content)| (id, id * 8 + content));
        prop::collection::btree_map(0_u8..12, 0_u8..4, 0..12).prop_map(move |contents| unlike(contents).collect())
    }

    proptest! {
        /// The model for rows with unique ids: two maps, compared key by key. The order of the pages and rows that are
        /// read twice make no difference.
        #[test]
        fn transactions_agree_with_two_maps(
            before in contents_by_id(),
            after in contents_by_id(),
            order in proptest::collection::vec(any::<u16>(), 24),
            repeats in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let pairs = |contents: &BTreeMap<u8, u8>| {
                contents.iter().map(|(row, content)| (*row, *content)).collect::<Vec<_>>()
            };
            let mut reads = Reads::new(SameRow);
            reads.read(1, &pairs(&before));
            prop_assert_eq!(reads.known.rows.len(), before.len());

            let mut read = pairs(&after);
            if !read.is_empty() {
                let repeated: Vec<_> = repeats.iter().map(|index| read[index.index(after.len())]).collect();
                read.extend(repeated);
            }
            let mut shuffled: Vec<_> = read.into_iter().zip(order).collect();
            shuffled.sort_by_key(|(_, key)| *key);
            let read: Vec<(u8, u8)> = shuffled.into_iter().map(|(row, _)| row).collect();

            let found = reads.read(2, &read);
            let sorted = |mut rows: Vec<(u8, u8)>| { rows.sort_unstable(); rows };
            let new: Vec<_> = pairs(&after).into_iter().filter(|(row, _)| !before.contains_key(row)).collect();
            let is_updated = |(row, content): &(u8, u8)| before.get(row).is_some_and(|old| old != content);
            let updated: Vec<_> = pairs(&after).into_iter().filter(is_updated).collect();
            prop_assert_eq!(sorted(rows(&found.new, &read)), new);
            prop_assert_eq!(sorted(rows(&found.updated, &read)), updated);

            // Nothing is reported twice, not even a row that disappeared and reappears unchanged.
            let found = reads.read(2, &read);
            prop_assert_eq!((found.new.len(), found.updated.len()), (0, 0));
            let mut reappeared = pairs(&before);
            reappeared.retain(|(row, _)| !after.contains_key(row));
            let found = reads.read(2, &reappeared);
            prop_assert_eq!((found.new.len(), found.updated.len()), (0, 0));
        }

        /// The model for rows that share ids: two multisets of contents for each id. Contents in both are unchanged. Of
        /// the rest, as many rows as both sides have are updated, and further rows are new.
        #[test]
        fn trades_agree_with_multisets(
            before in proptest::collection::vec((0_u8..4, 0_u8..3), 0..12),
            after in proptest::collection::vec((0_u8..4, 0_u8..3), 0..12).prop_shuffle(),
        ) {
            let unlike = |rows: Vec<(u8, u8)>| -> Vec<(u8, u8)> {
                rows.into_iter().map(|(id, content)| (id, id * 10 + content)).collect()
            };
            let (before, after) = (unlike(before), unlike(after));
            let mut reads = Reads::new(DistinctRows);
            reads.read(1, &before);
            let first = reads.known.clone();
            prop_assert_eq!(first.rows.len(), before.len());
            let found = reads.read(2, &after);
            for id in 0..4 {
                let copies = |rows: &[(u8, u8)], content| rows.iter().filter(|row| **row == (id, content)).count();
                let contents = id * 10..id * 10 + 3;
                let same: usize = contents.map(|content| copies(&before, content).min(copies(&after, content))).sum();
                let count = |rows: &[(u8, u8)]| rows.iter().filter(|(row, _)| *row == id).count();
                let (gone, added) = (count(&before) - same, count(&after) - same);
                let of_id = |found: &[(usize, RowKey)]| count(&rows(found, &after));
                prop_assert_eq!(of_id(&found.updated), gone.min(added));
                prop_assert_eq!(of_id(&found.new), added - gone.min(added));
            }
            let again = reads.read(2, &after);
            prop_assert_eq!((again.new.len(), again.updated.len()), (0, 0));
            // The order in which the rows are read does not change the fingerprints.
            let mut reversed = after.clone();
            reversed.reverse();
            reads.known = first;
            let found_reversed = reads.read(2, &reversed);
            prop_assert_eq!(found_reversed.fingerprints, found.fingerprints);
        }
    }
}
