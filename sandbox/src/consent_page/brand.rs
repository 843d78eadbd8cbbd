//! What the pages of each provider show, and what the app receives about a failure.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::session::Reason;
use crate::provider::Provider;

static BRANDS: LazyLock<BTreeMap<&'static str, Brand>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("brands.json")).expect("the brands have the documented shape")
});

/// A provider's colours and texts on the pages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Brand {
    pub(super) name: &'static str,
    /// The background of the header and of buttons, with white text on it.
    pub(super) colour: &'static str,
    pub(super) tint: &'static str,
    /// Whether apps may show the pages in a frame, as Fiskil's own kit does and SnapTrade allows.
    /// Akahu forbids it (docs/providers/akahu.md#consent-page).
    pub(super) framed: bool,
    /// The page's word for an institution.
    pub(super) institution_word: &'static str,
    /// What the app asks to read.
    #[serde(borrow)]
    pub(super) permissions: Vec<&'static str>,
    /// Text above the first button.
    pub(super) note: &'static str,
    /// Text for a session that has ended, has expired or never existed.
    pub(super) expired_text: &'static str,
    /// By the reasons for which a session of the provider can fail.
    failures: BTreeMap<Reason, Failure>,
}

/// What the app and the user read. In the provider's own words, except for the texts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Failure {
    pub(crate) status: Option<u16>,
    pub(crate) code: &'static str,
    pub(crate) text: Option<&'static str>,
}

impl Brand {
    pub(crate) fn of<P: Provider>() -> &'static Self {
        &BRANDS[P::NAME]
    }

    /// The letter in the header.
    pub(super) fn initial(&self) -> &str {
        &self.name[..1]
    }

    /// The text of a consent's last page.
    pub(crate) fn success(&self, institution: &str) -> String {
        let name = self.name;
        format!("{name} now shares your accounts at {institution}.")
    }

    pub(crate) fn failure(&self, reason: Reason) -> &Failure {
        &self.failures[&reason]
    }
}

#[cfg(test)]
mod tests {
    use super::{BRANDS, Reason};
    use crate::PROVIDERS;

    #[test]
    fn every_failure_of_a_provider_has_its_words() {
        let of_all = [
            Reason::Cancelled,
            Reason::Denied,
            Reason::WrongCode,
            Reason::Unavailable,
            Reason::LoginRejected,
            Reason::TimedOut,
        ];
        for provider in PROVIDERS {
            let own: &[Reason] = match provider {
                "fiskil" => &[Reason::UserDeleted],
                "snaptrade" => &[
                    Reason::Closed,
                    Reason::WrongLogin,
                    Reason::Deleted,
                    Reason::UserDeleted,
                ],
                _ => &[],
            };
            let mut reachable = [of_all.as_slice(), own].concat();
            reachable.sort_unstable();
            let known: Vec<Reason> = BRANDS[provider].failures.keys().copied().collect();
            assert_eq!(known, reachable, "{provider}");
        }
    }
}
