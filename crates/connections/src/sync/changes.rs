//! Finds new and changed rows: compares the rows that a sync read with the stored fingerprints. Pure.
//!
//! Rows that have disappeared are not reported.

use std::cmp::Reverse;

use bellbird_domain::{ContentDigest, Digest, Fingerprint};
use jiff::{SignedDuration, Timestamp};

/// Fingerprints of which nothing changed are written again only when one of them is older than this: once a day, not
/// every sync.
const REWRITE_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// The keyed digests of a row that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RowDigests {
    /// Digest of the account and the row's id.
    pub(super) row: Digest,
    /// Digest of all other fields.
    pub(super) content: ContentDigest,
}

/// The meaning of two rows with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DuplicateIds {
    /// One row that was read twice, because the provider's list moved between pages. The later reading counts.
    SameRow,
    /// Two rows, such as equal trades on one day.
    DistinctRows,
}

/// The sync that read the rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    /// The number of the sync among those of the connection.
    pub(super) sequence: u32,
    pub(super) now: Timestamp,
    /// Fingerprints that were last seen before this time are deleted.
    pub(super) prune_before: Timestamp,
}

/// The result of a comparison. Rows are named by their index among the rows that were read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Changes {
    /// Rows that were never seen before, in the order in which they were read.
    pub(super) new: Vec<usize>,
    /// Rows that were seen with another content, in the order in which they were read.
    pub(super) updated: Vec<usize>,
    /// All fingerprints of the connection, sorted. None if the stored ones are good for another day.
    pub(super) fingerprints: Option<Vec<Fingerprint>>,
}

/// Compares the rows that were read, `seen`, with the stored fingerprints, which are sorted.
///
/// A known row that was not seen is no change: it has disappeared, or is older than the date range. Rows with the same
/// id are compared by content. A row with a known content is unchanged. Each remaining row updates one of the remaining
/// known contents, as long as there are any. The others are new.
pub(super) fn detect_changes(
    known: &[Fingerprint],
    seen: &[RowDigests],
    duplicate_ids: DuplicateIds,
    reading: &Reading,
) -> Changes {
    // Each row with its index. Rows with the same id and content come in the order in which they were read.
    let mut order: Vec<(RowDigests, usize)> = seen.iter().copied().zip(0..).collect();
    match duplicate_ids {
        DuplicateIds::SameRow => {
            order.sort_unstable_by_key(|(digests, index)| (digests.row, Reverse(*index)));
            order.dedup_by_key(|(digests, _)| digests.row);
        }
        DuplicateIds::DistinctRows => order.sort_unstable(),
    }
    let mut merge = Merge::new(reading, known.len() + order.len());
    let mut known = known.chunk_by(|one, other| one.row == other.row).peekable();
    for rows in order.chunk_by(|(one, _), (other, _)| one.row == other.row) {
        let row = rows[0].0.row;
        while let Some(unseen) = known.next_if(|group| group[0].row < row) {
            merge.keep(unseen);
        }
        merge.compare(known.next_if(|group| group[0].row == row).unwrap_or_default(), rows);
    }
    known.for_each(|unseen| merge.keep(unseen));
    merge.finish()
}

/// The merge of stored fingerprints with the rows that were read, one row id after the other.
struct Merge {
    sequence: u32,
    now: u32,
    /// An unchanged fingerprint of this time or earlier is a reason to write.
    rewrite_at: u32,
    prune_before: u32,
    new: Vec<usize>,
    updated: Vec<usize>,
    merged: Vec<Fingerprint>,
    is_due: bool,
    /// Known fingerprints of one row by content. Kept to allocate once.
    by_content: Vec<Fingerprint>,
    unmatched: Vec<(RowDigests, usize)>,
}

impl Merge {
    fn new(reading: &Reading, capacity: usize) -> Self {
        let rewrite_at = reading.now.saturating_sub(REWRITE_INTERVAL).unwrap_or(Timestamp::MIN);
        Self {
            sequence: reading.sequence,
            now: Fingerprint::seconds(reading.now),
            rewrite_at: Fingerprint::seconds(rewrite_at),
            prune_before: Fingerprint::seconds(reading.prune_before),
            new: Vec::new(),
            updated: Vec::new(),
            merged: Vec::with_capacity(capacity),
            is_due: false,
            by_content: Vec::new(),
            unmatched: Vec::new(),
        }
    }

