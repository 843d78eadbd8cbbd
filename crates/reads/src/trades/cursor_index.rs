//! Cursor index of trades: turns the public `offset` of a merged list of trades into an offset for
//! each account.
//!
//! It is kept in memory between the requests for one query, and sealed where instances share it. It
//! holds row numbers, never a row. Pure.

use bellbird_domain::AccountId;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::cursor_cache::CachedIndex;
use crate::row_index::RowIndex;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TradeCursorIndex {
    accounts: Vec<AccountId>,
    /// The timezone that decided which rows match.
    #[serde(with = "jiff::fmt::serde::tz::required")]
    zone: TimeZone,
    /// By row of the merged list, the number of the next row in each account's list.
    numbers: RowIndex<Box<[u64]>>,
    /// The provider's total of each account's list, once a page of it was read. The numbers are
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
            numbers: RowIndex::new(start),
            totals,
        }
    }

    /// Whether the index was built for these accounts, in this order, and this timezone.
    pub(crate) fn is_for(&self, accounts: &[AccountId], zone: &TimeZone) -> bool {
        self.accounts == accounts && self.zone == *zone
    }

    /// The last known row at or before this one, and the numbers there.
    pub(crate) fn nearest(&self, row: u64) -> (u64, Box<[u64]>) {
        self.numbers.nearest(row)
    }

    /// The provider's totals that the numbers are true for.
    pub(crate) fn totals(&self) -> Vec<Option<u64>> {
        self.totals.clone()
    }

    /// Takes over the totals of the lists that were read. If one has changed, rows have appeared or
    /// vanished, and the numbers are forgotten.
    pub(crate) fn set_totals(&mut self, totals: &[Option<u64>]) {
        for (known, total) in self.totals.iter_mut().zip(totals) {
            if known
                .zip(*total)
                .is_some_and(|(known, total)| known != total)
            {
                self.numbers.reset();
            }
            *known = total.or(*known);
        }
    }

    /// Stores the numbers of the lists at a row. Those that were not counted from the start are not
    /// `exact`, and never replace others.
    pub(crate) fn learn(&mut self, row: u64, numbers: Box<[u64]>, exact: bool) {
        self.numbers.learn(row, numbers, exact);
    }
}

impl CachedIndex for TradeCursorIndex {
    fn bytes(&self) -> usize {
        let row_bytes = size_of::<(u64, Box<[u64]>)>() + self.accounts.len() * size_of::<u64>();
        size_of::<Self>()
            + self.accounts.len() * size_of::<AccountId>()
            + self.numbers.len() * row_bytes
    }

    fn absorb(&mut self, other: Self) {
        // The other one is of the last request.
        self.set_totals(&other.totals);
        for (row, numbers) in other.numbers.into_iter() {
            self.learn(row, numbers, false);
        }
    }
}
