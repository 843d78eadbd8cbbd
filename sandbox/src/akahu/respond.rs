//! Responses in Akahu's envelope, and its format of instants.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::header;
use jiff::Timestamp;
use serde::Serialize;

use crate::members::Members;

/// Wraps one object in the envelope.
pub(super) fn item(value: impl Serialize) -> Response {
    enveloped("item", &value)
}

/// Wraps a list in the envelope, without a cursor.
pub(super) fn items(values: impl Serialize) -> Response {
    enveloped("items", &values)
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

/// Responds with 200 and a value as JSON.
pub(super) fn json(value: &impl Serialize) -> Response {
    ready(serde_json::to_vec(value).expect("plain values have a JSON text"))
}

/// Responds with 200 and JSON that is already serialized.
pub(super) fn ready(body: Vec<u8>) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        Body::from(body),
    )
        .into_response()
}

/// Akahu writes instants in UTC with milliseconds (docs/providers/akahu.md#times).
pub(super) fn iso(at: Timestamp) -> String {
    format!("{at:.3}")
}
