//! An account at a New Zealand institution, as the world defines it.

use super::rows::{Plan, QUIET};
use crate::world::odd_rows::OddRows;

pub(crate) struct Holding {
    /// The account's own members as JSON (docs/providers/akahu.md#accounts).
    pub(crate) account: &'static str,
    /// Current balance in cents, from which the rows' balances count back; `None` leaves balances
    /// out.
    pub(crate) running: Option<i64>,
    /// Whether the account shows when its rows were refreshed.
    pub(crate) synced: bool,
    pub(crate) plan: Plan,
    /// Odd rows: JSON members that replace those of an ordinary row; `null` removes one.
    pub(crate) odd: &'static [&'static str],
    /// Rows of `odd_rows.rs` beside those of the plan. Every second one has only a day.
    pub(crate) odd_rows: OddRows,
}

pub(crate) const fn holding(account: &'static str, running: i64, plan: Plan) -> Holding {
    Holding {
        account,
        running: Some(running),
        synced: true,
        plan,
        odd: &[],
        odd_rows: OddRows::None,
    }
}

pub(crate) const fn without_rows(account: &'static str) -> Holding {
    Holding {
        account,
        running: None,
        synced: false,
        plan: QUIET,
        odd: &[],
        odd_rows: OddRows::None,
    }
}

/// An account with odd rows and no others.
pub(crate) const fn with_odd_rows(account: &'static str, odd_rows: OddRows) -> Holding {
    Holding {
        synced: true,
        odd_rows,
        ..without_rows(account)
    }
}
