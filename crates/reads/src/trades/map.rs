//! What is remembered of a list of trades between two requests: at which row of the merged list each account's list
//! stood where. Never a row. Pure.

use bellbird_domain::AccountId;
use jiff::tz::TimeZone;

/// Marks kept in one map. Past them a walk goes on, but is not remembered.
const MARKS_MAX: usize = 10_000;

/// The map of one list.
#[derive(Debug)]
pub(crate) struct TradesMap {
    accounts: Vec<AccountId>,
    /// In which days were days.
    zone: TimeZone,
    /// By row: how many rows of each account's list lie before it, as the provider counts.
    marks: Vec<(u64, Box<[u64]>)>,
}

impl TradesMap {
    /// A map of the merged lists of these accounts, of which nothing is known.
    pub(crate) fn new(accounts: Vec<AccountId>, zone: TimeZone) -> Self {
        let start = vec![0; accounts.len()].into();
        Self { accounts, zone, marks: vec![(0, start)] }
    }

    /// Whether it is about these accounts, in this order, and days of this zone.
    pub(crate) fn is_of(&self, accounts: &[AccountId], zone: &TimeZone) -> bool {
        self.accounts == accounts && self.zone == *zone
    }

    /// The last known place at or before a row.
    pub(crate) fn nearest(&self, row: u64) -> (u64, Box<[u64]>) {
        let behind = self.marks.partition_point(|(at, _)| *at <= row);
        self.marks[behind.saturating_sub(1)].clone()
    }

    /// Learns where the lists stand at a row. What was not counted from the start is not `sure`, and replaces nothing.
    pub(crate) fn learn(&mut self, row: u64, positions: Box<[u64]>, sure: bool) {
        let at = self.marks.partition_point(|(known, _)| *known < row);
        let full = self.marks.len() >= MARKS_MAX;
        match self.marks.get_mut(at) {
            Some((known, mark)) if *known == row => {
                if sure {
                    *mark = positions;
                }
            }
            _ if full => {}
            _ => self.marks.insert(at, (row, positions)),
        }
    }

    /// About how much memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let mark = size_of::<(u64, Box<[u64]>)>() + self.accounts.len() * size_of::<u64>();
        size_of::<Self>() + self.accounts.len() * size_of::<AccountId>() + self.marks.len() * mark
    }
}
