//! Accounts, and the masking of their numbers.

use std::fmt;

use crate::connection::named;
use crate::{AccountId, ConnectionId, Currency, UserId};

named! {
    /// The seven kinds of account that the API knows.
    AccountType {
        /// Everyday account.
        Transaction "transaction",
        /// Savings account.
        Savings "savings",
        /// Credit or charge card. A hyphen, never an underscore.
        CreditCard "credit-card",
        /// Anything that is paid back.
        Loan "loan",
        /// Brokerage, managed fund, pension.
        Investment "investment",
        /// Fixed term.
        TermDeposit "term-deposit",
        /// Everything else.
        Other "other",
    }
}

/// `xxxx` and the last four digits. The only form of an account number that leaves an adapter.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MaskedNumber(String);

impl MaskedNumber {
    /// Masks a number, already masked by the provider or not: the last four digits of all its digits.
    /// None when it has fewer than four.
    #[must_use]
    pub fn mask(number: &str) -> Option<Self> {
        let mut masked = *b"xxxxxxxx";
        let mut places = masked.iter_mut().rev().take(4);
        for digit in number.bytes().rev().filter(u8::is_ascii_digit).take(4) {
            *places.next()? = digit;
        }
        if places.next().is_some() {
            return None;
        }
        String::from_utf8(masked.to_vec()).ok().map(Self)
    }

    /// `xxxx1234`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for MaskedNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// An account as the database knows it: no amount, no full number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Ours.
    pub id: AccountId,
    /// Whose it is.
    pub user_id: UserId,
    /// Its connection.
    pub connection_id: ConnectionId,
    /// The connection's provider.
    pub provider: String,
    /// The provider's own id of the account.
    pub provider_account_id: String,
    /// Display name.
    pub name: String,
    /// One of the seven kinds.
    pub account_type: AccountType,
    /// The connection's institution.
    pub institution_name: Option<String>,
    /// Last four digits.
    pub number: Option<MaskedNumber>,
    /// [`Currency::UNKNOWN`] until learned.
    pub currency: Currency,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_to_the_last_four_digits() {
        for (number, expected) in [
            ("123451234", Some("xxxx1234")),
            ("xxx-xxx xxxxx1234", Some("xxxx1234")),
            ("xxxx xxxx xxxx 9876", Some("xxxx9876")),
            ("12-3456-0000001-51", Some("xxxx0151")),
            ("12 34", Some("xxxx1234")),
            ("Q6542138443", Some("xxxx8443")),
            ("xxx 123", None),
            ("", None),
            ("٣٣٣٣", None),
        ] {
            assert_eq!(MaskedNumber::mask(number).as_ref().map(MaskedNumber::as_str), expected, "{number}");
        }
    }
}