    /// Keeps fingerprints of a row that was not seen, unless they are too old.
    fn keep(&mut self, unseen: &[Fingerprint]) {
        let before = self.merged.len();
        self.merged.extend(unseen.iter().filter(|fingerprint| fingerprint.seen_at >= self.prune_before));
        self.is_due |= self.merged.len() - before < unseen.len();
    }

    /// Compares the rows with one id. Both lists may be long: a hostile provider can give all rows the same id.
    fn compare(&mut self, known: &[Fingerprint], rows: &[(RowDigests, usize)]) {
        let first_of_row = self.merged.len();
        let mut next_occurrence = known.last().map_or(0, |last| last.occurrence + 1);
        self.by_content.clear();
        self.by_content.extend_from_slice(known);
        self.by_content.sort_unstable_by_key(|fingerprint| (fingerprint.content, fingerprint.occurrence));
        self.unmatched.clear();
        let mut changed = Vec::new();
        let mut known = self.by_content.iter().peekable();
        for row in rows {
            while let Some(other) = known.next_if(|fingerprint| fingerprint.content < row.0.content) {
                changed.push(*other);
            }
            match known.next_if(|fingerprint| fingerprint.content == row.0.content) {
                Some(same) => {
                    self.is_due |= same.seen_at <= self.rewrite_at;
                    self.merged.push(Fingerprint { seen_at: self.now.max(same.seen_at), ..*same });
                }
                None => self.unmatched.push(*row),
            }
        }
        changed.extend(known);
        changed.sort_unstable_by_key(|fingerprint| fingerprint.occurrence);
        let mut changed = changed.into_iter();
        // Sorted by content: the same rows get the same occurrence numbers in whatever order they were read.
        for (RowDigests { row, content }, index) in &self.unmatched {
            let (occurrence, first_sequence) = if let Some(before) = changed.next() {
                self.updated.push(*index);
                (before.occurrence, before.first_sequence)
            } else {
                self.new.push(*index);
                next_occurrence += 1;
                (next_occurrence - 1, self.sequence)
            };
            self.merged.push(Fingerprint {
                row: *row,
                occurrence,
                content: *content,
                seen_at: self.now,
                first_sequence,
                changed_sequence: self.sequence,
            });
        }
        self.keep(changed.as_slice());
        self.merged[first_of_row..].sort_unstable_by_key(|fingerprint| fingerprint.occurrence);
    }

