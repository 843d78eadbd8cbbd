//! The people of New Zealand, which only Akahu covers: logins, accounts and shops in Akahu's terms.
//! The ids of institutions are real (docs/providers/akahu.md#institutions), all names invented.

use std::sync::LazyLock;

use serde::Deserialize;

use super::YEARS_DAYS;
use super::odd_rows::OddRows;
use super::template::{Lists, Template};
use crate::members::Members;

pub(crate) static NEW_ZEALAND: LazyLock<NewZealand> =
    LazyLock::new(|| super::load(include_str!("data/new_zealand.json")));

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewZealand {
    pub(crate) institutions: Vec<Institution>,
    /// The first person is the main example. The second is spare and full of oddities; the third
    /// cannot be refreshed. The fourth has the odd rows.
    pub(crate) people: Vec<Person>,
    /// The accounts of every unknown user name. Numbers, balances and holders are set when the user
    /// signs in.
    pub(crate) new_login: Vec<Holding>,
    /// The plan for an account that a test fills.
    pub(crate) fill: Plan,
    /// Places of branches.
    #[serde(borrow)]
    pub(crate) places: Vec<&'static str>,
    /// Those of daily spending cover every group of codes, rows without enrichment, and every type
    /// that does not occur on fixed days.
    pub(crate) lists: Lists,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Institution {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) official: Option<Official>,
}

/// What an official connection has beyond a classic one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Official {
    pub(crate) classic: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) deadline: Option<&'static str>,
}

pub(crate) fn institution(id: &str) -> Option<&'static Institution> {
    NEW_ZEALAND.institutions.iter().find(|known| known.id == id)
}

/// A person with logins at institutions, all under one token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Person {
    pub(crate) name: &'static str,
    pub(crate) email: &'static str,
    pub(crate) logins: Vec<Login>,
    /// Whether the logins are among the ready-made credentials.
    #[serde(default)]
    pub(crate) is_listed: bool,
}

/// One login, which Akahu calls an authorisation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    pub(crate) connection: &'static str,
    /// Whether the institution rejects the login.
    #[serde(default)]
    pub(crate) rejected: bool,
    pub(crate) accounts: Vec<Holding>,
}

/// An account at an institution. Numbers keep their exact text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub(crate) struct Holding {
    /// The account's own members (docs/providers/akahu.md#accounts).
    pub(crate) account: Members,
    /// Current balance in cents, from which the rows' balances count back; `None` leaves balances
    /// out.
    pub(crate) running: Option<i64>,
    /// The amount in cents around which the balance of a new login varies.
    #[serde(default)]
    pub(crate) cents: i64,
    /// Whether the account shows when its rows were refreshed.
    #[serde(default)]
    pub(crate) synced: bool,
    #[serde(default)]
    pub(crate) plan: Plan,
    /// Odd rows: members that replace those of an ordinary row; `null` removes one. The ids of
    /// credit codes and of unknown codes are invented, because no real ones are known
    /// (docs/providers/akahu.md#categories).
    #[serde(default)]
    pub(crate) odd: Vec<Members>,
    /// Rows of `odd_rows.json` beside those of the plan. Every second one has only a day.
    #[serde(default)]
    pub(crate) odd_rows: OddRows,
}

/// How the rows of an account are generated.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Plan {
    fixed: &'static str,
    shops: &'static str,
    pub(crate) spending: u32,
    pub(crate) times: Times,
    /// Adds rows around midnights and clock changes.
    pub(crate) edges: bool,
    days: Option<(u32, u32)>,
    pub(crate) pending: u32,
}

impl Plan {
    /// The nearest and the farthest day, counted back.
    pub(crate) fn days(&self) -> (u32, u32) {
        self.days.unwrap_or((1, YEARS_DAYS))
    }

    /// The rows on fixed days, without a time of day: pay, rent, interest and repayments.
    pub(crate) fn fixed(&self) -> &'static [Template] {
        NEW_ZEALAND.lists.list(self.fixed)
    }

    /// The templates of daily spending.
    pub(crate) fn shops(&self) -> &'static [Template] {
        NEW_ZEALAND.lists.list(self.shops)
    }
}

/// How exact the times are that an account's bank gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Times {
    /// Always exact, in milliseconds.
    #[default]
    Real,
    /// Half of the rows give the day only, as midnight in New Zealand
    /// (docs/providers/akahu.md#dates).
    Mixed,
    /// The day only, as midnight UTC, as one card issuer does (docs/providers/akahu.md#dates).
    UtcMidnight,
}
