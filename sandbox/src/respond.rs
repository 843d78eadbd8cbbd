//! JSON responses and fields, which are the same for every provider.

use std::fmt::Display;
use std::io::Write as _;

use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use serde::Serialize;

/// Responds with 200 and a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Response {
    ready(serde_json::to_vec(value).expect("plain values have a JSON text"))
}

/// Responds with 200 and JSON that is already serialized.
pub(crate) fn ready(body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Writes a text field after another field. The texts of the world need no escapes.
pub(crate) fn text(out: &mut Vec<u8>, name: &str, value: impl Display) {
    let _ = write!(out, ",\"{name}\":\"{value}\"");
}