    fn finish(mut self) -> Changes {
        self.new.sort_unstable();
        self.updated.sort_unstable();
        let must_write = self.is_due || !self.new.is_empty() || !self.updated.is_empty();
        Changes { new: self.new, updated: self.updated, fingerprints: must_write.then_some(self.merged) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn digest(number: u8) -> Digest {
        Digest([number; 16])
    }

    fn seen(rows: &[(u8, u8)]) -> Vec<RowDigests> {
        rows.iter()
            .map(|(row, content)| RowDigests { row: digest(*row), content: ContentDigest([*content; 8]) })
            .collect()
    }

    fn now() -> Timestamp {
        "2026-11-20T09:30:00Z".parse().unwrap()
    }

    /// A sync with this sequence number, as many hours later.
    fn reading(sequence: u32) -> Reading {
        let now = now() + SignedDuration::from_hours(i64::from(sequence));
        Reading { sequence, now, prune_before: now - SignedDuration::from_hours(72) }
    }

    /// The stored fingerprints after a sync.
    fn after_sync(known: &[Fingerprint], found: &Changes) -> Vec<Fingerprint> {
        let all = found.fingerprints.clone().unwrap_or_else(|| known.to_vec());
        assert!(all.is_sorted_by(|one, other| one.key() < other.key()), "sorted, without repetitions");
        all
    }

    fn sequences(known: &[Fingerprint]) -> Vec<(u8, u32, u32, u32)> {
        let entry =
            |known: &Fingerprint| (known.row.0[0], known.occurrence, known.first_sequence, known.changed_sequence);
        known.iter().map(entry).collect()
    }

    fn rows(found: &[usize], seen: &[RowDigests]) -> Vec<(u8, u8)> {
        found.iter().map(|index| (seen[*index].row.0[0], seen[*index].content.0[0])).collect()
    }

    #[test]
    fn second_of_two_equal_trades_is_new() {
        let known = after_sync(&[], &detect_changes(&[], &seen(&[(1, 1)]), DuplicateIds::DistinctRows, &reading(1)));
        let second = seen(&[(1, 1), (1, 1)]);
        let found = detect_changes(&known, &second, DuplicateIds::DistinctRows, &reading(2));
        assert_eq!((found.new.as_slice(), found.updated.as_slice()), ([1].as_slice(), [].as_slice()));
        let known = after_sync(&known, &found);
        assert_eq!(sequences(&known), [(1, 0, 1, 1), (1, 1, 2, 2)]);
        assert_eq!(detect_changes(&known, &second, DuplicateIds::DistinctRows, &reading(3)), Changes::default());
    }

    #[test]
    fn row_read_twice_counts_once() {
        let twice = seen(&[(1, 1), (2, 1), (1, 9)]);
        let found = detect_changes(&[], &twice, DuplicateIds::SameRow, &reading(1));
        assert_eq!(found.new, [1, 2]);
        let known = after_sync(&[], &found);
        assert_eq!(known.iter().map(|known| known.content.0[0]).collect::<Vec<_>>(), [9, 1], "the later reading");
    }

    #[test]
    fn sequence_says_which_sync_saw_a_row_first_and_changed() {
        let mut known = Vec::new();
        for (sequence, rows, expected) in [
            (1, [(1, 1), (2, 1)].as_slice(), [(1, 0, 1, 1), (2, 0, 1, 1)].as_slice()),
            (2, &[(1, 1), (2, 2), (3, 1)], &[(1, 0, 1, 1), (2, 0, 1, 2), (3, 0, 2, 2)]),
            (3, &[(1, 1)], &[(1, 0, 1, 1), (2, 0, 1, 2), (3, 0, 2, 2)]),
            (4, &[(2, 1)], &[(1, 0, 1, 1), (2, 0, 1, 4), (3, 0, 2, 2)]),
            // Rows that are too old are gone, and new when they are seen again.
            (80, &[(2, 1)], &[(2, 0, 1, 4)]),
            (81, &[(1, 1)], &[(1, 0, 81, 81), (2, 0, 1, 4)]),
        ] {
            let found = detect_changes(&known, &seen(rows), DuplicateIds::SameRow, &reading(sequence));
            known = after_sync(&known, &found);
            assert_eq!(sequences(&known), expected, "{sequence}");
        }
    }

    #[test]
    fn unchanged_rows_are_rewritten_once_a_day() {
        let all = seen(&[(1, 1), (2, 1)]);
        let known = after_sync(&[], &detect_changes(&[], &all, DuplicateIds::SameRow, &reading(0)));
        for (hours, rows, rewritten) in [(0, 2, false), (23, 2, false), (24, 1, true), (48, 2, true), (48, 0, false)] {
            let found = detect_changes(&known, &all[..rows], DuplicateIds::SameRow, &reading(hours));
            assert_eq!((found.new.len(), found.updated.len()), (0, 0), "{hours}");
            let Some(after) = found.fingerprints else {
                assert!(!rewritten, "{hours}");
                continue;
            };
            assert!(rewritten, "{hours}");
            assert_eq!(sequences(&after), sequences(&known), "{hours}");
            let fresh = after.iter().filter(|row| row.seen_at == Fingerprint::seconds(reading(hours).now)).count();
            assert_eq!(fresh, rows, "{hours}");
        }
    }

    #[test]
    fn fingerprints_out_of_range_are_deleted() {
        let known = after_sync(&[], &detect_changes(&[], &seen(&[(1, 1), (2, 1)]), DuplicateIds::SameRow, &reading(0)));
        for (hours, left) in [(72, None), (73, Some(1))] {
            let found = detect_changes(&known[..1], &seen(&[]), DuplicateIds::SameRow, &reading(hours));
            assert_eq!(found.fingerprints.map(|all| 1 - all.len()), left, "{hours}");
        }
        let found = detect_changes(&known, &seen(&[(2, 1)]), DuplicateIds::SameRow, &reading(500));
        assert_eq!(sequences(&found.fingerprints.unwrap()), [(2, 0, 0, 0)], "a row that is seen stays, however old");
    }

    /// All rows may have one id. A quadratic comparison of these would take minutes.
    #[test]
    fn many_rows_with_one_id_are_compared_quickly() {
        let content = |number: u64| ContentDigest(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        let rows = |numbers: std::ops::Range<u64>| -> Vec<RowDigests> {
            numbers.map(|number| RowDigests { row: digest(1), content: content(number) }).collect()
        };
        let known = after_sync(&[], &detect_changes(&[], &rows(0..200_000), DuplicateIds::DistinctRows, &reading(1)));
        let found = detect_changes(&known, &rows(100_000..300_000), DuplicateIds::DistinctRows, &reading(2));
        assert_eq!((found.new.len(), found.updated.len()), (0, 100_000));
    }

    /// Contents of rows by their id.
    fn contents_by_id() -> impl Strategy<Value = BTreeMap<u8, u8>> {
        proptest::collection::btree_map(0_u8..12, 0_u8..4, 0..12)
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
            let first = seen(&pairs(&before));
            let known = after_sync(&[], &detect_changes(&[], &first, DuplicateIds::SameRow, &reading(1)));
            prop_assert_eq!(known.len(), before.len());

            let mut read = pairs(&after);
            if !read.is_empty() {
                let repeated: Vec<_> = repeats.iter().map(|index| read[index.index(after.len())]).collect();
                read.extend(repeated);
            }
            let mut shuffled: Vec<_> = read.into_iter().zip(order).collect();
            shuffled.sort_by_key(|(_, key)| *key);
            let read = seen(&shuffled.into_iter().map(|(row, _)| row).collect::<Vec<_>>());

            let found = detect_changes(&known, &read, DuplicateIds::SameRow, &reading(1));
            let sorted = |mut rows: Vec<(u8, u8)>| { rows.sort_unstable(); rows };
            let new: Vec<_> = pairs(&after).into_iter().filter(|(row, _)| !before.contains_key(row)).collect();
            let is_updated = |(row, content): &(u8, u8)| before.get(row).is_some_and(|old| old != content);
            let updated: Vec<_> = pairs(&after).into_iter().filter(is_updated).collect();
            prop_assert_eq!(sorted(rows(&found.new, &read)), new);
            prop_assert_eq!(sorted(rows(&found.updated, &read)), updated);

            // Nothing is reported twice, not even a row that disappeared and reappears unchanged.
            let known = after_sync(&known, &found);
            prop_assert_eq!(detect_changes(&known, &read, DuplicateIds::SameRow, &reading(1)), Changes::default());
            let mut reappeared = pairs(&before);
            reappeared.retain(|(row, _)| !after.contains_key(row));
            let reappeared = seen(&reappeared);
            let found = detect_changes(&known, &reappeared, DuplicateIds::SameRow, &reading(1));
            prop_assert_eq!(found, Changes::default());
        }

        /// The model for rows that share ids: two multisets of contents for each id. Contents in both are unchanged. Of
        /// the rest, as many rows as both sides have are updated, and further rows are new.
        #[test]
        fn trades_agree_with_multisets(
            before in proptest::collection::vec((0_u8..4, 0_u8..3), 0..12),
            after in proptest::collection::vec((0_u8..4, 0_u8..3), 0..12).prop_shuffle(),
        ) {
            let first = seen(&before);
            let known = after_sync(&[], &detect_changes(&[], &first, DuplicateIds::DistinctRows, &reading(1)));
            prop_assert_eq!(known.len(), before.len());
            let read = seen(&after);
            let found = detect_changes(&known, &read, DuplicateIds::DistinctRows, &reading(1));
            for id in 0..4 {
                let copies = |rows: &[(u8, u8)], content| rows.iter().filter(|row| **row == (id, content)).count();
                let same: usize = (0..3).map(|content| copies(&before, content).min(copies(&after, content))).sum();
                let count = |rows: &[(u8, u8)]| rows.iter().filter(|(row, _)| *row == id).count();
                let (gone, added) = (count(&before) - same, count(&after) - same);
                prop_assert_eq!(count(&rows(&found.updated, &read)), gone.min(added));
                prop_assert_eq!(count(&rows(&found.new, &read)), added - gone.min(added));
            }
            let known = after_sync(&known, &found);
            prop_assert_eq!(detect_changes(&known, &read, DuplicateIds::DistinctRows, &reading(1)), Changes::default());
            // The order in which the rows are read does not change the fingerprints.
            let mut reversed = after.clone();
            reversed.reverse();
            let known = after_sync(&[], &detect_changes(&[], &first, DuplicateIds::DistinctRows, &reading(1)));
            let found_reversed = detect_changes(&known, &seen(&reversed), DuplicateIds::DistinctRows, &reading(1));
            prop_assert_eq!(found_reversed.fingerprints, found.fingerprints);
        }
    }
}
