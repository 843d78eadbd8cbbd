//! Page map: turns the public `offset` of a transaction list into a cursor of the provider.
//!
//! It is kept in memory between the requests for one list. It holds cursors and row counts, never a row. Pure.

use bellbird_domain::DateRange;
use bellbird_providers::Cursor;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::list_maps::ListMap;

/// Maximum number of cursors in one map: two million rows in windows of 200. Later cursors are not stored, so windows
/// beyond are read from the last stored cursor.
const CURSORS_MAX: usize = 10_000;

/// The start of a provider page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCursor {
    /// Number of matching rows before it.
    pub row: u64,
    /// The provider's cursor. `None` for the start of the list, which is its newest row.
    pub cursor: Option<Cursor>,
}

#[derive(Debug, Clone)]
pub struct PageMap {
    interval: DateRange,
    /// The timezone that decided which rows match.
    zone: TimeZone,
    /// Rows first seen by the provider after this time do not match, so that all windows show one state of the list.
    as_of: Timestamp,
    /// Sorted by row. The first is the start of the list.
    cursors: Vec<PageCursor>,
    counted: u64,
    end: Option<u64>,
}

impl PageMap {
    /// Creates an empty map. `interval` is resolved once, so that all windows use the same instants. `as_of` is the
    /// current time.
    #[must_use]
    pub fn new(interval: DateRange, zone: TimeZone, as_of: Timestamp) -> Self {
        Self { interval, zone, as_of, cursors: vec![PageCursor { row: 0, cursor: None }], counted: 0, end: None }
    }

    #[must_use]
    pub fn interval(&self) -> DateRange {
        self.interval
    }

    #[must_use]
    pub fn as_of(&self) -> Timestamp {
        self.as_of
    }

    /// Moves `as_of` to a row of the first window: clocks differ, and a row once shown stays in the list.
    pub fn extend_as_of(&mut self, seen_at: Timestamp) {
        self.as_of = self.as_of.max(seen_at);
    }

    /// Whether the map was built for this timezone.
    #[must_use]
    pub fn is_in_zone(&self, zone: &TimeZone) -> bool {
        self.zone == *zone
    }

    /// Number of matching rows known so far.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// Total number of rows, once the end of the provider's list was reached.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.end
    }

    /// The last known cursor at or before a row.
    #[must_use]
    pub fn nearest(&self, row: u64) -> PageCursor {
        let behind = self.cursors.partition_point(|known| known.row <= row);
        self.cursors[behind.saturating_sub(1)].clone()
    }

    /// The last known cursor, where counting continues.
    #[must_use]
    pub fn frontier(&self) -> PageCursor {
        self.nearest(u64::MAX)
    }

    /// Stores that `row` matching rows lie before `cursor`.
    pub fn learn(&mut self, row: u64, cursor: Cursor) {
        self.counted = self.counted.max(row);
        let at = self.cursors.partition_point(|known| known.row < row);
        let full = self.cursors.len() >= CURSORS_MAX;
        match self.cursors.get_mut(at) {
            // After an empty page the cursor has moved but the row has not. The later cursor skips the empty page.
            Some(known) if known.row == row && row > 0 => known.cursor = Some(cursor),
            // The start of the list keeps no cursor. An empty first page is read again.
            Some(known) if known.row == row => {}
            _ if full => {}
            _ => self.cursors.insert(at, PageCursor { row, cursor: Some(cursor) }),
        }
    }

    /// Stores that the list ends after `rows` rows.
    pub fn learn_end(&mut self, rows: u64) {
        self.counted = self.counted.max(rows);
        self.end = Some(rows);
    }

    /// Drops all cursors and counts. Needed when the provider no longer accepts a cursor.
    pub fn reset(&mut self) {
        *self = Self::new(self.interval, self.zone.clone(), self.as_of);
    }
}

impl ListMap for PageMap {
    fn bytes(&self) -> usize {
        let cursor_bytes: usize =
            self.cursors.iter().filter_map(|known| known.cursor.as_ref()).map(|cursor| cursor.0.len()).sum();
        size_of::<Self>() + self.cursors.capacity() * size_of::<PageCursor>() + cursor_bytes
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::Bound;
    use proptest::prelude::*;

    use super::*;

    fn map() -> PageMap {
        let bound = Bound::parse("2026-01-01").unwrap();
        PageMap::new(DateRange { from: bound, to: bound }, TimeZone::UTC, Timestamp::UNIX_EPOCH)
    }

    fn cursor(name: impl ToString) -> Cursor {
        Cursor(name.to_string())
    }

    #[test]
    fn finds_the_nearest_cursor() {
        let mut map = map();
        map.learn(200, cursor("a"));
        map.learn(1_200, cursor("b"));
        map.learn(400, cursor("c"));
        for (row, expected) in [(0, 0), (199, 0), (200, 200), (399, 200), (400, 400), (1_199, 400), (9_999, 1_200)] {
            assert_eq!(map.nearest(row).row, expected, "{row}");
        }
        assert_eq!(map.counted(), 1_200);
        assert_eq!(map.end(), None);
        map.learn_end(1_250);
        assert_eq!(map.counted(), 1_250);
        assert_eq!(map.end(), Some(1_250));
        map.reset();
        assert_eq!(map.nearest(9_999), PageCursor { row: 0, cursor: None });
        assert_eq!(map.counted(), 0);
        assert_eq!(map.end(), None);
    }

    #[test]
    fn empty_pages_move_a_cursor_but_not_the_start() {
        let mut map = map();
        map.learn(0, cursor("behind an empty first page"));
        assert_eq!(map.nearest(0), PageCursor { row: 0, cursor: None });
        map.learn(200, cursor("a"));
        map.learn(200, cursor("behind an empty page"));
        assert_eq!(map.nearest(200).cursor, Some(cursor("behind an empty page")));
    }

    proptest! {
        /// Model: the largest learned row at or before the requested one.
        #[test]
        fn nearest_agrees_with_a_scan(rows in prop::collection::vec(1_u64..1_000, 0..40), requested in 0_u64..1_100) {
            let mut map = map();
            for row in &rows { map.learn(*row, cursor(row)); }
            let expected = rows.iter().copied().filter(|row| *row <= requested).max().unwrap_or(0);
            prop_assert_eq!(map.nearest(requested).row, expected);
            prop_assert_eq!(map.counted(), rows.iter().copied().max().unwrap_or(0));
        }
    }
}
