//! What is new and what has changed: rows that were read, against the marks of those that were seen before. Pure.

use std::collections::HashMap;

use bellbird_domain::{Digest, Mark};
use jiff::{SignedDuration, Timestamp};

/// An unchanged row's mark is written again only when it is older than this: one write a day, not one a sync.
const NOTED_AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// A row that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    /// Of its account and id.
    pub(super) row: Digest,
    /// Of all else.
    pub(super) content: Digest,
}

/// What it means that two rows have one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeats {
    /// They are one row, read twice: the provider's list moved while it was read. The later reading counts.
    OneRow,
    /// They are two rows.
    SeveralRows,
}

/// What came of the comparison. Rows are named by their places in what was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Changes {
    /// Rows that were never seen, as they were read.
    pub(super) new: Vec<usize>,
    /// Rows that were seen with another content, as they were read.
    pub(super) updated: Vec<usize>,
    /// What is to be remembered: of those, and of unchanged rows that were not noted for a day.
    pub(super) marks: Vec<Mark>,
}

/// Compares what was `seen` with what is `known`, each mark with the time at which it was noted. A known row that was not
/// seen is no change: it has vanished, or is older than the window.
///
/// Among several rows of one id, those with a content that is known are unchanged; of the others, as many as there are
/// known contents left have changed, and the rest are new.
#[must_use]
pub(super) fn changes(known: &[(Mark, Timestamp)], seen: &[Seen], repeats: Repeats, now: Timestamp) -> Changes {
    let mut known_rows: HashMap<Digest, Vec<&(Mark, Timestamp)>> = HashMap::new();
    for mark in known {
        known_rows.entry(mark.0.row).or_default().push(mark);
    }
    let mut seen_rows: HashMap<Digest, Vec<usize>> = HashMap::with_capacity(seen.len());
    for (place, one) in seen.iter().enumerate() {
        let places = seen_rows.entry(one.row).or_default();
        if repeats == Repeats::OneRow {
            places.clear();
        }
        places.push(place);
    }
    let mut found = Changes::default();
    for (row, places) in seen_rows {
        compare(known_rows.remove(&row).unwrap_or_default(), places, seen, now, &mut found);
    }
    found.new.sort_unstable();
    found.updated.sort_unstable();
    found.marks.sort_unstable();
    found
}

