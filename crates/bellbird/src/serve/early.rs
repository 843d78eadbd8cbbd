//! What hyper answers itself, before any of our code has seen the request: 400, 414 and 431 without a body.
//! Recognised among the bytes that it writes, and replaced by the error object that every other path has.
//!
//! Such an answer is always the last thing on its connection, stands at the end of a write, and carries nothing but
//! `content-length: 0`, `connection` and `date`. No answer of ours looks like that: each has an `x-request-id`, or at
//! least a `content-type`.

use std::ops::Range;

use uuid::Uuid;

const HEADS: [(&[u8], u16, &str); 3] = [
    (b"HTTP/1.1 400 Bad Request\r\n", 400, "This is not a valid HTTP request."),
    (b"HTTP/1.1 414 URI Too Long\r\n", 414, "The URL is too long."),
    (b"HTTP/1.1 431 Request Header Fields Too Large\r\n", 431, "The headers are too large."),
];

/// No early answer is longer.
const LENGTH_MAX: usize = 200;

/// hyper's own answer at the end of what it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EarlyAnswer {
    /// Where it lies; it ends where the bytes end.
    pub(super) at: Range<usize>,
    /// Its status code.
    pub(super) status: u16,
    message: &'static str,
}

/// Looks for an early answer at the end of `bytes`.
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

/// The answer to send in its place.
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

    const EARLY: &[u8] =
        b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: Sat, 21 Nov 2026 03:20:00 GMT\r\n\r\n";

    #[test]
    fn an_early_answer_is_found_alone_and_behind_another_answer() {
        assert_eq!(find(EARLY).unwrap().at, 0..EARLY.len());
        let mut both = b"HTTP/1.1 200 OK\r\nx-request-id: 1\r\ncontent-length: 0\r\n\r\n".to_vec();
        let start = both.len();
        both.extend_from_slice(EARLY);
        let found = find(&both).unwrap();
        assert_eq!((found.at, found.status), (start..both.len(), 431));
    }

    #[test]
    fn answers_of_ours_are_left_alone() {
        for ours in [
            &b"HTTP/1.1 400 Bad Request\r\nx-request-id: 1\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            b"0\r\n\r\n",
            b"\r\n\r\n",
            b"{}",
            b"",
        ] {
            assert_eq!(find(ours), None, "{}", String::from_utf8_lossy(ours));
        }
    }
}
