//! What handlers for operators extract: the operator, the id in the path, the query, and a JSON
//! body.
//!
//! These exist for the state [`OperatorState`] only, which nothing but the guard makes, after it
//! has checked the key of an operator.

use std::str::FromStr;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use bellbird_domain::{ConnectionId, EndpointId, EventId, KeyId, OperatorKeyId, UserId};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::http::auth::sha256;
use crate::http::body::{self, BodyError};
use crate::http::parameters::{self, Members, RawParams};
use crate::http::problem::Problem;

/// The members of a body are short.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// A request with a valid operator's key, within its rate limit.
#[derive(Clone)]
#[non_exhaustive]
pub(crate) struct Operator {
    pub key_id: OperatorKeyId,
    /// The time at which the guard received the request.
    pub now: Timestamp,
}

/// The state of handlers for operators. Only [`Interface::add`](crate::http::Interface::add) makes
/// one, for routes behind the guard.
#[derive(Clone)]
pub struct OperatorState<S>(S);

impl<S> OperatorState<S> {
    pub(crate) fn new(state: S) -> Self {
        Self(state)
    }

    pub fn state(&self) -> &S {
        &self.0
    }
}

impl<S: Send + Sync> FromRequestParts<OperatorState<S>> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &OperatorState<S>) -> Result<Self, Problem> {
        let operator = parts.extensions.get::<Self>().cloned();
        operator.ok_or(Problem::Internal)
    }
}

/// What an id in a path names.
pub(crate) trait Resource: FromStr {
    /// For "User not found".
    const NOUN: &'static str;
}

impl Resource for UserId {
    const NOUN: &'static str = "User";
}

impl Resource for KeyId {
    const NOUN: &'static str = "Key";
}

impl Resource for ConnectionId {
    const NOUN: &'static str = "Connection";
}

impl Resource for EndpointId {
    const NOUN: &'static str = "Webhook endpoint";
}

impl Resource for EventId {
    const NOUN: &'static str = "Event";
}

/// The id in the path, as `{id}`. Text that is not an id is treated as an unknown id.
pub(crate) struct PathId<T>(pub T);

impl<S: Send + Sync, T: Resource> FromRequestParts<OperatorState<S>> for PathId<T> {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &OperatorState<S>,
    ) -> Result<Self, Problem> {
        let Path(id) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::NotFound(T::NOUN))?;
        parse_id(&id).map(Self)
    }
}

/// The two ids in the path, as [`PathId`].
pub(crate) struct PathIds<T, U>(pub T, pub U);

impl<S: Send + Sync, T: Resource, U: Resource> FromRequestParts<OperatorState<S>>
    for PathIds<T, U>
{
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &OperatorState<S>,
    ) -> Result<Self, Problem> {
        let Path((id, inner)) = Path::<(String, String)>::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::NotFound(T::NOUN))?;
        Ok(Self(parse_id(&id)?, parse_id(&inner)?))
    }
}

fn parse_id<T: Resource>(id: &str) -> Result<T, Problem> {
    id.parse().map_err(|_| Problem::NotFound(T::NOUN))
}

/// A body of JSON. No body is an object without members. Unknown and repeated members are rejected,
/// and null where it says nothing.
pub(crate) struct JsonBody<T> {
    pub value: T,
    /// SHA-256 of method, path and body.
    pub digest: [u8; 32],
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<OperatorState<S>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &OperatorState<S>) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        let body = body::read(&head.headers, body, BODY_BYTES_MAX)
            .await
            .map_err(|error| match error {
                BodyError::TooLarge => Problem::BodyTooLarge,
                BodyError::Incomplete => Problem::bad_request("The body is incomplete"),
                BodyError::TooSlow => {
                    Problem::bad_request("The body was not complete within 10 seconds")
                }
            })?;
        let parts = [
            head.method.as_str().as_bytes(),
            b" ",
            head.uri.path().as_bytes(),
            b"\n",
            &body[..],
        ];
        let request_digest = sha256(&parts.concat());
        if body.is_empty() {
            return Self::read(&Members::default(), request_digest);
        }
        if !is_json(&head.headers) {
            return Err(Problem::bad_request(
                "Send the body as JSON, with the header Content-Type: application/json",
            ));
        }
        let members: Members =
            serde_json::from_slice(&body).map_err(|error| Problem::BadRequest {
                message: "The body must be a JSON object".into(),
                details: vec![format!("line {}, column {}", error.line(), error.column())],
            })?;
        Self::read(&members, request_digest)
    }
}

impl<T: DeserializeOwned> JsonBody<T> {
    fn read(members: &Members, digest: [u8; 32]) -> Result<Self, Problem> {
        let value =
            parameters::read(RawParams::Body(members)).map_err(|faults| Problem::BadRequest {
                message: "Invalid members of the body".into(),
                details: faults.details(),
            })?;
        Ok(Self { value, digest })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let media_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok()?.split(';').next());
    media_type.is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("application/json"))
}
