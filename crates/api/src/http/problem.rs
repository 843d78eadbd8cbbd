//! The failures of handlers, each with its status, `Retry-After` and message, and the error object
//! of `/v1`. Other interfaces word a [`Problem`] in their own form (`WireStyle`).

use std::borrow::Cow;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use bellbird_domain::{ConnectionCategory, ConnectionId, ConnectionStatus};
use bellbird_reads::ReadError;
use bellbird_storage::{Chain, StorageError};
use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// [`Problem::code`].
pub const BELLBIRD_ERROR: HeaderName = HeaderName::from_static("bellbird-error");
/// `Retry-After` if the provider sends none.
const READ_RETRY_AFTER: Duration = Duration::from_secs(5);
/// `Retry-After` if only the operator can help.
const OPERATOR_RETRY_AFTER_SECONDS: u64 = 60;
/// `Retry-After` while the database is unavailable.
const STORAGE_RETRY_AFTER_SECONDS: u64 = 2;

/// The body of every response that is not a success.
#[derive(Serialize, utoipa::ToSchema)]
pub struct ErrorBody {
    /// What happened, and what to do about it.
    pub error: ErrorObject,
}

/// What happened, and what to do about it.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Error)]
pub struct ErrorObject {
    /// A sentence for humans. Its wording may change.
    #[schema(example = "The API key is missing or not valid")]
    pub message: String,
    /// A code for programs. Most paths have only `professional_required`, and otherwise omit it.
    /// `/v1/me`, changes and files have the word of the header `Bellbird-Error` in every error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "professional_required")]
    pub code: Option<&'static str>,
    /// One entry for each invalid parameter. Or the connection at fault, as `connectionId: <id>`,
    /// and its status if the user has to reconnect it, as `status: <status>`. Omitted if there is
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, example = json!(["limit: Must be an integer between 1 and 500"]))]
    pub details: Vec<String>,
}

impl From<&str> for ErrorBody {
    fn from(message: &str) -> Self {
        Self {
            error: ErrorObject {
                message: message.to_owned(),
                code: None,
                details: Vec::new(),
            },
        }
    }
}

