//! JSON responses, which are the same for every provider.

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
