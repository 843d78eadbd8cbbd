//! Balances.

use crate::{Currency, Decimal};

/// What one account holds. A value that the provider did not send is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Balance {
    /// Negative when money is owed.
    pub current: Option<Decimal<'static>>,
    /// What can be withdrawn or traded with.
    pub available: Option<Decimal<'static>>,
    /// Of both.
    pub currency: Option<Currency>,
}
