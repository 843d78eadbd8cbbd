//! Finds new and changed rows: compares the rows that a sync read with the stored fingerprints. Pure.
//!
//! Rows that have disappeared are not reported.

use std::collections::HashMap;

use bellbird_domain::{Digest, Fingerprint};
use jiff::{SignedDuration, Timestamp};

/// The fingerprint of an unchanged row is written again only when it is older than this: once a day, not every sync.
const FINGERPRINT_REWRITE_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// The keyed digests of a row that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RowDigests {
    /// Digest of the account and the row's id.
    pub(super) row: Digest,
    /// Digest of all other fields.
    pub(super) content: Digest,
}

/// The meaning of two rows with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DuplicateIds {
    /// One row that was read twice, because the provider's list moved between pages. The later reading counts.
    SameRow,
    /// Two rows, such as equal trades on one day.
    DistinctRows,
}

/// The result of a comparison. Rows are named by their index among the rows that were read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Changes {
    /// Rows that were never seen before, in the order in which they were read.
    pub(super) new: Vec<usize>,
    /// Rows that were seen with another content, in the order in which they were read.
    pub(super) updated: Vec<usize>,
    /// Fingerprints to write: of new and updated rows, and of unchanged rows whose fingerprint is a day old.
    pub(super) fingerprints: Vec<Fingerprint>,
}

/// Compares the `seen` rows with the `known` fingerprints, each with the time at which it was last written.
///
/// A known row that was not seen is no change: it has disappeared, or is older than the date range. Rows with the same
/// id are compared by content. A row with a known content is unchanged. Each remaining row updates one of the remaining
/// known contents, as long as there are any. The others are new.
#[must_use]
pub(super) fn detect_changes(
    known: &[(Fingerprint, Timestamp)],
    seen: &[RowDigests],
    duplicate_ids: DuplicateIds,
    now: Timestamp,
) -> Changes {
    let mut known_rows: HashMap<Digest, Vec<&(Fingerprint, Timestamp)>> = HashMap::new();
    for fingerprint in known {
        known_rows.entry(fingerprint.0.row).or_default().push(fingerprint);
    }
    let mut seen_rows: HashMap<Digest, Vec<usize>> = HashMap::with_capacity(seen.len());
    for (index, digests) in seen.iter().enumerate() {
        let indexes = seen_rows.entry(digests.row).or_default();
        if duplicate_ids == DuplicateIds::SameRow {
            indexes.clear();
        }
        indexes.push(index);
    }
    let mut changes = Changes::default();
    for (row, indexes) in seen_rows {
        compare_rows(known_rows.remove(&row).unwrap_or_default(), indexes, seen, now, &mut changes);
    }
    changes.new.sort_unstable();
    changes.updated.sort_unstable();
    changes.fingerprints.sort_unstable();
    changes
}

