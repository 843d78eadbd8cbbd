//! Responses in Akahu's envelope, and its format of instants.

use axum::response::Response;
use jiff::Timestamp;
use serde::Serialize;

use crate::members::Members;
use crate::respond::{json, ready};

/// Wraps one object in the envelope.
pub(super) fn item(value: impl Serialize) -> Response {
    enveloped("item", &value)
}

/// Wraps a list in the envelope, without a cursor.
pub(super) fn items(values: impl IntoIterator<Item: Serialize>) -> Response {
    enveloped("items", &values.into_iter().collect::<Vec<_>>())
}

fn enveloped(name: &str, value: &impl Serialize) -> Response {
    let mut body = Members::default();
    body.set("success", &true);
    body.set(name, value);
    json(&body)
}

/// Responds with success and no content.
pub(super) fn done() -> Response {
    ready(br#"{"success":true}"#.to_vec())
}

/// Akahu writes instants in UTC with milliseconds (docs/providers/akahu.md#times).
pub(super) fn iso(at: Timestamp) -> String {
    format!("{at:.3}")
}