/// Compares the rows of one id.
fn compare(mut known: Vec<&(Mark, Timestamp)>, places: Vec<usize>, seen: &[Seen], now: Timestamp, found: &mut Changes) {
    known.sort_unstable_by_key(|(mark, _)| mark.occurrence);
    let mut free = known.last().map_or(0, |(mark, _)| mark.occurrence + 1);
    let mut others = Vec::new();
    for place in places {
        let Some(at) = known.iter().position(|(mark, _)| mark.content == seen[place].content) else {
            others.push(place);
            continue;
        };
        let (mark, noted_at) = known.remove(at);
        if now.duration_since(*noted_at) >= NOTED_AGAIN_AFTER {
            found.marks.push(*mark);
        }
    }
    // In an order that is not that of the reading, so that the same rows get the same numbers, however they came.
    others.sort_unstable_by_key(|place| seen[*place].content);
    let mut known = known.into_iter();
    for place in others {
        let Seen { row, content } = seen[place];
        let occurrence = match known.next() {
            Some((mark, _)) => {
                found.updated.push(place);
                mark.occurrence
            }
            None => {
                found.new.push(place);
                free += 1;
                free - 1
            }
        };
        found.marks.push(Mark { row, occurrence, content });
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

    fn seen(rows: &[(u8, u8)]) -> Vec<Seen> {
        rows.iter().map(|(row, content)| Seen { row: digest(*row), content: digest(*content) }).collect()
    }

    fn now() -> Timestamp {
        "2026-11-20T09:30:00Z".parse().unwrap()
    }

    /// What is remembered after a sync: what was known, and the marks that were written over it.
    fn remembered(known: &[(Mark, Timestamp)], found: &Changes) -> Vec<(Mark, Timestamp)> {
        let mut all: BTreeMap<(Digest, u32), (Mark, Timestamp)> =
            known.iter().map(|entry| ((entry.0.row, entry.0.occurrence), *entry)).collect();
        for mark in &found.marks {
            all.insert((mark.row, mark.occurrence), (*mark, now()));
        }
        all.into_values().collect()
    }

    fn rows(found: &[usize], seen: &[Seen]) -> Vec<(u8, u8)> {
        found.iter().map(|place| (seen[*place].row.0[0], seen[*place].content.0[0])).collect()
    }

    #[test]
    fn of_two_equal_trades_the_second_is_new() {
        let first = seen(&[(1, 1)]);
        let known = remembered(&[], &changes(&[], &first, Repeats::SeveralRows, now()));
        let second = seen(&[(1, 1), (1, 1)]);
        let found = changes(&known, &second, Repeats::SeveralRows, now());
        assert_eq!((found.new.len(), found.updated.len()), (1, 0));
        let known = remembered(&known, &found);
        assert_eq!(known.iter().map(|(mark, _)| mark.occurrence).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(changes(&known, &second, Repeats::SeveralRows, now()), Changes::default());
    }

    #[test]
    fn a_row_that_was_read_twice_is_one() {
        let twice = seen(&[(1, 1), (2, 1), (1, 9)]);
        let found = changes(&[], &twice, Repeats::OneRow, now());
        assert_eq!((found.new, found.marks.len()), (vec![1, 2], 2));
    }

    #[test]
    fn an_unchanged_row_is_noted_once_a_day() {
        let all = seen(&[(1, 1)]);
        let marks = changes(&[], &all, Repeats::OneRow, now()).marks;
        for (hours, noted) in [(0, 0), (23, 0), (24, 1), (48, 1)] {
            let known = [(marks[0], now() - SignedDuration::from_hours(hours))];
            let found = changes(&known, &all, Repeats::OneRow, now());
            assert_eq!((found.new.len(), found.updated.len(), found.marks.len()), (0, 0, noted), "{hours}");
        }
    }

    /// Rows by id; a row's content is what the model compares.
    fn world() -> impl Strategy<Value = BTreeMap<u8, u8>> {
        proptest::collection::btree_map(0_u8..12, 0_u8..4, 0..12)
    }

    proptest! {
        /// The model for rows with ids of their own: two maps, compared key by key. Whatever the order of the pages, and
        /// however often a row is read.
        #[test]
        fn transactions_as_two_maps_would(
            before in world(),
            after in world(),
            order in proptest::collection::vec(any::<u16>(), 24),
            again in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let pairs = |world: &BTreeMap<u8, u8>| world.iter().map(|(row, content)| (*row, *content)).collect::<Vec<_>>();
            let first = seen(&pairs(&before));
            let known = remembered(&[], &changes(&[], &first, Repeats::OneRow, now()));
            prop_assert_eq!(known.len(), before.len());

            let mut read = pairs(&after);
            if !read.is_empty() {
                let repeated: Vec<_> = again.iter().map(|index| read[index.index(after.len())]).collect();
                read.extend(repeated);
            }
            let mut shuffled: Vec<_> = read.into_iter().zip(order).collect();
            shuffled.sort_by_key(|(_, key)| *key);
            let read = seen(&shuffled.into_iter().map(|(row, _)| row).collect::<Vec<_>>());

            let found = changes(&known, &read, Repeats::OneRow, now());
            let sorted = |mut rows: Vec<(u8, u8)>| { rows.sort_unstable(); rows };
            let new: Vec<_> = pairs(&after).into_iter().filter(|(row, _)| !before.contains_key(row)).collect();
            let is_updated = |(row, content): &(u8, u8)| before.get(row).is_some_and(|old| old != content);
            let updated: Vec<_> = pairs(&after).into_iter().filter(is_updated).collect();
            prop_assert_eq!(sorted(rows(&found.new, &read)), new);
            prop_assert_eq!(sorted(rows(&found.updated, &read)), updated);

            // What was told once is not told again, and what vanished and comes back as it was is no news.
            let known = remembered(&known, &found);
            prop_assert_eq!(changes(&known, &read, Repeats::OneRow, now()), Changes::default());
            let back = seen(&pairs(&before).into_iter().filter(|(row, _)| !after.contains_key(row)).collect::<Vec<_>>());
            prop_assert_eq!(changes(&known, &back, Repeats::OneRow, now()), Changes::default());
        }

        /// The model for rows whose ids repeat: by id, two bags of contents. What is in both is unchanged; of the rest, the
        /// smaller number has changed, and what is left over is new.
        #[test]
        fn trades_as_bags_would(
            before in proptest::collection::vec((0_u8..4, 0_u8..3), 0..12),
            after in proptest::collection::vec((0_u8..4, 0_u8..3), 0..12).prop_shuffle(),
        ) {
            let first = seen(&before);
            let known = remembered(&[], &changes(&[], &first, Repeats::SeveralRows, now()));
            prop_assert_eq!(known.len(), before.len());
            let read = seen(&after);
            let found = changes(&known, &read, Repeats::SeveralRows, now());
            for id in 0..4 {
                let bag = |rows: &[(u8, u8)], content| rows.iter().filter(|row| **row == (id, content)).count();
                let same: usize = (0..3).map(|content| bag(&before, content).min(bag(&after, content))).sum();
                let count = |rows: &[(u8, u8)]| rows.iter().filter(|(row, _)| *row == id).count();
                let (left, come) = (count(&before) - same, count(&after) - same);
                prop_assert_eq!(count(&rows(&found.updated, &read)), left.min(come));
                prop_assert_eq!(count(&rows(&found.new, &read)), come - left.min(come));
            }
            let known = remembered(&known, &found);
            prop_assert_eq!(changes(&known, &read, Repeats::SeveralRows, now()), Changes::default());
            // However the same rows came, the same is remembered.
            let mut backwards = after.clone();
            backwards.reverse();
            let again = changes(&remembered(&[], &changes(&[], &first, Repeats::SeveralRows, now())),
                &seen(&backwards), Repeats::SeveralRows, now());
            prop_assert_eq!(again.marks, found.marks);
        }
    }
}
