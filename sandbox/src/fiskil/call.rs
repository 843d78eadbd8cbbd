//! The extractor for Fiskil's handlers: it checks version and access token, and reads parameters
//! and bodies.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;

use super::errors::{Failure, Family};
use super::{Fiskil, TOKEN_PATH};
use crate::members::Members;
use crate::query::{Query, credentials};
use crate::serve::REQUEST_BYTES_MAX;

/// The version that clients ask for, and the only one that the sandbox simulates
/// (docs/providers/fiskil.md#versions).
const VERSION: &str = "v3";

/// A call whose version and access token are valid.
pub(super) struct Call {
    pub(super) fiskil: Arc<Fiskil>,
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
            now: fiskil.clock.now(),
            family: Family::of(&path),
            path,
            query: Query::parse(request.uri().query()),
            body: Bytes::new(),
        };
        let version = request.headers().get("x-fiskil-version");
        if version.is_some_and(|version| version != VERSION) {
            return Err(call.invalid("X-Fiskil-Version must be v3"));
        }
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
