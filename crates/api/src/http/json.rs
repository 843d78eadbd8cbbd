//! Serializes views and turns JSON into responses.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use crate::http::problem::Problem;

/// A response whose body is serialized already.
pub fn json_bytes(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A response with a view as its body.
pub fn respond(view: &impl Serialize) -> Result<Response, Problem> {
    to_json(view).map(json_bytes)
}

pub fn to_json(view: &impl Serialize) -> Result<Bytes, Problem> {
    serde_json::to_vec(view)
        .map(Bytes::from)
        .map_err(|_| Problem::Internal)
}

/// Appends a view to `out`. See [`write_string`] for what is written often.
pub fn write_json(view: &impl Serialize, out: &mut Vec<u8>) {
    let written = serde_json::to_writer(out, view);
    debug_assert!(written.is_ok(), "strings and numbers always serialize");
}

/// Appends a string as JSON, as serde_json does. Most strings need no escape, which is decided 16
/// bytes at a time.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let end = bytes.last_chunk::<16>();
    if bytes
        .as_chunks::<16>()
        .0
        .iter()
        .all(|block| is_plain(block))
        && end.map_or_else(|| is_plain(bytes), |end| is_plain(end))
    {
        out.push(b'"');
        out.extend_from_slice(bytes);
        out.push(b'"');
    } else {
        write_json(&text, out);
    }
}

/// Has no branches, so that the compiler compares all bytes of a block at once.
#[inline(always)]
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |plain, byte| {
        plain & (*byte >= b' ') & (*byte != b'"') & (*byte != b'\\')
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn strings_are_written_as_by_serde_json(
            start in "[a-z\u{0}-\u{21}\"\\\\\u{7f}é😀]{0,5}",
            middle in "[ -~]{0,40}",
            end in "[a-z\u{0}-\u{21}\"\\\\]{0,2}",
        ) {
            let text = start + &middle + &end;
            let mut written = b"before".to_vec();
            write_string(&text, &mut written);
            prop_assert_eq!(&written[6..], serde_json::to_vec(&text).unwrap());
        }
    }
}
