//! Rows whose texts and amounts break careless readers of files: separators, quotes, tags, line
//! breaks, letters that do not show, formulas, directives of other programs, 300 letters, and
//! amounts with 0 to 30 places. Fiskil and Akahu serve them exactly as they are in `odd_rows.json`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::calendar::{Calendar, HOUR};

static ODD_ROWS: LazyLock<Groups> =
    LazyLock::new(|| super::load(include_str!("data/odd_rows.json")));

#[derive(Deserialize)]
struct Groups {
    /// Rows with two decimals, which every format can express.
    texts: Vec<OddRow>,
    amounts: Vec<OddRow>,
    /// Decimals that the standard does not allow, and one row without any time. That Fiskil serves
    /// them is a sandbox choice (docs/providers/fiskil.md#sandbox-choices).
    decimals: Vec<OddRow>,
    /// More digits than any number type holds.
    digits: Vec<OddRow>,
}

/// A row without ids and times.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OddRow {
    pub(crate) description: String,
    pub(crate) merchant: Option<String>,
    pub(crate) reference: Option<String>,
    /// Primary and secondary category of Fiskil.
    pub(crate) category: Option<(String, String)>,
    pub(crate) amount: String,
    #[serde(default)]
    pub(crate) undated: bool,
}

/// Which of the rows an account has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum OddRows {
    #[default]
    None,
    /// Only those with two decimals.
    Texts,
    /// Only those without decimals.
    Whole,
    /// The texts and the amounts.
    All,
    Decimals,
    Digits,
}

impl OddRows {
    pub(crate) fn rows(self) -> Vec<&'static OddRow> {
        let Groups {
            texts,
            amounts,
            decimals,
            digits,
        } = &*ODD_ROWS;
        match self {
            Self::None => Vec::new(),
            Self::Texts => texts.iter().collect(),
            Self::Whole => amounts
                .iter()
                .filter(|row| !row.amount.contains('.'))
                .collect(),
            Self::All => texts.iter().chain(amounts).collect(),
            Self::Decimals => decimals.iter().collect(),
            Self::Digits => digits.iter().collect(),
        }
    }
}

/// The instant of the row at `index`, newest first: three rows a day, from yesterday on.
pub(crate) fn instant(calendar: &Calendar, index: usize) -> i64 {
    calendar.instant(days_back(index), (18 - 5 * (index as i64 % 3)) * HOUR)
}

/// The day of the row at `index`, counted back.
pub(crate) const fn days_back(index: usize) -> u32 {
    1 + index as u32 / 3
}
