//! What a page of rows has found.

use std::collections::BTreeSet;
use std::sync::Arc;

use bellbird_domain::ConnectionId;
use bellbird_reads::merged::MergedPosition;
use jiff::Timestamp;
use jiff::civil::Date;

use super::row::Row;
use crate::pages::BankTrouble;

/// A page of rows, the user's revision at which it was read, and its last day. Has no `Debug`,
/// because it holds rows.
#[derive(Clone)]
pub(crate) struct CachedRows {
    pub(super) revision: i64,
    pub(super) today: Date,
    pub(super) found: Arc<Found>,
}

impl CachedRows {
    pub(crate) fn bytes(&self) -> usize {
        let rows: usize = self.found.rows.iter().map(Row::bytes).sum();
        size_of::<Self>() + size_of::<Found>() + rows
    }
}

/// What was found.
#[derive(Default)]
pub(crate) struct Found {
    pub(super) read_at: Timestamp,
    pub(super) rows: Vec<Row>,
    /// Behind the last row, if more may follow.
    pub(super) older: Option<MergedPosition>,
    /// Why the rows end before the page is full, although older ones may follow.
    pub(super) stopped: Option<Stopped>,
    /// The rows at the beginning of the page are not those that were there.
    pub(super) is_lost: bool,
    pub(super) troubles: Vec<BankTrouble>,
    /// Accounts that were read, of banks without a trouble.
    pub(super) accounts: usize,
    /// Banks that listed no row at all.
    pub(super) silent: BTreeSet<ConnectionId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// [`READ_ROWS_MAX`] were read.
    AtRows,
    /// Time was up.
    InTime,
}
