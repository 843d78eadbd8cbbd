//! The two shapes of Fiskil's errors (docs/providers/fiskil.md#errors). Messages are invented
//! unless a comment cites a source.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::json;

/// The part of Fiskil that responds, which decides the shape of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Token, end users, sessions, consents and institutions.
    FrontDoor,
    /// Everything under `/v1/banking` and `/v1/common`.
    Data,
}

impl Family {
    pub(super) fn of(path: &str) -> Self {
        if path.starts_with("/v1/banking") || path.starts_with("/v1/common") {
            Self::Data
        } else {
            Self::FrontDoor
        }
    }
}

#[derive(Debug)]
pub(super) struct Failure {
    pub(super) family: Family,
    pub(super) status: StatusCode,
    /// Stable within a class; the documented name where one was seen
    /// (docs/providers/fiskil.md#errors).
    pub(super) name: &'static str,
    pub(super) message: String,
}

impl Failure {
    /// The default error of a status, for forced faults and unknown routes. Undocumented names are
    /// invented (docs/providers/fiskil.md#errors).
    pub(super) fn of_status(family: Family, status: StatusCode) -> Self {
        let (front, data) = match status.as_u16() {
            400 => ("bad_request", "InvalidRequest"),
            401 => ("unauthorized", "Unauthorized"),
            403 => ("forbidden", "Forbidden"),
            404 => ("not_found", "NotFound"),
            405 => ("method_not_allowed", "MethodNotAllowed"),
            413 => ("request_too_large", "RequestTooLarge"),
            429 => ("rate_limited", "RateLimited"),
            502 => ("bad_gateway", "BadGateway"),
            503 => ("unavailable", "Unavailable"),
            _ => ("internal_error", "InternalError"),
        };
        let message = match status.as_u16() {
            503 => "temporarily unavailable".to_owned(),
            _ => status.canonical_reason().unwrap_or("error").to_lowercase(),
        };
        Self {
            family,
            status,
            name: if family == Family::Data { data } else { front },
            message,
        }
    }

    /// Returns content type and body.
    pub(super) fn body(&self) -> (&'static str, Vec<u8>) {
        let id = uuid::Uuid::new_v4();
        let mut body =
            json!({"id": format!("err_{id}"), "name": self.name, "message": self.message});
        let mut content_type = "application/json";
        if self.family == Family::FrontDoor {
            content_type = "application/vnd.goa.error";
            body["id"] = id.simple().to_string()[..8].to_owned().into();
            body["temporary"] = matches!(self.status.as_u16(), 429 | 503).into();
            body["timeout"] = (self.status.as_u16() == 504).into();
            body["fault"] = self.status.is_server_error().into();
        }
        (content_type, body.to_string().into_bytes())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (content_type, body) = self.body();
        (self.status, [(header::CONTENT_TYPE, content_type)], body).into_response()
    }
}
