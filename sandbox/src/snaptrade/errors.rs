//! SnapTrade's errors (docs/providers/snaptrade.md#errors). Texts and codes are documented there
//! unless a comment says otherwise.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::Serialize;

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
        Self {
            status,
            code,
            detail: detail.into(),
            retry_after: None,
        }
    }

    /// An unknown client, or a signature of another key.
    pub(super) fn signature() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "1076",
            "Unable to verify signature sent",
        )
    }

    /// An unknown user, or a wrong secret.
    pub(super) fn user() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "1083",
            "Invalid userID or userSecret provided",
        )
    }

    /// An unknown id, or an id of another user.
    pub(super) fn missing() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "1011",
            "The requested resource does not exist.",
        )
    }

    /// An unusable body or parameter. The texts are invented.
    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "1012", detail)
    }

    /// An unreadable body.
    pub(super) fn unreadable() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "1076",
            "Unable to verify data sent",
        )
    }

    /// A call that needs the brokerage, on a disabled connection.
    pub(super) fn disabled() -> Self {
        let detail = "Unable to sync with brokerage account because the connection is disabled.";
        Self::new(StatusCode::PAYMENT_REQUIRED, "3003", detail)
    }

    /// A feature that the plan does not include.
    pub(super) fn not_enabled() -> Self {
        let detail = "Feature is not enabled for this customer or this connection";
        Self::new(StatusCode::FORBIDDEN, "1141", detail)
    }

    /// A call over a rate limit.
    pub(super) fn throttled(seconds: i64) -> Self {
        let detail = format!("Request was throttled. Expected available in {seconds} seconds.");
        Self {
            retry_after: Some(seconds),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "0000", detail)
        }
    }

    /// The default error of a status, for forced faults and unknown routes. Where a status has
    /// several codes the sandbox chose one.
    pub(super) fn of_status(status: StatusCode) -> Self {
        match status.as_u16() {
            400 => Self::unreadable(),
            401 => Self::user(),
            402 => Self::disabled(),
            403 => Self::new(
                status,
                "1066",
                "User does not have permission to access this resource",
            ),
            404 => Self::missing(),
            // The text is invented; the documentation says only that concurrent requests cause it.
            409 => Self::new(
                status,
                "1166",
                "Another request for this resource is in progress.",
            ),
            410 => Self::new(
                status,
                "",
                "This endpoint is no longer available for your account.",
            ),
            425 => Self::new(
                status,
                "3012",
                "The resource is currently being populated. Please try again later.",
            ),
            429 => Self {
                retry_after: None,
                ..Self::throttled(7)
            },
            500 => Self::new(status, "1000", "Encountered an unexpected exception."),
            503 => {
                let detail =
                    "Unable to sync with brokerage account. Invalid response from Brokerage API.";
                Self::new(status, "3002", detail)
            }
            _ => Self::new(status, "0000", status.canonical_reason().unwrap_or("error")),
        }
    }

    /// Serializes the body. A 410 has `detail` only, because nothing else about it is known.
    pub(super) fn body(&self) -> Vec<u8> {
        let known = self.status != StatusCode::GONE;
        let status_code = known.then_some(self.status.as_u16());
        let body = Body {
            detail: &self.detail,
            status_code,
            code: known.then_some(self.code),
        };
        serde_json::to_vec(&body).expect("plain text has a JSON form")
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