/// Every error of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The key is missing or not valid.
    Unauthorized,
    /// A rate limit, with the seconds to wait.
    TooManyRequests(u64),
    /// The user's budget of provider calls, with the seconds to wait.
    BudgetUsedUp(u64),
    /// All concurrent requests of the key are in use.
    TooManyAtOnce,
    /// The user's plan has no API access.
    PlanRequired,
    /// The endpoint needs the Professional plan.
    ProfessionalRequired,
    BadRequest {
        message: Cow<'static, str>,
        /// One entry for each invalid parameter.
        details: Vec<String>,
    },
    /// The cursor is not one that this request was given: of another connection, account or user,
    /// or changed.
    InvalidCursor,
    /// Changes after the cursor are no longer known.
    CursorExpired,
    /// The named resource does not exist, or belongs to another user. Clients cannot distinguish
    /// the two.
    NotFound(&'static str),
    NoSuchPath,
    MethodNotAllowed,
    /// What the request would create exists, or is still in use. The text says which, and what to
    /// do.
    Conflict(Cow<'static, str>),
    /// The `Idempotency-Key` was sent with another request.
    IdempotencyConflict,
    UriTooLong,
    HeadersTooLarge,
    BodyTooLarge,
    /// The user must reconnect. The status appears in the message and in the details.
    Reconnect {
        status: ConnectionStatus,
        /// The connection at fault, if the request is about one.
        connection_id: Option<ConnectionId>,
    },
    /// A provider does not respond.
    ProviderUnavailable {
        /// Seconds.
        retry_after: u64,
        /// Whether only the operator can end this, by correcting the settings.
        needs_operator: bool,
        connection_id: Option<ConnectionId>,
    },
    /// The database does not respond.
    ServiceUnavailable,
    /// A bug or another internal failure. The message contains no details.
    Internal,
}

impl Problem {
    pub fn status(&self) -> StatusCode {
        self.status_and_code().0
    }

    /// The word for programs, which the header `Bellbird-Error` has on every interface. The list
    /// may grow.
    pub fn code(&self) -> &'static str {
        self.status_and_code().1
    }

    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "invalid_key"),
            Self::TooManyRequests(_) => (StatusCode::TOO_MANY_REQUESTS, "rate_limited"),
            Self::BudgetUsedUp(_) => (StatusCode::TOO_MANY_REQUESTS, "budget_used_up"),
            Self::TooManyAtOnce => (StatusCode::TOO_MANY_REQUESTS, "too_many_at_once"),
            Self::PlanRequired => (StatusCode::FORBIDDEN, "plan_required"),
            Self::ProfessionalRequired => (StatusCode::FORBIDDEN, "professional_required"),
            Self::BadRequest { .. } => (StatusCode::BAD_REQUEST, "invalid_parameters"),
            Self::InvalidCursor => (StatusCode::BAD_REQUEST, "invalid_cursor"),
            Self::CursorExpired => (StatusCode::GONE, "cursor_expired"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::NoSuchPath => (StatusCode::NOT_FOUND, "no_such_path"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
            Self::IdempotencyConflict => (StatusCode::CONFLICT, "idempotency_conflict"),
            Self::UriTooLong => (StatusCode::URI_TOO_LONG, "uri_too_long"),
            Self::HeadersTooLarge => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers_too_large",
            ),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::Reconnect { .. } => (StatusCode::SERVICE_UNAVAILABLE, "reconnect_required"),
            Self::ProviderUnavailable { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "provider_unavailable")
            }
            Self::ServiceUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "service_unavailable"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }

    /// An error of the request as a whole.
    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::BadRequest {
            message: message.into(),
            details: Vec::new(),
        }
    }

    pub fn reconnect(status: ConnectionStatus) -> Self {
        Self::Reconnect {
            status,
            connection_id: None,
        }
    }

    pub fn unavailable(retry_after: u64) -> Self {
        Self::ProviderUnavailable {
            retry_after,
            needs_operator: false,
            connection_id: None,
        }
    }

    /// Names the connection that a failed read is about.
    #[must_use]
    pub fn at(mut self, connection: ConnectionId) -> Self {
        if let Self::Reconnect { connection_id, .. }
        | Self::ProviderUnavailable { connection_id, .. } = &mut self
        {
            *connection_id = Some(connection);
        }
        self
    }

    /// What happened, and what to do about it.
    pub fn message(&self) -> String {
        match self {
            Self::Unauthorized => {
                "The API key is missing or not valid: send the header \"Authorization: Bearer <key>\""
            }
            Self::TooManyRequests(_) | Self::BudgetUsedUp(_) => {
                "Too many requests: try again after the number of seconds in Retry-After"
            }
            Self::TooManyAtOnce => "Too many requests of this key at once: try again when one of them has ended",
            Self::PlanRequired => "API access requires a Developer or Professional plan",
            Self::ProfessionalRequired => "Holdings and trades require a Professional plan",
            Self::BadRequest { message, .. } | Self::Conflict(message) => return message.to_string(),
            Self::NotFound(resource) => return format!("{resource} not found"),
            Self::InvalidCursor => {
                "The cursor is not of this connection and account: send the cursor of the last response, or none to \
                 begin again"
            }
            Self::CursorExpired => "Changes after this cursor are no longer known: begin again without a cursor",
            Self::NoSuchPath => "Path not found: see /docs for all paths",
            Self::MethodNotAllowed => "Method not allowed: use GET",
            Self::IdempotencyConflict => {
                "The Idempotency-Key was sent with another request in the last 24 hours: use a new one for each change"
            }
            Self::UriTooLong => "The URL is too long: the limit is 16 KiB",
            Self::HeadersTooLarge => "The request headers are too large: the limit is 64 KiB",
            Self::BodyTooLarge => "The body is too large: the limit is 16 KiB",
            Self::Reconnect { status, .. } => {
                return format!("The connection is {status}: the user must reconnect it before it can be read again");
            }
            Self::ProviderUnavailable { needs_operator: true, .. } => {
                "The provider cannot be used until the operator of this service corrects its settings"
            }
            Self::ProviderUnavailable { .. } => "The provider is temporarily unavailable: try again later",
            Self::ServiceUnavailable => "The service is temporarily unavailable: try again later",
            Self::Internal => "Internal error: try again, and report it with the X-Request-Id of this response",
        }
        .to_owned()
    }

    /// The seconds of `Retry-After`.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooManyRequests(seconds)
            | Self::BudgetUsedUp(seconds)
            | Self::ProviderUnavailable {
                retry_after: seconds,
                ..
            } => Some(*seconds),
            Self::TooManyAtOnce => Some(1),
            Self::ServiceUnavailable => Some(STORAGE_RETRY_AFTER_SECONDS),
            _ => None,
        }
    }

    fn body(&self, has_code: bool) -> ErrorBody {
        let message = self.message();
        let code = (has_code || matches!(self, Self::ProfessionalRequired)).then(|| self.code());
        let at = |connection_id: Option<ConnectionId>| {
            connection_id.map(|id| format!("connectionId: {id}"))
        };
        let details = match self {
            Self::BadRequest { details, .. } => details.clone(),
            Self::Reconnect {
                status,
                connection_id,
            } => [format!("status: {status}")]
                .into_iter()
                .chain(at(*connection_id))
                .collect(),
            Self::ProviderUnavailable { connection_id, .. } => {
                at(*connection_id).into_iter().collect()
            }
            _ => Vec::new(),
        };
        ErrorBody {
            error: ErrorObject {
                message,
                code,
                details,
            },
        }
    }
}