/// Compares the rows with one id.
fn compare_rows(
    mut known: Vec<&(Fingerprint, Timestamp)>,
    indexes: Vec<usize>,
    seen: &[RowDigests],
    now: Timestamp,
    changes: &mut Changes,
) {
    known.sort_unstable_by_key(|(fingerprint, _)| fingerprint.occurrence);
    let mut next_occurrence = known.last().map_or(0, |(fingerprint, _)| fingerprint.occurrence + 1);
    let mut unmatched = Vec::new();
    for index in indexes {
        let Some(at) = known.iter().position(|(fingerprint, _)| fingerprint.content == seen[index].content) else {
            unmatched.push(index);
            continue;
        };
        let (fingerprint, seen_at) = known.remove(at);
        if now.duration_since(*seen_at) >= FINGERPRINT_REWRITE_INTERVAL {
            changes.fingerprints.push(*fingerprint);
        }
    }
    // Sorted by content: the same rows get the same occurrence numbers in whatever order they were read.
    unmatched.sort_unstable_by_key(|index| seen[*index].content);
    let mut known = known.into_iter();
    for index in unmatched {
        let RowDigests { row, content } = seen[index];
        let occurrence = match known.next() {
            Some((fingerprint, _)) => {
                changes.updated.push(index);
                fingerprint.occurrence
            }
            None => {
                changes.new.push(index);
                next_occurrence += 1;
                next_occurrence - 1
            }
        };
        changes.fingerprints.push(Fingerprint { row, occurrence, content });
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
        rows.iter().map(|(row, content)| RowDigests { row: digest(*row), content: digest(*content) }).collect()
    }

    fn now() -> Timestamp {
        "2026-11-20T09:30:00Z".parse().unwrap()
    }

    /// The stored fingerprints after a sync.
    fn after_sync(known: &[(Fingerprint, Timestamp)], found: &Changes) -> Vec<(Fingerprint, Timestamp)> {
        let mut all: BTreeMap<(Digest, u32), (Fingerprint, Timestamp)> =
            known.iter().map(|entry| ((entry.0.row, entry.0.occurrence), *entry)).collect();
        for fingerprint in &found.fingerprints {
            all.insert((fingerprint.row, fingerprint.occurrence), (*fingerprint, now()));
        }
        all.into_values().collect()
    }

    fn rows(found: &[usize], seen: &[RowDigests]) -> Vec<(u8, u8)> {
        found.iter().map(|index| (seen[*index].row.0[0], seen[*index].content.0[0])).collect()
    }

    #[test]
    fn second_of_two_equal_trades_is_new() {
        let first = seen(&[(1, 1)]);
        let known = after_sync(&[], &detect_changes(&[], &first, DuplicateIds::DistinctRows, now()));
        let second = seen(&[(1, 1), (1, 1)]);
        let found = detect_changes(&known, &second, DuplicateIds::DistinctRows, now());
        assert_eq!(found.new.len(), 1);
        assert_eq!(found.updated.len(), 0);
        let known = after_sync(&known, &found);
        assert_eq!(known.iter().map(|(fingerprint, _)| fingerprint.occurrence).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(detect_changes(&known, &second, DuplicateIds::DistinctRows, now()), Changes::default());
    }

    #[test]
    fn row_read_twice_counts_once() {
        let twice = seen(&[(1, 1), (2, 1), (1, 9)]);
        let found = detect_changes(&[], &twice, DuplicateIds::SameRow, now());
        assert_eq!(found.new, [1, 2]);
        assert_eq!(found.fingerprints.len(), 2);
    }

    #[test]
    fn unchanged_row_is_rewritten_once_a_day() {
        let all = seen(&[(1, 1)]);
        let fingerprints = detect_changes(&[], &all, DuplicateIds::SameRow, now()).fingerprints;
        for (hours, rewritten) in [(0, 0), (23, 0), (24, 1), (48, 1)] {
            let known = [(fingerprints[0], now() - SignedDuration::from_hours(hours))];
            let found = detect_changes(&known, &all, DuplicateIds::SameRow, now());
            assert_eq!(found.new.len() + found.updated.len(), 0, "{hours}");
            assert_eq!(found.fingerprints.len(), rewritten, "{hours}");
        }
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
            let known = after_sync(&[], &detect_changes(&[], &first, DuplicateIds::SameRow, now()));
            prop_assert_eq!(known.len(), before.len());

            let mut read = pairs(&after);
            if !read.is_empty() {
                let repeated: Vec<_> = repeats.iter().map(|index| read[index.index(after.len())]).collect();
                read.extend(repeated);
            }
            let mut shuffled: Vec<_> = read.into_iter().zip(order).collect();
            shuffled.sort_by_key(|(_, key)| *key);
            let read = seen(&shuffled.into_iter().map(|(row, _)| row).collect::<Vec<_>>());

            let found = detect_changes(&known, &read, DuplicateIds::SameRow, now());
            let sorted = |mut rows: Vec<(u8, u8)>| { rows.sort_unstable(); rows };
            let new: Vec<_> = pairs(&after).into_iter().filter(|(row, _)| !before.contains_key(row)).collect();
            let is_updated = |(row, content): &(u8, u8)| before.get(row).is_some_and(|old| old != content);
            let updated: Vec<_> = pairs(&after).into_iter().filter(is_updated).collect();
            prop_assert_eq!(sorted(rows(&found.new, &read)), new);
            prop_assert_eq!(sorted(rows(&found.updated, &read)), updated);

            // Nothing is reported twice, not even a row that disappeared and reappears unchanged.
            let known = after_sync(&known, &found);
            prop_assert_eq!(detect_changes(&known, &read, DuplicateIds::SameRow, now()), Changes::default());
            let mut reappeared = pairs(&before);
            reappeared.retain(|(row, _)| !after.contains_key(row));
            let reappeared = seen(&reappeared);
            prop_assert_eq!(detect_changes(&known, &reappeared, DuplicateIds::SameRow, now()), Changes::default());
        }

        /// The model for rows that share ids: two multisets of contents for each id. Contents in both are unchanged. Of
        /// the rest, as many rows as both sides have are updated, and further rows are new.
        #[test]
        fn trades_agree_with_multisets(
            before in proptest::collection::vec((0_u8..4, 0_u8..3), 0..12),
            after in proptest::collection::vec((0_u8..4, 0_u8..3), 0..12).prop_shuffle(),
        ) {
            let first = seen(&before);
            let known = after_sync(&[], &detect_changes(&[], &first, DuplicateIds::DistinctRows, now()));
            prop_assert_eq!(known.len(), before.len());
            let read = seen(&after);
            let found = detect_changes(&known, &read, DuplicateIds::DistinctRows, now());
            for id in 0..4 {
                let copies = |rows: &[(u8, u8)], content| rows.iter().filter(|row| **row == (id, content)).count();
                let same: usize = (0..3).map(|content| copies(&before, content).min(copies(&after, content))).sum();
                let count = |rows: &[(u8, u8)]| rows.iter().filter(|(row, _)| *row == id).count();
                let (gone, added) = (count(&before) - same, count(&after) - same);
                prop_assert_eq!(count(&rows(&found.updated, &read)), gone.min(added));
                prop_assert_eq!(count(&rows(&found.new, &read)), added - gone.min(added));
            }
            let known = after_sync(&known, &found);
            prop_assert_eq!(detect_changes(&known, &read, DuplicateIds::DistinctRows, now()), Changes::default());
            // The order in which the rows are read does not change the fingerprints.
            let mut reversed = after.clone();
            reversed.reverse();
            let known = after_sync(&[], &detect_changes(&[], &first, DuplicateIds::DistinctRows, now()));
            let found_reversed = detect_changes(&known, &seen(&reversed), DuplicateIds::DistinctRows, now());
            prop_assert_eq!(found_reversed.fingerprints, found.fingerprints);
        }
    }
}
