//! What is remembered of a walk between two requests for the same list: where provider pages begin, and how many rows
//! were counted. Never a row. Pure.

use bellbird_domain::Interval;
use bellbird_providers::Cursor;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Marks kept in one map. Past them a walk goes on, but is not remembered: with windows of 200 rows that is two million.
const MARKS_MAX: usize = 10_000;

/// A place in the provider's list where a page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Matching rows before it.
    pub row: u64,
    /// The provider's cursor; none is the list's newest end.
    pub cursor: Option<Cursor>,
}

/// The map of one list.
#[derive(Debug, Clone)]
pub struct PageMap {
    interval: Interval,
    /// In which days were days.
    zone: TimeZone,
    /// Rows that the provider has seen since then do not belong: the walk sees one moment.
    as_of: Timestamp,
    /// By row, the list's start first.
    marks: Vec<Mark>,
    counted: u64,
    end: Option<u64>,
}

impl PageMap {
    /// A map of a list of which nothing is known. `interval` holds the instants that the list's bounds stood for, `as_of` is
    /// the present moment.
    #[must_use]
    pub fn new(interval: Interval, zone: TimeZone, as_of: Timestamp) -> Self {
        Self { interval, zone, as_of, marks: vec![Mark { row: 0, cursor: None }], counted: 0, end: None }
    }

    /// The bounds.
    #[must_use]
    pub fn interval(&self) -> Interval {
        self.interval
    }

    /// The moment that the walk sees.
    #[must_use]
    pub fn as_of(&self) -> Timestamp {
        self.as_of
    }

    /// A row of the walk's beginning that was first seen then: clocks differ, and what was shown belongs.
    pub fn shown(&mut self, seen_at: Timestamp) {
        self.as_of = self.as_of.max(seen_at);
    }

    /// Whether it counted days of this zone.
    #[must_use]
    pub fn is_in(&self, zone: &TimeZone) -> bool {
        self.zone == *zone
    }

    /// Rows known so far.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// The number of rows in all, once the provider's end was reached.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.end
    }

    /// The last known place at or before a row.
    #[must_use]
    pub fn nearest(&self, row: u64) -> Mark {
        let behind = self.marks.partition_point(|mark| mark.row <= row);
        self.marks[behind.saturating_sub(1)].clone()
    }

    /// The furthest known place, from which counting goes on.
    #[must_use]
    pub fn frontier(&self) -> Mark {
        self.nearest(u64::MAX)
    }

    /// Learns that `row` matching rows lie before `cursor`.
    pub fn learn(&mut self, row: u64, cursor: Cursor) {
        self.counted = self.counted.max(row);
        let at = self.marks.partition_point(|mark| mark.row < row);
        let full = self.marks.len() >= MARKS_MAX;
        match self.marks.get_mut(at) {
            // Empty pages move the cursor on without a row: the later cursor saves reading them again.
            Some(mark) if mark.row == row && row > 0 => mark.cursor = Some(cursor),
            // The list's start stays without a cursor; a page without rows behind it is simply read again.
            Some(mark) if mark.row == row => {}
            _ if full => {}
            _ => self.marks.insert(at, Mark { row, cursor: Some(cursor) }),
        }
    }

    /// Learns that the list ends after `rows` rows.
    pub fn learn_end(&mut self, rows: u64) {
        self.counted = self.counted.max(rows);
        self.end = Some(rows);
    }

    /// About how much memory it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let cursors: usize =
            self.marks.iter().filter_map(|mark| mark.cursor.as_ref()).map(|cursor| cursor.0.len()).sum();
        size_of::<Self>() + self.marks.capacity() * size_of::<Mark>() + cursors
    }

    /// Forgets everything but the bounds: the provider no longer takes a cursor.
    pub fn forget(&mut self) {
        *self = Self::new(self.interval, self.zone.clone(), self.as_of);
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::Bound;
    use proptest::prelude::*;

    use super::*;

    fn map() -> PageMap {
        let bound = Bound::parse("2026-01-01").unwrap();
        PageMap::new(Interval { from: bound, to: bound }, TimeZone::UTC, Timestamp::UNIX_EPOCH)
    }

    fn cursor(name: impl ToString) -> Cursor {
        Cursor(name.to_string())
    }

    #[test]
    fn finds_the_nearest_place() {
        let mut map = map();
        map.learn(200, cursor("a"));
        map.learn(1_200, cursor("b"));
        map.learn(400, cursor("c"));
        for (row, expected) in [(0, 0), (199, 0), (200, 200), (399, 200), (400, 400), (1_199, 400), (9_999, 1_200)] {
            assert_eq!(map.nearest(row).row, expected, "{row}");
        }
        assert_eq!((map.counted(), map.end()), (1_200, None));
        map.learn_end(1_250);
        assert_eq!((map.counted(), map.end()), (1_250, Some(1_250)));
        map.forget();
        assert_eq!((map.nearest(9_999), map.counted(), map.end()), (Mark { row: 0, cursor: None }, 0, None));
    }

    #[test]
    fn empty_pages_move_a_mark_but_never_the_start() {
        let mut map = map();
        map.learn(0, cursor("behind an empty first page"));
        assert_eq!(map.nearest(0), Mark { row: 0, cursor: None });
        map.learn(200, cursor("a"));
        map.learn(200, cursor("behind an empty page"));
        assert_eq!(map.nearest(200).cursor, Some(cursor("behind an empty page")));
    }

    proptest! {
        /// The model: the largest learned row that is not above the one asked for.
        #[test]
        fn nearest_agrees_with_a_scan(rows in prop::collection::vec(1_u64..1_000, 0..40), asked in 0_u64..1_100) {
            let mut map = map();
            for row in &rows { map.learn(*row, cursor(row)); }
            let expected = rows.iter().copied().filter(|row| *row <= asked).max().unwrap_or(0);
            prop_assert_eq!(map.nearest(asked).row, expected);
            prop_assert_eq!(map.counted(), rows.iter().copied().max().unwrap_or(0));
        }
    }
}
