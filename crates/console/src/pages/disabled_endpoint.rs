//! Why a webhook endpoint is disabled, for its user.

use bellbird_storage::{DISABLED_BY_COMMAND, DISABLED_BY_OPERATOR, DISABLED_BY_USER};

/// Why, and what to do, of the reason that is stored.
pub(crate) fn why_disabled(reason: Option<&str>) -> &'static str {
    match reason {
        Some("failing") => "It has failed for days. Repair it, then enable it.",
        Some("gone") => {
            "It responded with 410 Gone, which asks for no more events. Enable it if that was a mistake."
        }
        Some("address not allowed") => {
            "Its address is one to which this service sends nothing. Give it another address, then enable it."
        }
        Some("secret broken") => {
            "Its secret cannot be read any more. Give it a new one, then enable it."
        }
        Some(DISABLED_BY_USER) => "You disabled it. Enable it when it is ready.",
        Some(DISABLED_BY_COMMAND | DISABLED_BY_OPERATOR) => {
            "The operator of this service disabled it. Ask why, and enable it when it is ready."
        }
        _ => "Enable it when it is ready.",
    }
}
