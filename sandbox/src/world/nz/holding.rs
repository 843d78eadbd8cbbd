//! An account at a New Zealand institution, as the world defines it.

use super::rows::{Plan, QUIET};

pub(crate) struct Holding {
    /// The account's own members as JSON (docs/providers/akahu.md#accounts).
    pub(crate) account: &'static str,
    /// Current balance in cents, from which the rows' balances count back; `None` leaves balances out.
    pub(crate) running: Option<i64>,
    /// Whether the account shows when its rows were refreshed.
    pub(crate) synced: bool,
    pub(crate) plan: Plan,
    /// Odd rows: JSON members that replace those of an ordinary row; `null` removes one.
    pub(crate) odd: &'static [&'static str],
}

pub(crate) const fn holding(account: &'static str, running: i64, plan: Plan) -> Holding {
    Holding { account, running: Some(running), synced: true, plan, odd: &[] }
}

pub(crate) const fn without_rows(account: &'static str) -> Holding {
    Holding { account, running: None, synced: false, plan: QUIET, odd: &[] }
}
