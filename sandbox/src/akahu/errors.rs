//! Akahu's error bodies (docs/providers/akahu.md#errors). Where sources disagree on the texts,
//! these follow Akahu's own OpenAPI document. The texts of 404 and 405 for unknown routes are
//! invented.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;

use super::TOKEN_PATH;
use crate::respond;

#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    message: String,
}

impl Failure {
    pub(super) fn new(status: StatusCode, message: &str) -> Self {
        Self {
            status,
            message: message.to_owned(),
        }
    }

    /// The default text of a status.
    pub(super) fn of_status(status: StatusCode) -> Self {
        let message = match status.as_u16() {
            401 => "Permission Denied",
            429 => "Rate limit exceeded",
            500 => "Something went wrong",
            _ => status.canonical_reason().unwrap_or("Error"),
        };
        Self::new(status, message)
    }

    /// Responds with 400.
    pub(super) fn invalid(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Responds with 404: the id is well formed, but nothing of the user has it.
    pub(super) fn not_found() -> Self {
        Self::of_status(StatusCode::NOT_FOUND)
    }
}

/// Returns content type and body of the error that a fault forces on a path.
pub(super) fn body(path: &str, status: StatusCode) -> (&'static str, Vec<u8>) {
    let body = match (status.as_u16(), path) {
        // Gateways in front of Akahu do not respond in JSON (docs/providers/akahu.md#errors). The
        // page is invented.
        (502..=504, _) => {
            return (
                "text/html",
                format!("<html><h1>{status}</h1></html>").into_bytes(),
            );
        }
        // A flat OAuth error (docs/providers/akahu.md#token-exchange).
        (_, TOKEN_PATH) => json!({"success": false, "error": "server_error"}),
        _ => json!({"success": false, "message": Failure::of_status(status).message}),
    };
    ("application/json", body.to_string().into_bytes())
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = respond::json(&json!({"success": false, "message": self.message}));
        (self.status, body).into_response()
    }
}
