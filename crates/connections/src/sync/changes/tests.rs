//! Comparisons of rows with stored fingerprints.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::sync::following::{ChangesSince, Followed};
use DuplicateIds::{DistinctRows, SameRow};

const ACCOUNT: AccountTag = AccountTag(7);
/// The days of the range that every read covers, and one of a row outside of it.
const DAYS: [u16; 2] = [100, 200];

fn seen(rows: &[(u8, u8)]) -> Vec<RowDigests> {
    rows.iter()
        .map(|(row, content)| row_digests(*row, *content))
        .collect()
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
    coverage: Coverage,
    removal_hints: HashSet<Digest>,
}

impl Reads {
    fn new(duplicate_ids: DuplicateIds) -> Self {
        let coverage = Coverage {
            days: UtcDay(DAYS[0])..=UtcDay(DAYS[1]),
            first_certain_day: UtcDay(DAYS[0]),
            accounts: HashSet::from([ACCOUNT]),
            unreadable: HashSet::new(),
        };
        let (known, hasher) = (Fingerprints::default(), RowHasher::new(&[7; 32]));
        Self {
            known,
            duplicate_ids,
            hasher,
            coverage,
            removal_hints: HashSet::new(),
        }
    }

    /// From now on, each read has a row that cannot be read, which may be any row.
    fn cover_nothing(&mut self) {
        self.coverage.unreadable.insert(None);
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
            coverage: &self.coverage,
            removal_hints: &self.removal_hints,
        };
        let found = detect_changes(&self.known, seen, &reading);
        if let Some(after) = &found.fingerprints {
            // Sorted, without repetitions.
            assert!(after.rows.is_sorted_by(|one, other| one.id() < other.id()));
            assert!(after.change_versions.is_sorted_by(|one, other| one < other));
            let keys: HashSet<RowKey> = after.rows.iter().map(|row| row.key).collect();
            assert_eq!(keys.len(), after.rows.len(), "keys are unique");
            self.known = after.clone();
        }
        found
    }

    /// Row, occurrence, and the hours of the reads that saw the row first and its present content.
    fn change_versions(&self) -> Vec<(u8, u32, i64, i64)> {
        let hour = |change_version: u32| (i64::from(change_version) - hours(0).as_second()) / 3600;
        let entry = |row: &Fingerprint| {
            let versions = [row.first_version, row.changed_version];
            let [first, changed] = versions.map(hour);
            (row.digests.row.0[0], row.occurrence, first, changed)
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
    assert_eq!(reads.change_versions(), [(1, 0, 1, 1), (1, 1, 2, 2)]);
    assert_eq!(reads.read(3, &[(1, 1), (1, 1)]), Changes::default());
}

#[test]
fn row_read_twice_counts_once() {
    let mut reads = Reads::new(SameRow);
    let rows = [(1, 1), (2, 1), (1, 9)];
    assert_eq!(indexes(&reads.read(1, &rows).new), [0, 1]);
    // The first reading, as in a page of changes.
    let known = reads.known.rows.iter();
    let contents: Vec<u8> = known.map(|row| row.digests.content.0[0]).collect();
    assert_eq!(contents, [1, 1]);
    assert_eq!(reads.read(2, &rows), Changes::default());
}

/// A list that always has a row twice, with two contents.
#[test]
fn row_with_two_readings_is_given_once() {
    let mut reads = Reads::new(SameRow);
    let rows = seen(&[(1, 1), (2, 1), (1, 9)]);
    reads.read_digests(1, &rows);
    let since = ChangesSince::Mark {
        mark: 0,
        pending: &[],
    };
    let mut followed = Followed::new(&reads.hasher, &reads.known, SameRow, UtcDay(0), since, None);
    let given: Vec<usize> = (0..3)
        .filter(|at| followed.take(&rows[*at]).is_some())
        .collect();
    assert_eq!(given, [0, 1]);
}

#[test]
fn marks_say_which_read_saw_a_row_first_and_changed() {
    let mut reads = Reads::new(SameRow);
    reads.cover_nothing();
    for (hour, rows, expected) in [
        (
            1,
            [(1, 1), (2, 11)].as_slice(),
            [(1, 0, 1, 1), (2, 0, 1, 1)].as_slice(),
        ),
        (
            2,
            &[(1, 1), (2, 12), (3, 21)],
            &[(1, 0, 1, 1), (2, 0, 1, 2), (3, 0, 2, 2)],
        ),
        (3, &[(1, 1)], &[(1, 0, 1, 1), (2, 0, 1, 2), (3, 0, 2, 2)]),
        (4, &[(2, 11)], &[(1, 0, 1, 1), (2, 0, 1, 4), (3, 0, 2, 2)]),
        // Rows that are too old are forgotten, and new when they are seen again.
        (80, &[(2, 11)], &[(2, 0, 1, 4)]),
        (81, &[(1, 1)], &[(1, 0, 81, 81), (2, 0, 1, 4)]),
    ] {
        reads.read(hour, rows);
        assert_eq!(reads.change_versions(), expected, "{hour}");
    }
    let change_version = |hour: i64| Fingerprint::seconds(hours(hour));
    // Row 3 was forgotten, and read 3 found nothing.
    assert!(!reads.known.reach_back_to(0));
    let reached = [1, 2, 3, 4, 81].map(|hour| reads.known.reach_back_to(change_version(hour)));
    assert_eq!(reached, [false, true, false, true, true]);
}

#[test]
fn unchanged_rows_are_rewritten_once_a_day() {
    for (hour, rows, rewritten) in [
        (0, 2, false),
        (23, 2, false),
        (24, 1, true),
        (48, 2, true),
        (48, 0, false),
    ] {
        let mut reads = Reads::new(SameRow);
        reads.cover_nothing();
        let all = [(1, 1), (2, 2)];
        reads.read(0, &all);
        let before = reads.change_versions();
        let found = reads.read(hour, &all[..rows]);
        assert_eq!((found.new.len(), found.updated.len()), (0, 0), "{hour}");
        assert_eq!(found.fingerprints.is_some(), rewritten, "{hour}");
        assert_eq!(reads.change_versions(), before, "{hour}");
        if rewritten {
            let now = Fingerprint::seconds(hours(hour));
            let known = reads.known.rows.iter();
            let seen = known.filter(|row| row.seen_at == now).count();
            assert_eq!(seen, rows, "{hour}");
        }
    }
}

#[test]
fn fingerprints_out_of_range_are_deleted() {
    for (hour, left) in [(72, 2), (73, 0)] {
        let mut reads = Reads::new(SameRow);
        reads.cover_nothing();
        reads.read(0, &[(1, 1), (2, 2)]);
        reads.read(hour, &[]);
        assert_eq!(reads.known.rows.len(), left, "{hour}");
    }
    let mut reads = Reads::new(SameRow);
    reads.read(0, &[(1, 1), (2, 2)]);
    reads.cover_nothing();
    reads.read(500, &[(2, 2)]);
    // A row that is seen stays, however old.
    assert_eq!(reads.change_versions(), [(2, 0, 0, 0)]);
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
    let found = reads.read(2, &[(1, 1), (2, 2)]);
    assert_eq!(found.updated, [], "not reported again");
    // But for clients that follow.
    assert_eq!(reads.change_versions(), [(1, 0, 0, 2), (2, 0, 0, 0)]);
    for hour in [3, 4, 30] {
        reads.read(hour, &[(2, 2)]);
    }
    assert!(reads.known.rows[0].is_gone);
    let found = reads.read(31, &[(1, 1), (2, 2)]);
    assert_eq!(indexes(&found.updated), [0], "it was reported as gone");
    assert_eq!(reads.change_versions()[0], (1, 0, 0, 31));
    assert_eq!(reads.keys(), keys);
}

/// Takes a part out of what a run has read.
type Lack = fn(&mut Coverage);

/// Runs that have not read all that row 1 may be.
const PARTIAL: [(&str, Lack); 4] = [
    ("another account", |coverage| {
        coverage.accounts = HashSet::from([AccountTag(8)]);
    }),
    ("later days", |coverage| {
        (coverage.days, coverage.first_certain_day) = (UtcDay(151)..=UtcDay(200), UtcDay(151));
    }),
    ("an unreadable row of the day", |coverage| {
        coverage.unreadable = HashSet::from([Some(UtcDay(150))]);
    }),
    ("an unreadable row of any day", |coverage| {
        coverage.unreadable = HashSet::from([None]);
    }),
];

#[test]
fn only_covered_rows_are_missed() {
    for (name, change) in PARTIAL {
        let mut reads = Reads::new(SameRow);
        reads.read(0, &[(1, 1), (2, 2)]);
        change(&mut reads.coverage);
        for hour in [1, 2, 3, 30, 60] {
            assert_eq!(reads.read(hour, &[(2, 2)]).gone, [], "{name}");
        }
    }
}

/// A new row may look like a known one that was not read.
#[test]
fn only_covered_rows_are_found_under_another_id() {
    for (name, change) in &PARTIAL[..3] {
        let mut reads = Reads::new(SameRow);
        reads.read(0, &[(1, 1), (2, 2)]);
        let keys = reads.keys();
        change(&mut reads.coverage);
        let found = reads.read(1, &[(2, 2), (11, 1)]);
        assert_eq!(indexes(&found.new), [1], "{name}");
        assert_eq!(reads.keys()[..2], keys, "{name}");
    }
    let mut reads = Reads::new(SameRow);
    reads.read(0, &[(1, 1)]);
    reads.coverage.unreadable = HashSet::from([Some(UtcDay(149)), None]);
    reads.coverage.first_certain_day = UtcDay(152);
    // An unreadable row of another day, or an unknown one.
    assert_eq!(reads.read(1, &[(11, 1)]).new, []);
}

#[test]
fn provider_says_that_a_row_is_gone() {
    let mut reads = Reads::new(SameRow);
    reads.read(0, &[(1, 1), (2, 2)]);
    reads.removal_hints = HashSet::from([Digest([1; 16]), Digest([2; 16])]);
    let found = reads.read(1, &[(2, 2)]);
    let gone: Vec<_> = found.gone.iter().map(|gone| gone.digests.row).collect();
    assert_eq!(gone, [Digest([1; 16])]);
    assert_eq!(found.removal_hints, [], "both are checked");
}

#[test]
fn hint_waits_for_a_run_that_reads_the_row() {
    for (name, change) in PARTIAL {
        let mut reads = Reads::new(SameRow);
        reads.read(0, &[(1, 1), (2, 2)]);
        reads.removal_hints = HashSet::from([Digest([1; 16]), Digest([2; 16]), Digest([3; 16])]);
        let usual = reads.coverage.clone();
        change(&mut reads.coverage);
        let found = reads.read(1, &[(2, 2)]);
        assert_eq!(found.gone, [], "{name}");
        assert_eq!(found.removal_hints, [Digest([1; 16])], "{name}");
        (reads.coverage, reads.removal_hints) = (usual, found.removal_hints.into_iter().collect());
        let found = reads.read(2, &[(2, 2)]);
        assert_eq!(found.gone.len(), 1, "{name}");
        assert_eq!(found.removal_hints, [], "{name}");
    }
}

#[test]
fn row_under_another_id_keeps_its_key_and_is_no_news() {
    let mut reads = Reads::new(SameRow);
    // 3 and 4 look alike, but differ in another field.
    reads.read(0, &[(1, 1), (2, 2), (3, 3), (4, 103)]);
    let [one, two, three, four] = reads.keys()[..] else {
        panic!("four rows")
    };
    let found = reads.read(1, &[(14, 103), (12, 2), (13, 3), (11, 101), (15, 5)]);
    assert_eq!(indexes(&found.new), [4]);
    assert_eq!(indexes(&found.updated), [3], "only one row changed");
    let key = |row: u8| {
        let mut known = reads.known.rows.iter();
        let own = known.find(|known| known.digests.row.0[0] == row);
        own.unwrap().key
    };
    assert_eq!([11, 12, 13, 14].map(key), [one, two, three, four]);
    let unchanged = [(12, 0, 0, 0), (13, 0, 0, 0), (14, 0, 0, 0)];
    assert_eq!(reads.change_versions()[1..4], unchanged);
    // The first ids come back for other rows: keys stay unique, which each read checks.
    let rows = [(14, 103), (12, 2), (13, 3), (11, 101), (15, 5), (1, 50)];
    let found = reads.read(2, &rows);
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
    let content =
        |number: u64| ContentDigest(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    let rows = |numbers: std::ops::Range<u64>| -> Vec<RowDigests> {
        let row = |number| RowDigests {
            content: content(number),
            likeness: content(number),
            ..row_digests(1, 1)
        };
        numbers.map(row).collect()
    };
    let mut reads = Reads::new(DistinctRows);
    reads.read_digests(1, &rows(0..100_000));
    let found = reads.read_digests(2, &rows(50_000..150_000));
    assert_eq!((found.new.len(), found.updated.len()), (0, 50_000));
}

/// Contents of rows by their id. No two rows look alike.
fn contents_by_id() -> impl Strategy<Value = BTreeMap<u8, u8>> {
    let unlike = |(id, content): (u8, u8)| (id, id * 8 + content);
    prop::collection::btree_map(0_u8..12, 0_u8..4, 0..12)
        .prop_map(move |contents| contents.into_iter().map(unlike).collect())
}

proptest! {
    /// The model for rows with unique ids: two maps, compared key by key. The order of the pages
    /// and rows that are read twice make no difference.
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

    /// The model for rows that share ids: two multisets of contents for each id. Contents in both
    /// are unchanged. Of the rest, as many rows as both sides have are updated, and further rows
    /// are new.
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
