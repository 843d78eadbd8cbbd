//! SnapTrade's errors (docs/providers/snaptrade.md#errors). Texts and codes are documented there
//! unless a comment says otherwise.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::json;

/// An error in the shape `{"detail", "status_code", "code"}`.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// Usually four digits as text.
    pub(super) code: &'static str,
    pub(super) detail: String,
    /// In seconds, with 429.
    pub(super) retry_after: Option<i64>,
}

impl Failure {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            retry_after: None,
        }
    }

    /// The default error of a status, for forced faults and unknown routes. Where a status has
    /// several codes the sandbox chose one. The text of 409 is invented, because the documentation
    /// says only that concurrent requests cause it.
    pub(super) fn of_status(status: StatusCode) -> Self {
        let mut lines = include_str!("errors.tsv").lines();
        let known = lines.find_map(|line| {
            let rest = line.strip_prefix(status.as_str())?.strip_prefix('\t')?;
            rest.split_once('\t')
        });
        let (code, detail) =
            known.unwrap_or(("0000", status.canonical_reason().unwrap_or("error")));
        Self::new(status, code, detail)
    }

    /// An unknown client, or a signature of another key.
    pub(super) fn signature() -> Self {
        let detail = "Unable to verify signature sent";
        Self::new(StatusCode::UNAUTHORIZED, "1076", detail)
    }

    /// An unknown user, or a wrong secret.
    pub(super) fn user() -> Self {
        Self::of_status(StatusCode::UNAUTHORIZED)
    }

    /// An unknown id, or an id of another user.
    pub(super) fn missing() -> Self {
        Self::of_status(StatusCode::NOT_FOUND)
    }

    /// An unusable body or parameter. The texts are invented.
    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "1012", detail)
    }

    /// An unreadable body.
    pub(super) fn unreadable() -> Self {
        Self::of_status(StatusCode::BAD_REQUEST)
    }

    /// A call that needs the brokerage, on a disabled connection.
    pub(super) fn disabled() -> Self {
        Self::of_status(StatusCode::PAYMENT_REQUIRED)
    }

    /// A call over a rate limit.
    pub(super) fn throttled(seconds: i64) -> Self {
        let detail = format!("Request was throttled. Expected available in {seconds} seconds.");
        Self {
            retry_after: Some(seconds),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "0000", detail)
        }
    }

    /// Serializes the body. A 410 has `detail` only, because nothing else about it is known.
    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = json!({"detail": self.detail});
        if self.status != StatusCode::GONE {
            body["status_code"] = self.status.as_u16().into();
            body["code"] = self.code.into();
        }
        body.to_string().into_bytes()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let json = [(header::CONTENT_TYPE, "application/json")];
        let retry_after = self
            .retry_after
            .map(|seconds| [(header::RETRY_AFTER, seconds.to_string())]);
        (self.status, json, retry_after, self.body()).into_response()
    }
}
