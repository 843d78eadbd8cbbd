//! Replaces the responses that hyper sends itself, before a handler runs: 400, 414 and 431 without a body. The
//! replacement has the JSON error body that every other response has.
//!
//! hyper has no hook for these responses, so they are found in the bytes that it writes. Such a response is always the
//! last one of its connection and ends a write. Its only headers are `content-length: 0`, `connection` and `date`. The
//! router's responses differ: each has an `x-request-id` or at least a `content-type`.

use std::ops::Range;

use uuid::Uuid;

const HEADS: [(&[u8], u16, &str); 3] = [
    (b"HTTP/1.1 400 Bad Request\r\n", 400, "This is not a valid HTTP request."),
    (b"HTTP/1.1 414 URI Too Long\r\n", 414, "The URL is too long."),
    (b"HTTP/1.1 431 Request Header Fields Too Large\r\n", 431, "The headers are too large."),
];

/// Size limit of such a response.
const LENGTH_MAX: usize = 200;

/// A response that hyper generated itself, at the end of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EarlyAnswer {
    /// Its position; it ends with the written bytes.
    pub(super) at: Range<usize>,
    pub(super) status: u16,
    message: &'static str,
}

/// Finds a response of hyper at the end of `bytes`.
pub(super) fn find(bytes: &[u8]) -> Option<EarlyAnswer> {
    if !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let from = bytes.len().saturating_sub(LENGTH_MAX);
    let start = from + bytes[from..].windows(9).rposition(|window| window == b"HTTP/1.1 ")?;
    let answer = &bytes[start..];
    let (head, status, message) = HEADS.iter().find(|(head, ..)| answer.starts_with(head))?;
    let fields = &answer[head.len()..answer.len() - 4];
    let fields_of_hyper = fields.split(|byte| *byte == b'\n').all(|field| {
        let name = field.split(|byte| *byte == b':').next().unwrap_or(field);
        [&b"content-length"[..], b"connection", b"date"].contains(&name)
    });
    fields_of_hyper.then_some(EarlyAnswer { at: start..bytes.len(), status: *status, message })
}

/// Builds the response to send instead.
pub(super) fn replacement(early: &EarlyAnswer, request_id: Uuid) -> Vec<u8> {
    let head = HEADS.iter().find(|(_, status, _)| *status == early.status).map_or(&b""[..], |(head, ..)| head);
    let body = serde_json::json!({ "error": { "message": early.message } }).to_string();
    let mut answer = head.to_vec();
    answer.extend_from_slice(
        format!(
            "content-type: application/json\r\ncontent-length: {}\r\ncache-control: private, no-store\r\n\
             x-request-id: {request_id}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLY: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\n\
        connection: close\r\ncontent-length: 0\r\ndate: Sat, 21 Nov 2026 03:20:00 GMT\r\n\r\n";

    #[test]
    fn early_answer_is_found_alone_and_after_another() {
        assert_eq!(find(EARLY).unwrap().at, 0..EARLY.len());
        let mut both = b"HTTP/1.1 200 OK\r\nx-request-id: 1\r\ncontent-length: 0\r\n\r\n".to_vec();
        let start = both.len();
        both.extend_from_slice(EARLY);
        let found = find(&both).unwrap();
        assert_eq!((found.at, found.status), (start..both.len(), 431));
    }

    #[test]
    fn router_responses_are_not_replaced() {
        for response in [
            &b"HTTP/1.1 400 Bad Request\r\nx-request-id: 1\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            b"0\r\n\r\n",
            b"\r\n\r\n",
            b"{}",
            b"",
        ] {
            assert_eq!(find(response), None, "{}", String::from_utf8_lossy(response));
        }
    }
}
