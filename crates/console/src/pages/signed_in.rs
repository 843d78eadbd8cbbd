//! What is around the content of the pages for a user who is signed in.

use std::ops::Deref;

use bellbird_domain::{ConnectionCategory, Plan};

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

/// The pages of the menu for operators.
pub(crate) const OPERATOR_PAGES: &[(&str, &str)] = &[
    ("/operator/users", "Users"),
    ("/operator/providers", "Providers"),
    ("/operator/health", "Health"),
    ("/operator/deliveries", "Deliveries"),
    ("/operator/audit", "Audit"),
];

/// The frame of a page in the menu, or of one that belongs to it.
pub(crate) struct SignedInFrame<'a> {
    frame: &'a Frame,
    pub(crate) email: &'a str,
    /// Whether the menu for operators is shown.
    pub(crate) is_operator: bool,
    /// What it does not include is not offered.
    pub(crate) plan: Plan,
    /// The path of the page in the menu.
    pub(crate) current: &'static str,
}

impl<'a> SignedInFrame<'a> {
    pub(crate) fn new(
        frame: &'a Frame,
        email: &'a str,
        is_operator: bool,
        plan: Plan,
        current: &'static str,
    ) -> Self {
        Self {
            frame,
            email,
            is_operator,
            plan,
            current,
        }
    }

    /// Whether the plan reads anything at all, so that keys, tokens and endpoints are of use.
    pub(crate) fn reads_banks(&self) -> bool {
        self.plan.reads(ConnectionCategory::Banking)
    }
}

impl Deref for SignedInFrame<'_> {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        self.frame
    }
}
