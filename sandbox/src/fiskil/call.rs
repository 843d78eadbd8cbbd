//! The extractor for Fiskil's handlers: it checks version and access token, and reads parameters
//! and bodies.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;

use super::errors::{Failure, Family};
use super::{Fiskil, TOKEN_PATH};
use crate::members::Members;
use crate::query::{Query, credentials};
use crate::serve::REQUEST_BYTES_MAX;

/// The protocol versions that a client can ask for.
const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];
/// Without the header the version that the team has pinned applies. That it is v2 is a sandbox
/// choice (docs/providers/fiskil.md#versions, #sandbox-choices).
const PINNED_VERSION: &str = "v2";
const VERSION_HEADER: &str = "x-fiskil-version";

/// Returns `None` for an unknown version.
fn version_of(headers: &HeaderMap) -> Option<&'static str> {
    let Some(asked) = headers.get(VERSION_HEADER) else {
        return Some(PINNED_VERSION);
    };
    VERSIONS.into_iter().find(|version| asked == *version)
}

/// Adds the version header to every response, errors included.
pub(super) async fn set_version_header(request: Request, next: Next) -> Response {
    let version = version_of(request.headers()).unwrap_or(PINNED_VERSION);
    let mut response = next.run(request).await;
    response
        .headers_mut()
        .insert(VERSION_HEADER, HeaderValue::from_static(version));
    response
}

/// A call whose version and access token are valid.
pub(super) struct Call {
    pub(super) fiskil: Arc<Fiskil>,
    version: &'static str,
    pub(super) now: Timestamp,
    pub(super) path: String,
    pub(super) query: Query,
    family: Family,
    body: Bytes,
}

impl FromRequest<Arc<Fiskil>> for Call {
    type Rejection = Failure;

    async fn from_request(request: Request, fiskil: &Arc<Fiskil>) -> Result<Self, Failure> {
        let path = request.uri().path().to_owned();
        let mut call = Self {
            fiskil: Arc::clone(fiskil),
            version: PINNED_VERSION,
            now: fiskil.clock.now(),
            family: Family::of(&path),
            path,
            query: Query::parse(request.uri().query()),
            body: Bytes::new(),
        };
        call.version = version_of(request.headers())
            .ok_or_else(|| call.invalid("X-Fiskil-Version must be one of v1, v2, v3"))?;
        if call.path != TOKEN_PATH && !authorized(&call, request.headers()) {
            // The text is invented (docs/providers/fiskil.md#sandbox-choices).
            return Err(call.fail(
                StatusCode::UNAUTHORIZED,
                "missing, invalid or expired access token",
            ));
        }
        call.body = to_bytes(request.into_body(), REQUEST_BYTES_MAX)
            .await
            .map_err(|_| Failure::of_status(call.family, StatusCode::PAYLOAD_TOO_LARGE))?;
        Ok(call)
    }
}

fn authorized(call: &Call, headers: &HeaderMap) -> bool {
    let token = credentials(headers, "bearer");
    token.is_some_and(|token| call.fiskil.tokens.accepts(token, call.now))
}

impl Call {
    /// Whether lists are in envelopes.
    pub(super) fn is_v3(&self) -> bool {
        self.version == "v3"
    }

    /// An error in the shape that this path uses.
    pub(super) fn fail(&self, status: StatusCode, message: &str) -> Failure {
        Failure {
            message: message.to_owned(),
            ..Failure::of_status(self.family, status)
        }
    }

    pub(super) fn invalid(&self, message: &str) -> Failure {
        self.fail(StatusCode::BAD_REQUEST, message)
    }

    /// Responds with 503 and the text seen live (docs/providers/fiskil.md#pages).
    pub(super) fn unavailable(&self) -> Failure {
        Failure::of_status(self.family, StatusCode::SERVICE_UNAVAILABLE)
    }

    /// Responds with 404 for an unknown end user (docs/providers/fiskil.md#end-users).
    pub(super) fn end_user_not_found(&self) -> Failure {
        Failure {
            name: "end_user_not_found",
            ..self.fail(StatusCode::NOT_FOUND, "end user not found")
        }
    }

    /// Parses the body as a JSON object.
    pub(super) fn members(&self) -> Result<Members, Failure> {
        Members::parse(&self.body).map_err(|_| self.invalid("the body must be a JSON object"))
    }

    /// The parameter that every data endpoint requires. The message is documented
    /// (docs/providers/fiskil.md#errors).
    pub(super) fn end_user_id(&self) -> Result<&str, Failure> {
        let id = self.query.filled("end_user_id");
        id.ok_or_else(|| self.invalid("The end_user_id parameter is required"))
    }
}
