//! What a page of rows has found.

use std::collections::BTreeSet;

use bellbird_domain::ConnectionId;
use bellbird_reads::merged::MergedPosition;
use jiff::Timestamp;
use jiff::civil::Date;

use super::row::Row;
use crate::pages::BankTrouble;

/// Has no `Debug`, because it holds rows.
#[derive(Default)]
pub(crate) struct Found {
    /// The user's revision at which it was read, and the last day.
    pub(super) revision: i64,
    pub(super) today: Date,
    pub(super) read_at: Timestamp,
    pub(super) rows: Vec<Row>,
    /// Behind the last row, if more may follow.
    pub(super) older: Option<MergedPosition>,
    /// Why the rows end before the page is full, although older ones may follow.
    pub(super) stopped: Option<Stopped>,
    /// The rows at the beginning of the page are not those that were there.
    pub(super) is_lost: bool,
    pub(super) troubles: Vec<BankTrouble>,
    /// Accounts of the banks without a trouble.
    pub(super) accounts: usize,
    /// Banks that listed no row at all.
    pub(super) silent: BTreeSet<ConnectionId>,
}

impl Found {
    /// About how many bytes of memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.rows.iter().map(Row::bytes).sum::<usize>()
    }

    /// Whether nothing failed or ended early.
    pub(super) fn is_complete(&self) -> bool {
        self.troubles.is_empty() && self.stopped.is_none() && !self.is_lost
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// As many rows were read as one page reads.
    AtRows,
    /// Time was up.
    InTime,
}
