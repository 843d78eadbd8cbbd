//! What is around the content of the pages for a user who is signed in.

use std::ops::Deref;

use bellbird_domain::{ConnectionCategory, Plan};

use super::done::DoneAt;
use super::frame::Frame;

/// The tabs: path, title, and the path data of an icon in 24 units.
pub(crate) const PAGES: &[(&str, &str, &str)] = &[
    ("/overview", "Overview", "M4 11 12 4l8 7v9h-5v-6H9v6H4z"),
    ("/transactions", "Transactions", "M4 7h16M4 12h16M4 17h10"),
    (
        "/investments",
        "Investments",
        "m4 17 5-6 4 3 7-8m0 0h-5m5 0v5",
    ),
    (
        "/connections",
        "Banks",
        "M4 9.5h16L12 4zM6.500 10v7m5.500-7v7m5.500-7v7M4 20h16",
    ),
];

/// The menu of the user.
pub(crate) const OWN_PAGES: &[(&str, &str)] =
    &[("/programs", "Programs"), ("/settings", "Settings")];

/// The menu of developers, which ends with the reference of the API.
pub(crate) const DEVELOPER_PAGES: &[(&str, &str)] =
    &[("/keys", "API keys"), ("/webhooks", "Webhooks")];

/// The pages of operators. The first is in the menu of the user.
pub(crate) const OPERATOR_PAGES: &[(&str, &str)] = &[
    ("/operator/users", "Users"),
    ("/operator/providers", "Providers"),
    ("/operator/health", "Health"),
    ("/operator/deliveries", "Deliveries"),
    ("/operator/audit", "Audit"),
];

/// A page of a menu, or the one that a path below it belongs to. `page` has a path and perhaps a
/// query, which is kept. Those of operators count as none, because nobody else learns of them.
pub(crate) fn page_of(page: &str) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    let two = [OWN_PAGES, DEVELOPER_PAGES];
    let two = two.into_iter().flatten().map(|(path, _)| *path);
    let mut paths = PAGES.iter().map(|(path, ..)| *path).chain(two);
    let is_of = |path: &&str| {
        let rest = page.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
    };
    let path = paths.find(is_of).filter(|_| page.bytes().all(is_plain))?;
    Some(match page.as_bytes().get(path.len()) {
        Some(b'/') => path,
        _ => page,
    })
}

/// The frame of a page in a menu, or of one that belongs to it.
pub(crate) struct SignedInFrame<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) email: &'a str,
    /// Whether the menu leads to the pages of operators.
    pub(crate) is_operator: bool,
    /// What it does not include is not offered.
    pub(crate) plan: Plan,
    /// The path of the page in the menu.
    pub(crate) current: &'static str,
    /// The reference of the API, where this browser finds it.
    pub(crate) docs: String,
    /// The IANA name of the user's timezone, for the script. None: it is not known.
    pub(crate) timezone: Option<&'a str>,
    /// What the form that led to the page has done.
    pub(crate) done: Option<&'a DoneAt>,
}

impl SignedInFrame<'_> {
    /// Whether the plan reads anything at all, so that keys, tokens and endpoints are of use.
    pub(crate) fn reads_banks(&self) -> bool {
        self.plan.reads(ConnectionCategory::Banking)
    }

    /// What the avatar shows.
    pub(crate) fn letter(&self) -> char {
        let first = self.email.chars().find(|c| c.is_alphanumeric());
        first.map_or('?', |c| c.to_uppercase().next().unwrap_or(c))
    }

    /// The line about the form that led here, if its place is this one: the word of a part of the
    /// page, or the id of a row.
    pub(crate) fn done_at(&self, place: impl ToString) -> Option<&'static str> {
        self.done.and_then(|done| done.text_at(&place.to_string()))
    }

    /// Whether that form did not do what it is for.
    pub(crate) fn has_failed(&self) -> bool {
        self.done.is_some_and(DoneAt::has_failed)
    }
}

impl Deref for SignedInFrame<'_> {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        self.frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_below_belong_to_one_of_a_menu() {
        for (path, page) in [
            ("/transactions", Some("/transactions")),
            ("/webhooks/endpoints/1", Some("/webhooks")),
            ("/operator/users", None),
            (
                "/transactions?period=3m&x=/",
                Some("/transactions?period=3m&x=/"),
            ),
            ("/settings?a\r\nb", None),
            ("/transactions.csv", None),
            ("/sign-out", None),
            ("//evil.example", None),
            ("", None),
        ] {
            assert_eq!(page_of(path), page, "{path}");
        }
    }
}
