//! The programs that read accounts, and the steps that let each of them do so, from
//! `catalogue.json`. The recipes in docs/recipes say more, and how far each was tried.

use std::sync::LazyLock;

use serde::Deserialize;

/// In place of the URL of the API, without a slash at its end, as in docs/recipes.
const API_URL: &str = "https://bellbird.example.com";
/// In place of the key or the token, as there.
const SECRET: &str = "bb_...";

pub(super) static GROUPS: LazyLock<Vec<Group>> =
    LazyLock::new(|| serde_json::from_str(include_str!("catalogue.json")).unwrap_or_default());

/// Programs of one kind.
#[derive(Deserialize)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) programs: Vec<Program>,
}

/// A program, by the name of its key.
#[derive(Deserialize)]
pub(super) struct Program {
    pub(super) name: String,
    /// In the page's address.
    pub(super) id: String,
    /// What it does with the accounts.
    pub(super) gives: String,
    pub(super) takes: Takes,
    /// What to do with the secret, or with the file.
    pub(super) steps: Vec<Step>,
    /// What to know before. Empty: nothing.
    #[serde(default)]
    pub(super) note: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Takes {
    /// A setup token, which it claims once.
    SetupToken,
    Key,
    /// A file that the user saves.
    Transactions,
    /// A file of one account.
    Ofx,
}

#[derive(Deserialize)]
pub(super) struct Step {
    text: String,
    /// What to copy in this step, as in docs/recipes, or the name of a file there in braces. Empty:
    /// nothing.
    #[serde(default)]
    copy: String,
}

impl Step {
    /// Before there is something to copy, the text leads to nothing.
    pub(super) fn text(&self, is_made: bool) -> String {
        match self.text.strip_suffix(':') {
            Some(text) if !is_made && !self.copy.is_empty() => format!("{text}."),
            _ => self.text.clone(),
        }
    }

    pub(super) fn copy(&self, api_url: &str, secret: &str) -> String {
        let text = match self.copy.as_str() {
            "{sheet.gs}" => include_str!("../../../../docs/recipes/sheet.gs"),
            "{excel.pq}" => include_str!("../../../../docs/recipes/excel.pq"),
            text => text,
        };
        text.replace(API_URL, api_url).replace(SECRET, secret)
    }
}

impl Program {
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        let mut all = GROUPS.iter().flat_map(|group| &group.programs);
        all.find(|program| program.name == name && program.takes.is_secret())
    }
}

impl Takes {
    /// Whether something is made for the program, and shown once.
    pub(super) fn is_secret(self) -> bool {
        matches!(self, Self::SetupToken | Self::Key)
    }

    pub(super) fn is_token(self) -> bool {
        self == Self::SetupToken
    }
}

#[cfg(test)]
mod tests {
    use bellbird_management::values::KeyName;

    use super::*;

    #[test]
    fn texts_have_the_secret_in_its_place() {
        let all = || GROUPS.iter().flat_map(|group| &group.programs);
        for program in all().filter(|program| program.takes.is_secret()) {
            let steps = program.steps.iter();
            let texts: Vec<_> = steps
                .map(|step| step.copy("https://bank.example", "bb_secret"))
                .collect();
            assert!(
                texts.iter().any(|text| text.contains("bb_secret")),
                "{}: {texts:?}",
                program.name
            );
            for text in &texts {
                assert!(!text.contains(SECRET), "{}: {text}", program.name);
                if text.starts_with('{') {
                    let json = serde_json::from_str::<serde_json::Value>(text);
                    assert!(json.is_ok(), "{text}");
                }
            }
            assert!(program.name.parse::<KeyName>().is_ok());
        }
        let ids: std::collections::BTreeSet<_> = all().map(|program| &program.id).collect();
        assert!(ids.len() == all().count() && ids.len() > 5, "{ids:?}");
    }
}
