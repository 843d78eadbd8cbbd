//! The shapes of Akahu's errors (docs/providers/akahu.md#errors). Where sources disagree on words, these are the ones
//! of its own OpenAPI document; those of 404 and 405 for what is no route are ours.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::json;

use super::paths;

/// An error answer.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    message: String,
}

impl Failure {
    pub(super) fn new(status: StatusCode, message: &str) -> Self {
        Self { status, message: message.to_owned() }
    }

    /// What a status alone says.
    pub(super) fn of_status(status: StatusCode) -> Self {
        let message = match status.as_u16() {
            401 => "Permission Denied",
            429 => "Rate limit exceeded",
            500 => "Something went wrong",
            _ => status.canonical_reason().unwrap_or("Error"),
        };
        Self::new(status, message)
    }

    /// 400.
    pub(super) fn invalid(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 404: the id has the right form, but nothing of the user's has it.
    pub(super) fn not_found() -> Self {
        Self::of_status(StatusCode::NOT_FOUND)
    }
}

/// Content type and body of an error of that status on that path: what a forced fault says.
pub(super) fn body(path: &str, status: StatusCode) -> (&'static str, Vec<u8>) {
    let body = match (status.as_u16(), path) {
        // What stands in front of Akahu knows nothing of JSON (docs/providers/akahu.md#errors); the page is ours.
        (502..=504, _) => return ("text/html", format!("<html><h1>{status}</h1></html>").into_bytes()),
        // Flat, in the way of OAuth (docs/providers/akahu.md#token-exchange).
        (_, paths::TOKEN) => json!({"success": false, "error": "server_error"}),
        _ => json!({"success": false, "message": Failure::of_status(status).message}),
    };
    ("application/json", body.to_string().into_bytes())
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({"success": false, "message": self.message}).to_string();
        (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}
