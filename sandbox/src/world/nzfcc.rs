//! NZFCC, the New Zealand Financial Category Codes. `nzfcc.tsv` has every spending code with its
//! real id and name, below its group (docs/providers/akahu.md#spending-codes). The ids of income
//! codes are unknown, so none is there.

use std::sync::LazyLock;

use serde::de::{Deserialize, Deserializer, Error};

#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    /// Id and name of its group of `personal_finance`, the only grouping that exists.
    pub(crate) group: (&'static str, &'static str),
}

/// All codes, sorted by group.
pub(crate) static CODES: LazyLock<Vec<Code>> = LazyLock::new(|| {
    let lines = include_str!("data/nzfcc.tsv").lines();
    let mut group = ("", "");
    let mut codes = Vec::new();
    for (id, name) in lines.filter_map(|line| line.split_once('\t')) {
        if id.starts_with("group_") {
            group = (id, name);
        } else {
            codes.push(Code { id, name, group });
        }
    }
    codes
});

/// Reads the name of a code.
pub(super) fn named<'de, D: Deserializer<'de>>(
    value: D,
) -> Result<Option<&'static Code>, D::Error> {
    let name = String::deserialize(value)?;
    let code = CODES.iter().find(|code| code.name == name);
    code.map(Some)
        .ok_or_else(|| D::Error::custom(format!("no code has the name {name}")))
}
