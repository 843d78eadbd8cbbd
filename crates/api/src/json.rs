//! Serializes views and turns JSON into responses.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use crate::problem::Problem;

/// A response whose body is serialized already.
pub(crate) fn json_bytes(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(crate) fn to_json(view: &impl Serialize) -> Result<Bytes, Problem> {
    serde_json::to_vec(view).map(Bytes::from).map_err(|_| Problem::Internal)
}

/// Appends a view to `out`.
pub(crate) fn write_json(view: &impl Serialize, out: &mut Vec<u8>) {
    let written = serde_json::to_writer(out, view);
    debug_assert!(written.is_ok(), "strings and numbers always serialize");
}
