//! Accounts, and masking of account numbers.
//!
//! Adapters mask account numbers before anything else sees them, also inside account names.

use std::fmt;
use std::ops::Range;

use crate::connection::string_enum;
use crate::{AccountId, ConnectionId, Currency, UserId};

string_enum! {
    /// The account types of the public API.
    AccountType {
        Transaction "transaction",
        Savings "savings",
        /// Credit or charge card. The wire form has a hyphen, never an underscore.
        CreditCard "credit-card",
        /// Mortgage, personal loan, or other debt that is paid back.
        Loan "loan",
        /// Brokerage, managed fund or pension.
        Investment "investment",
        TermDeposit "term-deposit",
        Other "other",
    }
}

/// This many digits in a name count as an account number.
const NUMBER_DIGITS_MIN: usize = 12;

/// Groups the digits of a text into runs, as byte positions. `joined` gets the text between two
/// digits and decides whether they belong to one run.
fn digit_runs(text: &str, joined: impl Fn(&str) -> bool) -> Vec<Vec<usize>> {
    let mut runs: Vec<Vec<usize>> = Vec::new();
    for (at, _) in text
        .bytes()
        .enumerate()
        .filter(|(_, byte)| byte.is_ascii_digit())
    {
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| joined(&text[last + 1..at])) => run.push(at),
            _ => runs.push(vec![at]),
        }
    }
    runs
}

/// `xxxx` followed by the last four digits: the only form of an account number that leaves an
/// adapter.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MaskedNumber(String);

impl MaskedNumber {
    /// Keeps the last four digits of a number, which the provider may have masked already. Only
    /// digits behind the last masked character count. Returns `None` for fewer than four.
    #[must_use]
    pub fn mask(number: &str) -> Option<Self> {
        // Digits before the institution's own masking are not the last ones, so they never count.
        let number = number
            .rsplit(['*', 'x', 'X', '•', '#'])
            .next()
            .unwrap_or(number);
        let mut masked = *b"xxxxxxxx";
        let mut positions = masked.iter_mut().rev().take(4);
        for digit in number.bytes().rev().filter(u8::is_ascii_digit).take(4) {
            *positions.next()? = digit;
        }
        if positions.next().is_some() {
            return None;
        }
        String::from_utf8(masked.to_vec()).ok().map(Self)
    }

