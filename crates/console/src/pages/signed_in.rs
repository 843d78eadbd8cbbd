//! What is around the content of the pages for a user who is signed in.

use std::ops::Deref;

use super::frame::Frame;

/// The pages of the menu: path and title.
pub(crate) const PAGES: &[(&str, &str)] = &[
    ("/overview", "Overview"),
    ("/transactions", "Transactions"),
    ("/investments", "Investments"),
    ("/connections", "Connections"),
    ("/programs", "Programs"),
    ("/keys", "API keys"),
    ("/webhooks", "Webhooks"),
    ("/settings", "Settings"),
];

/// The frame of a page in the menu, or of one that belongs to it.
pub(crate) struct SignedInFrame<'a> {
    frame: &'a Frame,
    pub(crate) email: &'a str,
    /// The path of the page in the menu.
    pub(crate) current: &'static str,
}

impl<'a> SignedInFrame<'a> {
    pub(crate) fn new(frame: &'a Frame, email: &'a str, current: &'static str) -> Self {
        Self { frame, email, current }
    }
}

impl Deref for SignedInFrame<'_> {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        self.frame
    }
}