/// Only the interface knows the form of its errors, so `write_problem` writes the body.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        *response.status_mut() = self.status();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the error of a response as its interface does. The headers that layers have set stay.
pub(crate) fn write_problem(mut response: Response, write: fn(Problem) -> Response) -> Response {
    let Some(problem) = response.extensions_mut().remove::<Problem>() else {
        return response;
    };
    let code = HeaderValue::from_static(problem.code());
    let mut written = write(problem);
    written.headers_mut().insert(BELLBIRD_ERROR, code);
    written
        .headers_mut()
        .extend(std::mem::take(response.headers_mut()));
    written
}

/// The error of `/v1`.
pub fn json_response(problem: Problem) -> Response {
    respond(&problem, &problem.body(false))
}

/// The error of paths of `/v1` whose body has the word of `Bellbird-Error`.
pub(crate) fn json_response_with_code(problem: Problem) -> Response {
    respond(&problem, &problem.body(true))
}

/// As the error of `/v1` with its code, and with another message, for an interface with other paths
/// and methods.
pub(crate) fn json_response_with_message(problem: Problem, message: String) -> Response {
    let mut body = problem.body(true);
    body.error.message = message;
    respond(&problem, &body)
}

fn respond(problem: &Problem, body: &ErrorBody) -> Response {
    let status = problem.status();
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(axum::body::Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = problem.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

impl From<StorageError> for Problem {
    fn from(error: StorageError) -> Self {
        Self::from(&error)
    }
}

impl From<&StorageError> for Problem {
    fn from(error: &StorageError) -> Self {
        if let StorageError::TooMany(text) = error {
            return Self::Conflict((*text).into());
        }
        tracing::error!(error = %Chain(error), "{}", error.log_message());
        match error {
            StorageError::Unavailable(_) => Self::ServiceUnavailable,
            _ => Self::Internal,
        }
    }
}

/// `resource` is the noun of a 404. `wrong_category` is the message for a connection of the wrong
/// category.
pub fn problem_from_read(
    error: &ReadError,
    resource: &'static str,
    wrong_category: &'static str,
) -> Problem {
    match error {
        ReadError::NotFound => Problem::NotFound(resource),
        ReadError::WrongCategory => Problem::bad_request(wrong_category),
        ReadError::Reconnect(status) => Problem::reconnect(*status),
        ReadError::BudgetUsedUp { retry_after } => {
            Problem::BudgetUsedUp(whole_seconds(*retry_after))
        }
        ReadError::Unavailable { retry_after, .. } => {
            Problem::unavailable(whole_seconds(retry_after.unwrap_or(READ_RETRY_AFTER)))
        }
        ReadError::OperatorNeeded => Problem::ProviderUnavailable {
            retry_after: OPERATOR_RETRY_AFTER_SECONDS,
            needs_operator: true,
            connection_id: None,
        },
        ReadError::Storage(error) => Problem::from(error.as_ref()),
    }
}

/// Maps a failed read to an HTTP error. `category` is the category that the endpoint needs.
pub fn problem_for_category(
    error: &ReadError,
    resource: &'static str,
    category: ConnectionCategory,
) -> Problem {
    let wrong_category = match category {
        ConnectionCategory::Banking => "The connection must be a banking connection",
        ConnectionCategory::Brokerage => "The connection must be a brokerage connection",
    };
    problem_from_read(error, resource, wrong_category)
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_members_are_omitted() {
        let body = |problem: Problem| serde_json::to_string(&problem.body(false)).unwrap();
        assert_eq!(
            body(Problem::PlanRequired),
            r#"{"error":{"message":"API access requires a Developer or Professional plan"}}"#
        );
        assert_eq!(
            body(Problem::ProfessionalRequired),
            r#"{"error":{"message":"Holdings and trades require a Professional plan","code":"professional_required"}}"#
        );
        let problem = Problem::BadRequest {
            message: "Invalid query parameters".into(),
            details: vec!["limit: x".to_owned()],
        };
        assert_eq!(
            body(problem),
            r#"{"error":{"message":"Invalid query parameters","details":["limit: x"]}}"#
        );
        let reconnect = Problem::reconnect(ConnectionStatus::PendingMfa);
        assert_eq!(
            reconnect.clone().body(false).error.details,
            ["status: pending_mfa"]
        );
        let id = ConnectionId::new();
        let named = format!("connectionId: {id}");
        assert_eq!(
            reconnect.at(id).body(false).error.details,
            ["status: pending_mfa", &named]
        );
        let unavailable = Problem::unavailable(5);
        assert_eq!(unavailable.at(id).body(false).error.details, [named]);
    }

    #[test]
    fn wrong_category_names_the_category_that_the_endpoint_needs() {
        let message =
            |category| problem_for_category(&ReadError::WrongCategory, "Account", category);
        assert_eq!(
            message(ConnectionCategory::Banking),
            Problem::bad_request("The connection must be a banking connection")
        );
        assert_eq!(
            message(ConnectionCategory::Brokerage),
            Problem::bad_request("The connection must be a brokerage connection")
        );
        let not_found =
            problem_for_category(&ReadError::NotFound, "Account", ConnectionCategory::Banking);
        assert_eq!(not_found, Problem::NotFound("Account"));
        for (retry_after, seconds) in [(Some(Duration::from_millis(1_500)), 2), (None, 5)] {
            let unavailable = ReadError::Unavailable {
                retry_after,
                is_transient: true,
            };
            let unavailable =
                problem_for_category(&unavailable, "Account", ConnectionCategory::Banking);
            assert_eq!(unavailable, Problem::unavailable(seconds));
        }
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(5)), 5);
        assert_eq!(whole_seconds(Duration::from_millis(5_001)), 6);
    }
}
