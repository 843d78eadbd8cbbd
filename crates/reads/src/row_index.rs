//! What is known of the places of some rows in a list, by the number of the row. Pure.

use serde::{Deserialize, Serialize};

/// Maximum number of places in one index: two million rows in windows of 200. Later ones are not
/// stored, so windows beyond are read from the last stored place.
const PLACES_MAX: usize = 10_000;

/// Places of rows in a list, of which that of row 0 is always known.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RowIndex<P>(Vec<(u64, P)>);

impl<P: Clone> RowIndex<P> {
    pub(crate) fn new(start: P) -> Self {
        Self(vec![(0, start)])
    }

    /// The last known row at or before this one, and its place.
    pub(crate) fn nearest(&self, row: u64) -> (u64, P) {
        let behind = self.0.partition_point(|(known, _)| *known <= row);
        self.0[behind.saturating_sub(1)].clone()
    }

    /// Stores the place of a row. One that is known already is replaced only on request.
    pub(crate) fn learn(&mut self, row: u64, place: P, replaces: bool) {
        let at = self.0.partition_point(|(known, _)| *known < row);
        let is_full = self.0.len() >= PLACES_MAX;
        match self.0.get_mut(at) {
            Some((known, known_place)) if *known == row => {
                if replaces {
                    *known_place = place;
                }
            }
            _ if is_full => {}
            _ => self.0.insert(at, (row, place)),
        }
    }

    /// Forgets all but row 0.
    pub(crate) fn reset(&mut self) {
        self.0.truncate(1);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u64, P)> {
        self.0.iter()
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = (u64, P)> {
        self.0.into_iter()
    }
}
