//! The balance of one account, as a provider reports it.

use crate::{Currency, Decimal};

/// A balance. A value that the provider did not send is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Balance {
    /// Negative when money is owed.
    pub current: Option<Decimal<'static>>,
    /// Funds that the user can withdraw or trade with.
    pub available: Option<Decimal<'static>>,
    pub currency: Option<Currency>,
}
