//! Cursor index: turns the public `offset` of a transaction list into a cursor of the provider.
//!
//! It is kept in memory between the requests for one query, and sealed where instances share it. It
//! holds cursors and row counts, never a row. Pure.

use bellbird_domain::DateRange;
use bellbird_providers::Cursor;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::cursor_cache::CachedIndex;
use crate::row_index::RowIndex;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CursorIndex {
    pub(super) dates: DateRange,
    /// The timezone that decided which rows match.
    #[serde(with = "jiff::fmt::serde::tz::required")]
    zone: TimeZone,
    /// Rows first seen by the provider after this time do not match, so that all windows show one
    /// state of the list.
    pub(super) as_of: Timestamp,
    /// The cursors of provider pages, by the number of matching rows before them. `None` is the
    /// start of the list, which is its newest row.
    cursors: RowIndex<Option<Cursor>>,
    /// Number of matching rows known so far.
    pub(super) counted: u64,
    /// Total number of rows, once the end of the provider's list was reached.
    pub(super) end: Option<u64>,
}

impl CursorIndex {
    /// Creates an empty index. `dates` is resolved once, so that all windows use the same
    /// instants. `as_of` is the current time.
    pub(crate) fn new(dates: DateRange, zone: TimeZone, as_of: Timestamp) -> Self {
        Self {
            dates,
            zone,
            as_of,
            cursors: RowIndex::new(None),
            counted: 0,
            end: None,
        }
    }

    /// Moves `as_of` to a row of the first window: clocks differ, and a row once shown stays in the
    /// list.
    pub(crate) fn extend_as_of(&mut self, seen_at: Timestamp) {
        self.as_of = self.as_of.max(seen_at);
    }

    /// Whether the index was built for this timezone.
    pub(crate) fn is_in_zone(&self, zone: &TimeZone) -> bool {
        self.zone == *zone
    }

    /// The last known cursor at or before a row, with the row that it stands before.
    pub(crate) fn nearest(&self, row: u64) -> (u64, Option<Cursor>) {
        self.cursors.nearest(row)
    }

    /// The last known cursor, where counting continues.
    pub(crate) fn frontier(&self) -> (u64, Option<Cursor>) {
        self.nearest(u64::MAX)
    }

    /// Stores that `row` matching rows lie before `cursor`.
    pub(crate) fn learn(&mut self, row: u64, cursor: Cursor) {
        self.counted = self.counted.max(row);
        // After an empty page the cursor has moved but the row has not. The later cursor skips the
        // empty page. The start of the list keeps no cursor: an empty first page is read again.
        self.cursors.learn(row, Some(cursor), row > 0);
    }

    /// Stores that the list ends after `rows` rows.
    pub(crate) fn learn_end(&mut self, rows: u64) {
        self.counted = self.counted.max(rows);
        self.end = Some(rows);
    }

    /// Drops all cursors and counts. Needed when the provider no longer accepts a cursor.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.dates, self.zone.clone(), self.as_of);
    }
}

impl CachedIndex for CursorIndex {
    fn bytes(&self) -> usize {
        let cursor_bytes: usize = self
            .cursors
            .iter()
            .filter_map(|(_, cursor)| Some(cursor.as_ref()?.0.len()))
            .sum();
        size_of::<Self>()
            + self.cursors.capacity() * size_of::<(u64, Option<Cursor>)>()
            + cursor_bytes
    }

    fn absorb(&mut self, other: Self) {
        self.as_of = self.as_of.max(other.as_of);
        self.counted = self.counted.max(other.counted);
        self.end = self.end.or(other.end);
        for (row, cursor) in other.cursors.into_iter() {
            if let Some(cursor) = cursor {
                self.learn(row, cursor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::Bound;
    use proptest::prelude::*;

    use super::*;

    fn index() -> CursorIndex {
        let bound = Bound::parse("2026-01-01").unwrap();
        CursorIndex::new(
            DateRange {
                from: bound,
                to: bound,
            },
            TimeZone::UTC,
            Timestamp::UNIX_EPOCH,
        )
    }

    fn cursor(name: impl ToString) -> Cursor {
        Cursor(name.to_string())
    }

    #[test]
    fn finds_the_nearest_cursor() {
        let mut index = index();
        index.learn(200, cursor("a"));
        index.learn(1_200, cursor("b"));
        index.learn(400, cursor("c"));
        for (row, expected) in [
            (0, 0),
            (199, 0),
            (200, 200),
            (399, 200),
            (400, 400),
            (1_199, 400),
            (9_999, 1_200),
        ] {
            assert_eq!(index.nearest(row).0, expected, "{row}");
        }
        assert_eq!(index.counted, 1_200);
        assert_eq!(index.end, None);
        index.learn_end(1_250);
        assert_eq!(index.counted, 1_250);
        assert_eq!(index.end, Some(1_250));
        index.reset();
        assert_eq!(index.nearest(9_999), (0, None));
        assert_eq!(index.counted, 0);
        assert_eq!(index.end, None);
    }

    #[test]
    fn empty_pages_move_a_cursor_but_not_the_start() {
        let mut index = index();
        index.learn(0, cursor("behind an empty first page"));
        assert_eq!(index.nearest(0), (0, None));
        index.learn(200, cursor("a"));
        index.learn(200, cursor("behind an empty page"));
        assert_eq!(index.nearest(200).1, Some(cursor("behind an empty page")));
    }

    proptest! {
        /// Model: the largest learned row at or before the requested one.
        #[test]
        fn nearest_agrees_with_a_scan(rows in prop::collection::vec(1_u64..1_000, 0..40), requested in 0_u64..1_100) {
            let mut index = index();
            for row in &rows { index.learn(*row, cursor(row)); }
            let expected = rows.iter().copied().filter(|row| *row <= requested).max().unwrap_or(0);
            prop_assert_eq!(index.nearest(requested).0, expected);
            prop_assert_eq!(index.counted, rows.iter().copied().max().unwrap_or(0));
        }
    }
}
