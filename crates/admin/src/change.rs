//! What all changes share: the `Idempotency-Key`, the audit, and the response.

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::Response;
use bellbird_api::http::{Operator, OperatorState, Problem};
use bellbird_storage::{BegunChange, Idempotency, OperatorAction, OperatorChange, StoredResponse};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};

use crate::state::{Admin, problem};

const HEADER: &str = "idempotency-key";
/// Marks the response that an earlier request got.
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// SHA-256 of the header `Idempotency-Key`, if it was sent.
pub(crate) struct IdempotencyKey(Option<[u8; 32]>);

impl utoipa::IntoParams for IdempotencyKey {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let key = ParameterBuilder::new()
            .name("Idempotency-Key")
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some(
                "1 to 255 characters of ASCII, new for each change. A repeated request with it \
                 gets the response of the first one, with the header `Idempotent-Replayed: true`.",
            ))
            .schema(Some(text))
            .example(Some(json!("3f1c9a52-5a0e-4a53-9d8c-0d5f6c1c2b7e")));
        vec![key.build()]
    }
}

impl<S: Send + Sync> FromRequestParts<OperatorState<S>> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &OperatorState<S>) -> Result<Self, Problem> {
        let mut lines = parts.headers.get_all(HEADER).iter();
        let Some(line) = lines.next() else {
            return Ok(Self(None));
        };
        let is_valid = line
            .to_str()
            .is_ok_and(|text| (1..=255).contains(&text.trim().len()));
        if !is_valid || lines.next().is_some() {
            return Err(Problem::BadRequest {
                message: "The header Idempotency-Key must be sent once, with 1 to 255 characters of ASCII".into(),
                details: Vec::new(),
            });
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, line.as_bytes()).as_ref());
        Ok(Self(Some(hash)))
    }
}

/// A body without members.
#[derive(Deserialize)]
pub(crate) struct NoMembers {}

/// A change in progress, or the response that a repeated request got before.
pub(crate) enum Begun<'a> {
    Change(OperatorChange<'a>),
    Repeated(Response),
}

impl Admin {
    /// Begins a change that repeating makes twice. `request_digest` is that of the body.
    pub(crate) async fn begin(
        &self,
        operator: &Operator,
        key: &IdempotencyKey,
        request_digest: [u8; 32],
    ) -> Result<Begun<'_>, Problem> {
        let idempotency = key.0.map(|key_hash| Idempotency {
            key_hash,
            request_digest,
        });
        match self
            .storage()
            .begin_change(operator.key_id, idempotency, operator.now)
            .await?
        {
            BegunChange::New(change) => Ok(Begun::Change(change)),
            BegunChange::Repeated(response) => {
                let mut response = respond(&response)?;
                response
                    .headers_mut()
                    .insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
                Ok(Begun::Repeated(response))
            }
            BegunChange::KeyInUse => Err(Problem::IdempotencyConflict),
        }
    }

    /// Begins a change that repeating does not make twice.
    pub(crate) async fn begin_idempotent(
        &self,
        operator: &Operator,
    ) -> Result<OperatorChange<'_>, Problem> {
        match self
            .storage()
            .begin_change(operator.key_id, None, operator.now)
            .await?
        {
            BegunChange::New(change) => Ok(change),
            BegunChange::Repeated(_) | BegunChange::KeyInUse => Err(Problem::Internal),
        }
    }
}

/// Commits a change, and responds with its result.
pub(crate) async fn commit(
    change: OperatorChange<'_>,
    action: &OperatorAction<'_>,
    status: StatusCode,
    body: &impl Serialize,
) -> Result<Response, Problem> {
    let body = serde_json::to_string(body).map_err(|_| Problem::Internal)?;
    let response = StoredResponse {
        status: status.as_u16(),
        body: body.into(),
    };
    change.commit(action, &response).await.map_err(problem)?;
    respond(&response)
}

/// Commits a change without a result.
pub(crate) async fn commit_empty(
    change: OperatorChange<'_>,
    action: &OperatorAction<'_>,
) -> Result<StatusCode, Problem> {
    change.commit_alone(action).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT)
}

fn respond(stored: &StoredResponse) -> Result<Response, Problem> {
    let mut response = Response::new(Body::from(stored.body.expose_secret().to_owned()));
    *response.status_mut() = StatusCode::from_u16(stored.status).map_err(|_| Problem::Internal)?;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
