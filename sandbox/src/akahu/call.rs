//! Extractors for Akahu's handlers: they authenticate the caller and read parameters and bodies
//! (docs/providers/akahu.md#credentials).

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;

use super::errors::Failure;
use super::{Akahu, ids};
use crate::query::{Query, credentials};
use crate::serve::REQUEST_BYTES_MAX;

/// A call for a user's data. User token and app id are already checked.
pub(super) struct UserCall {
    pub(super) akahu: Arc<Akahu>,
    /// Index into the store's users.
    pub(super) user: usize,
    pub(super) now: Timestamp,
    pub(super) path: String,
    pub(super) query: Query,
    is_json: bool,
    body: Bytes,
}

impl FromRequest<Arc<Akahu>> for UserCall {
    type Rejection = Failure;

    async fn from_request(request: Request, akahu: &Arc<Akahu>) -> Result<Self, Failure> {
        let headers = request.headers();
        let token = credentials(headers, "bearer").unwrap_or_default();
        let user = akahu.store.read().user_of_token(token);
        let user = user.ok_or_else(|| Failure::of_status(StatusCode::UNAUTHORIZED))?;
        if headers
            .get("x-akahu-id")
            .is_none_or(|id| id.as_bytes() != akahu.access.app_token.as_bytes())
        {
            return Err(Failure::of_status(StatusCode::FORBIDDEN));
        }
        Ok(Self {
            akahu: Arc::clone(akahu),
            user,
            now: akahu.clock.now(),
            path: request.uri().path().to_owned(),
            query: Query::parse(request.uri().query()),
            is_json: has_json_content_type(headers),
            body: body(request).await?,
        })
    }
}

impl UserCall {
    /// Returns the body if its content type is JSON.
    pub(super) fn json_body(&self) -> Result<&[u8], Failure> {
        if self.is_json {
            Ok(&self.body)
        } else {
            Err(Failure::invalid("Invalid Content-Type"))
        }
    }
}

/// A call by the app itself. A user token gets 401, which is a sandbox choice: live clients saw 401
/// or 403 (docs/providers/akahu.md#sandbox-choices).
pub(super) struct AppCall;

impl FromRequest<Arc<Akahu>> for AppCall {
    type Rejection = Failure;

    async fn from_request(request: Request, akahu: &Arc<Akahu>) -> Result<Self, Failure> {
        let expected = STANDARD.encode(format!(
            "{}:{}",
            akahu.access.app_token, akahu.access.app_secret
        ));
        if credentials(request.headers(), "basic") != Some(&expected) {
            return Err(Failure::of_status(StatusCode::UNAUTHORIZED));
        }
        Ok(Self)
    }
}

pub(super) fn has_json_content_type(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Reads a body of at most [`REQUEST_BYTES_MAX`].
pub(super) async fn body(request: Request) -> Result<Bytes, Failure> {
    let read = to_bytes(request.into_body(), REQUEST_BYTES_MAX).await;
    read.map_err(|_| Failure::of_status(StatusCode::PAYLOAD_TOO_LARGE))
}

/// Parses a parameter that is a date-time of any offset, or a date
/// (docs/providers/akahu.md#transactions), in milliseconds. A date means midnight UTC, which is a
/// sandbox choice.
pub(super) fn instant(query: &Query, name: &str) -> Result<Option<i64>, Failure> {
    let Some(text) = query.get(name) else {
        return Ok(None);
    };
    let at: Option<Timestamp> = match text.as_bytes().get(10) {
        None => format!("{text}T00:00:00Z").parse().ok(),
        Some(b'T') if !text.contains('[') => text.parse().ok(),
        Some(_) => None,
    };
    let at = at.ok_or_else(|| {
        Failure::invalid(&format!("queryParams.{name} must be an ISO 8601 date-time"))
    })?;
    Ok(Some(at.as_millisecond()))
}

/// Rejects a malformed id. Clients search for `pathParams.id` (docs/providers/akahu.md#errors); the
/// rest of the text is invented.
pub(super) fn check_id(prefix: &str, id: &str) -> Result<(), Failure> {
    if ids::is_well_formed(prefix, id) {
        return Ok(());
    }
    Err(Failure::invalid(&format!(
        "pathParams.id must match ^{prefix}[a-z0-9]{{25,27}}$"
    )))
}
