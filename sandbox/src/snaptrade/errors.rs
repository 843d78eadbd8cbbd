//! SnapTrade's errors (docs/providers/snaptrade.md#errors). Words and codes are documented there unless a comment says
//! that they are ours.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::Serialize;

/// An error answer: `{"detail", "status_code", "code"}`.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// Four digits as text, as a rule.
    pub(super) code: &'static str,
    pub(super) detail: String,
    /// Seconds, with 429.
    pub(super) retry_after: Option<i64>,
}

#[derive(Serialize)]
struct Body<'a> {
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
}

impl Failure {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None }
    }

    /// Unknown client, or not signed with its key.
    pub(super) fn signature() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "1076", "Unable to verify signature sent")
    }

    /// A user that is not there, or another's secret.
    pub(super) fn user() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "1083", "Invalid userID or userSecret provided")
    }

    /// Not there, or somebody else's.
    pub(super) fn missing() -> Self {
        Self::new(StatusCode::NOT_FOUND, "1011", "The requested resource does not exist.")
    }

    /// A body or a parameter that cannot be used. The words are ours.
    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "1012", detail)
    }

    /// A body that cannot be read.
    pub(super) fn unreadable() -> Self {
        Self::new(StatusCode::BAD_REQUEST, "1076", "Unable to verify data sent")
    }

    /// A call that needs the brokerage.
    pub(super) fn disabled() -> Self {
        let detail = "Unable to sync with brokerage account because the connection is disabled.";
        Self::new(StatusCode::PAYMENT_REQUIRED, "3003", detail)
    }

    /// What the plan does not include.
    pub(super) fn not_enabled() -> Self {
        let detail = "Feature is not enabled for this customer or this connection";
        Self::new(StatusCode::FORBIDDEN, "1141", detail)
    }

    /// Past a rate limit.
    pub(super) fn throttled(seconds: i64) -> Self {
        let detail = format!("Request was throttled. Expected available in {seconds} seconds.");
        Self { retry_after: Some(seconds), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "0000", detail) }
    }

    /// What a status alone says: for forced faults and unknown routes. Which of a status's codes is ours.
    pub(super) fn of_status(status: StatusCode) -> Self {
        match status.as_u16() {
            400 => Self::unreadable(),
            401 => Self::user(),
            402 => Self::disabled(),
            403 => Self::new(status, "1066", "User does not have permission to access this resource"),
            404 => Self::missing(),
            // The words are ours; only that it is about requests at the same time is known.
            409 => Self::new(status, "1166", "Another request for this resource is in progress."),
            410 => Self::new(status, "", "This endpoint is no longer available for your account."),
            425 => Self::new(status, "3012", "The resource is currently being populated. Please try again later."),
            429 => Self { retry_after: None, ..Self::throttled(7) },
            500 => Self::new(status, "1000", "Encountered an unexpected exception."),
            503 => {
                let detail = "Unable to sync with brokerage account. Invalid response from Brokerage API.";
                Self::new(status, "3002", detail)
            }
            _ => Self::new(status, "0000", status.canonical_reason().unwrap_or("error")),
        }
    }

    /// The body. Of 410, nothing but `detail` is known.
    pub(super) fn body(&self) -> Vec<u8> {
        let known = self.status != StatusCode::GONE;
        let status_code = known.then_some(self.status.as_u16());
        let body = Body { detail: &self.detail, status_code, code: known.then_some(self.code) };
        serde_json::to_vec(&body).expect("plain text has a JSON form")
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let json = [(header::CONTENT_TYPE, "application/json")];
        let retry_after = self.retry_after.map(|seconds| [(header::RETRY_AFTER, seconds.to_string())]);
        (self.status, json, retry_after, self.body()).into_response()
    }
}
