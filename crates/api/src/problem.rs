//! The only place where a failure becomes HTTP.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use bellbird_domain::ConnectionStatus;
use bellbird_reads::ReadError;
use bellbird_storage::{Chain, StorageError};
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

/// How long a caller is asked to wait while our own database does not answer.
const STORAGE_RETRY_AFTER_SECONDS: u64 = 2;

/// The error object: the body of every answer that is not a success.
#[derive(Serialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong, and what to do about it.
    pub error: ErrorObject,
}

/// What is wrong, and what to do about it.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub struct ErrorObject {
    /// A sentence for a person. Its wording may change.
    #[schema(example = "The API key is missing or not valid")]
    pub message: String,
    /// A word for a program. `professional_required` is the only one; left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "professional_required")]
    pub code: Option<&'static str>,
    /// One entry for each parameter that is wrong; left out when there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, example = json!(["limit: Must be an integer between 1 and 500"]))]
    pub details: Vec<String>,
}

/// Every way in which the API refuses or fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// No key, or one that is not valid.
    Unauthorized,
    /// Too many calls; try again after so many seconds.
    TooManyRequests(u64),
    /// The user's plan has no API access.
    PlanRequired,
    /// The user's plan has no holdings and trades.
    ProfessionalRequired,
    /// A parameter is wrong.
    BadRequest {
        /// What kind of parameter.
        message: &'static str,
        /// One entry a parameter.
        details: Vec<String>,
    },
    /// No such connection or account, or not the caller's.
    NotFound(&'static str),
    /// No such path.
    NoSuchPath,
    /// The path knows GET and HEAD only.
    MethodNotAllowed,
    /// The URL is longer than is read.
    UriTooLong,
    /// The headers are longer than is read.
    HeadersTooLarge,
    /// The user must reconnect; the status to name.
    Reconnect(ConnectionStatus),
    /// A provider does not answer; try again after so many seconds.
    ProviderUnavailable(u64),
    /// Our own database does not answer.
    ServiceUnavailable,
    /// A fault of ours. Says nothing about the inside.
    Internal,
}

impl Problem {
    /// Its status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::TooManyRequests(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::PlanRequired | Self::ProfessionalRequired => StatusCode::FORBIDDEN,
            Self::BadRequest { .. } => StatusCode::BAD_REQUEST,
            Self::NotFound(_) | Self::NoSuchPath => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Reconnect(_) | Self::ProviderUnavailable(_) | Self::ServiceUnavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Unauthorized => {
                "The API key is missing or not valid: send the header \"Authorization: Bearer <key>\""
            }
            Self::TooManyRequests(_) => "Too many requests: try again after the number of seconds in Retry-After",
            Self::PlanRequired => "API access requires a Developer or Professional plan",
            Self::ProfessionalRequired => "Holdings and trades require a Professional plan",
            Self::BadRequest { message, .. } => message,
            Self::NotFound(what) => return format!("{what} not found"),
            Self::NoSuchPath => "There is nothing at this path: see /docs",
            Self::MethodNotAllowed => "This path can only be read: use GET",
            Self::UriTooLong => "The URL is too long: at most 16 KiB are read",
            Self::HeadersTooLarge => "The request headers are too large: at most 64 KiB are read",
            Self::Reconnect(status) => {
                return format!("The connection is {status}: the user must reconnect it before it can be read again");
            }
            Self::ProviderUnavailable(_) => "The provider is temporarily unavailable: try again later",
            Self::ServiceUnavailable => "The service is temporarily unavailable: try again later",
            Self::Internal => "Something went wrong on our side",
        }
        .to_owned()
    }

    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooManyRequests(seconds) | Self::ProviderUnavailable(seconds) => Some(*seconds),
            Self::ServiceUnavailable => Some(STORAGE_RETRY_AFTER_SECONDS),
            _ => None,
        }
    }

    fn body(self) -> ErrorBody {
        let message = self.message();
        let code = matches!(self, Self::ProfessionalRequired).then_some("professional_required");
        let details = if let Self::BadRequest { details, .. } = self { details } else { Vec::new() };
        ErrorBody { error: ErrorObject { message, code, details } }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let retry_after = self.retry_after();
        let body = serde_json::to_vec(&self.body()).unwrap_or_default();
        let mut response = Response::new(axum::body::Body::from(Bytes::from(body)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

impl From<StorageError> for Problem {
    fn from(error: StorageError) -> Self {
        Self::from(&error)
    }
}

impl From<&StorageError> for Problem {
    fn from(error: &StorageError) -> Self {
        tracing::error!(error = %Chain(error), "database failed");
        match error {
            StorageError::Unavailable(_) => Self::ServiceUnavailable,
            _ => Self::Internal,
        }
    }
}

/// What a question that concerned `what` came to; `needs` says which category it needed.
#[must_use]
pub fn from_read(error: &ReadError, what: &'static str, needs: &'static str) -> Problem {
    match error {
        ReadError::NotFound => Problem::NotFound(what),
        ReadError::WrongCategory => Problem::BadRequest { message: needs, details: Vec::new() },
        ReadError::Reconnect(status) => Problem::Reconnect(*status),
        ReadError::Unavailable { retry_after } => Problem::ProviderUnavailable(whole_seconds(*retry_after)),
        ReadError::Storage(error) => Problem::from(error.as_ref()),
    }
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_members_are_left_out() {
        let body = |problem: Problem| serde_json::to_string(&problem.body()).unwrap();
        assert_eq!(
            body(Problem::PlanRequired),
            r#"{"error":{"message":"API access requires a Developer or Professional plan"}}"#
        );
        assert_eq!(
            body(Problem::ProfessionalRequired),
            r#"{"error":{"message":"Holdings and trades require a Professional plan","code":"professional_required"}}"#
        );
        let problem = Problem::BadRequest { message: "Invalid query parameters", details: vec!["limit: x".to_owned()] };
        assert_eq!(body(problem), r#"{"error":{"message":"Invalid query parameters","details":["limit: x"]}}"#);
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(5)), 5);
        assert_eq!(whole_seconds(Duration::from_millis(5_001)), 6);
    }
}
