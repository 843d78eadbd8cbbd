//! The people of Australia, with their banks, accounts and shops. All names are invented, except
//! `88888`, which is the provider's own test bank (docs/providers/fiskil.md#institutions).

use std::sync::LazyLock;

use serde::Deserialize;

use super::YEARS_DAYS;
use super::odd_rows::OddRows;
use super::template::{Lists, Template};

pub(crate) static AUSTRALIA: LazyLock<Australia> =
    LazyLock::new(|| super::load(include_str!("data/australia.json")));

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Australia {
    pub(crate) institutions: Vec<Institution>,
    /// In the order of the credentials. From the third on they are spare: only tests use them.
    pub(crate) people: Vec<Person>,
    /// The accounts of every unknown user name. Real balances vary around these.
    pub(crate) new_login: Vec<Holding>,
    /// Places of branches.
    #[serde(borrow)]
    pub(crate) places: Vec<&'static str>,
    /// Those of daily spending cover everything of the sixteen categories that does not occur on
    /// fixed days, and rows without a category, with `null` and with an unknown one.
    pub(crate) lists: Lists,
}

/// A bank or an energy company. Ids are digit strings, as on the wire.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Institution {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) industry: &'static str,
    pub(crate) status: &'static str,
}

pub(crate) fn institution(id: &str) -> Option<&'static Institution> {
    AUSTRALIA.institutions.iter().find(|known| known.id == id)
}

/// A person with an e-mail address and consents at banks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Person {
    pub(crate) name: &'static str,
    pub(crate) email: &'static str,
    pub(crate) phone: &'static str,
    pub(crate) consents: Vec<Held>,
}

/// The accounts at one bank.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Held {
    pub(crate) institution: &'static str,
    pub(crate) accounts: Vec<Holding>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Holding {
    pub(crate) name: String,
    pub(crate) nickname: Option<&'static str>,
    /// A product category of the Consumer Data Standards.
    pub(crate) category: &'static str,
    #[serde(default)]
    pub(crate) shape: Shape,
    /// Current balance in cents.
    pub(crate) cents: i64,
    /// Credit limit in cents.
    pub(crate) limit: Option<i64>,
    pub(crate) plan: Plan,
}

/// What is special about the fields of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Shape {
    #[default]
    Account,
    Card,
    Mortgage,
    Closed,
    Travel,
}

/// How the rows of an account are generated.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Plan {
    fixed: &'static str,
    /// The number of rows of daily spending.
    pub(crate) spending: u32,
    /// Whether the account has exactly the number of posted rows in `Options::rows`.
    pub(crate) busiest: bool,
    days: Option<(u32, u32)>,
    pub(crate) pending: u32,
    /// Whether some purchases have an execution time only.
    pub(crate) execution_only: bool,
    /// Rows of `odd_rows.json` beside the others.
    pub(crate) odd_rows: OddRows,
}

impl Plan {
    /// The nearest and the farthest day, counted back.
    pub(crate) fn days(&self) -> (u32, u32) {
        self.days.unwrap_or((1, YEARS_DAYS))
    }

    /// The rows on fixed days: pay, rent, interest and repayments.
    pub(crate) fn fixed(&self) -> &'static [Template] {
        AUSTRALIA.lists.list(self.fixed)
    }
}
