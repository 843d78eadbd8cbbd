//! Cursor index of trades: turns the public `offset` of a merged list of trades into an offset for
//! each account.
//!
//! It is kept in memory between the requests for one query, and sealed where instances share it. It
//! holds row numbers, never a row. Pure.

use bellbird_domain::AccountId;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::cursor_cache::CachedIndex;

/// Maximum number of cursors in one index. Later ones are not stored, so windows beyond start at
/// the last stored one.
const CURSORS_MAX: usize = 10_000;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TradeCursorIndex {
    accounts: Vec<AccountId>,
    /// The timezone that decided which rows match.
    #[serde(with = "jiff::fmt::serde::tz::required")]
    zone: TimeZone,
    /// Sorted by row of the merged list. Each holds the provider's row number in each account's
    /// list.
    cursors: Vec<(u64, Box<[u64]>)>,
    /// The provider's total of each account's list, once a page of it was read. The cursors are
    /// true for these totals.
    totals: Vec<Option<u64>>,
}

impl TradeCursorIndex {
    pub(crate) fn new(accounts: Vec<AccountId>, zone: TimeZone) -> Self {
        let start = vec![0; accounts.len()].into();
        let totals = vec![None; accounts.len()];
        Self {
            accounts,
            zone,
            cursors: vec![(0, start)],
            totals,
        }
    }

    /// Whether the index was built for these accounts, in this order, and this timezone.
    pub(crate) fn is_for(&self, accounts: &[AccountId], zone: &TimeZone) -> bool {
        self.accounts == accounts && self.zone == *zone
    }

    /// The last known cursor at or before a row.
    pub(crate) fn nearest(&self, row: u64) -> (u64, Box<[u64]>) {
        let behind = self.cursors.partition_point(|(at, _)| *at <= row);
        self.cursors[behind.saturating_sub(1)].clone()
    }

    /// The provider's totals that the cursors are true for.
    pub(crate) fn totals(&self) -> Vec<Option<u64>> {
        self.totals.clone()
    }

    /// Takes over the totals of the lists that were read. If one has changed, rows have appeared or
    /// vanished, and the cursors are forgotten.
    pub(crate) fn set_totals(&mut self, totals: &[Option<u64>]) {
        for (known, total) in self.totals.iter_mut().zip(totals) {
            if known
                .zip(*total)
                .is_some_and(|(known, total)| known != total)
            {
                self.cursors.truncate(1);
            }
            *known = total.or(*known);
        }
    }

    /// Stores the positions of the lists at a row. A position that was not counted from the start
    /// is not `exact`, and never replaces another.
    pub(crate) fn learn(&mut self, row: u64, positions: Box<[u64]>, exact: bool) {
        let at = self.cursors.partition_point(|(known, _)| *known < row);
        let full = self.cursors.len() >= CURSORS_MAX;
        match self.cursors.get_mut(at) {
            Some((known, cursor)) if *known == row => {
                if exact {
                    *cursor = positions;
                }
            }
            _ if full => {}
            _ => self.cursors.insert(at, (row, positions)),
        }
    }
}

impl CachedIndex for TradeCursorIndex {
    fn bytes(&self) -> usize {
        let cursor_bytes = size_of::<(u64, Box<[u64]>)>() + self.accounts.len() * size_of::<u64>();
        size_of::<Self>()
            + self.accounts.len() * size_of::<AccountId>()
            + self.cursors.len() * cursor_bytes
    }

    fn absorb(&mut self, other: Self) {
        // The other one is of the last request of the walk.
        self.set_totals(&other.totals);
        for (row, positions) in other.cursors {
            self.learn(row, positions, false);
        }
    }
}