    /// Masks account numbers inside a display name, because institutions put numbers into names.
    ///
    /// Masks `number` in any spelling. If the provider sent only its last four digits, masks each
    /// longer number with that ending. Also masks each number of 12 digits or more, since it may
    /// belong to another account.
    #[must_use]
    pub fn hide_in(name: &str, number: &str) -> String {
        let number_digits: String = number.chars().filter(char::is_ascii_digit).collect();
        // First the provider's exact spelling, letters included. Four characters need no mask: a
        // mask shows them anyway.
        let is_longer = number_digits.len() >= 4
            && number.chars().filter(|sign| sign.is_alphanumeric()).count() > 4;
        let name = if is_longer {
            let mask = Self::mask(number);
            name.replace(number, mask.as_ref().map_or("xxxx", Self::as_str))
        } else {
            name.to_owned()
        };
        let mut secrets: Vec<Range<usize>> = Vec::new();
        if number_digits.len() > 4 {
            let apart = |between: &str| !between.contains(char::is_alphanumeric);
            for run in digit_runs(&name, apart) {
                let digits: String = run
                    .iter()
                    .map(|at| char::from(name.as_bytes()[*at]))
                    .collect();
                secrets.extend(
                    digits
                        .match_indices(&number_digits)
                        .map(|(at, _)| run[at]..run[at + number_digits.len() - 1] + 1),
                );
            }
        }
        if number_digits.len() == 4 {
            let unbroken = |between: &str| {
                !between.contains(char::is_alphanumeric) && !between.contains(char::is_whitespace)
            };
            for run in digit_runs(&name, unbroken)
                .into_iter()
                .filter(|run| run.len() > 4)
            {
                if run
                    .iter()
                    .rev()
                    .zip(number_digits.bytes().rev())
                    .all(|(at, digit)| name.as_bytes()[*at] == digit)
                {
                    secrets.push(run[0]..run[run.len() - 1] + 1);
                }
            }
        }
        let close = |between: &str| {
            !between.contains(char::is_alphanumeric) && between.chars().count() <= 1
        };
        for run in digit_runs(&name, close)
            .into_iter()
            .filter(|run| run.len() >= NUMBER_DIGITS_MIN)
        {
            let whole = run[0]..run[run.len() - 1] + 1;
            if !secrets
                .iter()
                .any(|secret| secret.start < whole.end && whole.start < secret.end)
            {
                secrets.push(whole);
            }
        }
        secrets.sort_by_key(|secret| secret.start);
        let (mut shown, mut done) = (String::with_capacity(name.len()), 0);
        for secret in secrets {
            if let Some(mask) = Self::mask(&name[secret.clone()]).filter(|_| secret.start >= done) {
                shown.push_str(&name[done..secret.start]);
                shown.push_str(mask.as_str());
                done = secret.end;
            }
        }
        shown + &name[done..]
    }

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

/// An account as stored in the database: no amount, no full number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub id: AccountId,
    pub user_id: UserId,
    pub connection_id: ConnectionId,
    pub provider: String,
    pub provider_account_id: String,
    pub name: String,
    pub account_type: AccountType,
    pub institution_name: Option<String>,
    pub number: Option<MaskedNumber>,
    /// [`Currency::UNKNOWN`] until the provider has sent one.
    pub currency: Currency,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::table;

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
            ("4988-****-****-12", None),
            ("1234-****-****-****", None),
            ("1234-****-****-5678", Some("xxxx5678")),
            ("", None),
            ("٣٣٣٣", None),
        ] {
            assert_eq!(
                MaskedNumber::mask(number)
                    .as_ref()
                    .map(MaskedNumber::as_str),
                expected,
                "{number}"
            );
        }
    }

    #[test]
    fn account_number_in_a_name_is_masked() {
        let bank = "12-3456-0000001-51";
        for [name, number, expected] in table(
            "Everyday | bank | Everyday
            12-3456-0000001-51 | bank | xxxx0151
            Everyday (12-3456-0000001-51), joint | bank | Everyday (xxxx0151), joint
            Mā 123456000000151 é | bank | Mā xxxx0151 é
            No 1 12 3456 0000001 51 - 2 | bank | No 1 xxxx0151 - 2
            Everyday 12–3456–0000001–51 | bank | Everyday xxxx0151
            Everyday 12\u{a0}3456\u{a0}0000001\u{a0}51 | bank | Everyday xxxx0151
            12_3456_0000001_51 and 12 3456 0000001 51 | bank | xxxx0151 and xxxx0151
            TFSA 51238443 | ****8443 | TFSA xxxx8443
            A3 123456000000151 | bank | A3 xxxx0151
            Q1 778899001122 | ****1122 | Q1 xxxx1122
            TFSA 8443 | ****8443 | TFSA 8443
            TFSA 51238444 | ****8443 | TFSA 51238444
            Fixed 31/03/2026 - 30/06/2026 at 5.25 | | Fixed 31/03/2026 - 30/06/2026 at 5.25
            Everyday 12-3456-0000001-051 | bank | Everyday xxxx1051
            Everyday 06-1234-7654321-00 | | Everyday xxxx2100
            Card 1234-****-****-5678! | 1234-****-****-5678 | Card xxxx5678!
            Visa ****-****-****-5678 | ****-****-****-5678 | Visa ****-****-****-5678
            IRD 123456789 | 123-456-789 | IRD xxxx6789
            Term deposit 2026-03-31 at 5.25 | | Term deposit 2026-03-31 at 5.25
            IRA Q6542138443 | Q6542138443 | IRA xxxx8443
            IRA 6542-138443 | Q6542138443 | IRA xxxx8443
            IRA ****8443 | ****8443 | IRA ****8443
            IRA xxxx8443 | xxxx8443 | IRA xxxx8443
            IRA ABC1234 | ABC1234 | IRA xxxx1234
            Alpaca PA2X4K9QW1 | PA2X4K9QW1 | Alpaca xxxx
            Account 1 | 1 | Account 1
            | |",
        ) {
            let number = if number == "bank" { bank } else { number };
            assert_eq!(MaskedNumber::hide_in(name, number), expected, "{name}");
        }
    }
}
