//! An account as the world describes it.

use super::rows::{Plan, QUIET};

/// An account somebody holds.
pub(crate) struct Holding {
    /// The members of the account that are its own, as JSON (docs/providers/akahu.md#accounts).
    pub(crate) account: &'static str,
    /// Current balance in cents, from which the rows' balances count back; `None`: rows show none.
    pub(crate) running: Option<i64>,
    /// When its rows were read is known.
    pub(crate) synced: bool,
    pub(crate) plan: Plan,
    /// Rows that are strange: members that replace those of an ordinary row, `null` takes one out. As JSON.
    pub(crate) odd: &'static [&'static str],
}

pub(crate) const fn holding(account: &'static str, running: i64, plan: Plan) -> Holding {
    Holding { account, running: Some(running), synced: true, plan, odd: &[] }
}

/// An account without rows.
pub(crate) const fn without_rows(account: &'static str) -> Holding {
    Holding { account, running: None, synced: false, plan: QUIET, odd: &[] }
}
