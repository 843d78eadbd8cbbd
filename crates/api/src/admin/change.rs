//! What all changes share: the `Idempotency-Key`, the audit, and the response.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use bellbird_domain::Actor;
use bellbird_management::{ManagementChange, Refusal};
use bellbird_storage::{Idempotency, IdempotentStart, StorageError, StoredResponse};
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};

use crate::admin::list::Item;
use crate::admin::state::Admin;
use crate::http::json::json_bytes;
use crate::http::{JsonBody, Operator, OperatorState, Problem, sha256};

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
            return Err(Problem::bad_request(
                "The header Idempotency-Key must be sent once, with 1 to 255 characters of ASCII",
            ));
        }
        Ok(Self(Some(sha256(line.as_bytes()))))
    }
}

/// A request to change something that repeating makes twice, with its body.
pub(crate) struct ChangeRequest<B> {
    pub body: B,
    pub operator: Operator,
    admin: Admin,
    idempotency: Option<Idempotency>,
}

impl<B: DeserializeOwned> FromRequest<OperatorState<Admin>> for ChangeRequest<B> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &OperatorState<Admin>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let operator = Operator::from_request_parts(&mut parts, state).await?;
        let IdempotencyKey(key) = IdempotencyKey::from_request_parts(&mut parts, state).await?;
        let body = JsonBody::from_request(Request::from_parts(parts, body), state).await?;
        let request_digest = body.digest;
        Ok(Self {
            body: body.value,
            operator,
            admin: state.state().clone(),
            idempotency: key.map(|key_hash| Idempotency {
                key_hash,
                request_digest,
            }),
        })
    }
}

impl<B> ChangeRequest<B> {
    /// Begins the change. If the request is repeated, this fails with the response that the first
    /// one got.
    pub(crate) async fn begin(&self) -> Result<ManagementChange<'_>, Rejection> {
        let (storage, now) = (self.admin.storage(), self.operator.now);
        let Some(idempotency) = self.idempotency else {
            return Ok(self.admin.begin(&self.operator).await?);
        };
        let begun = storage
            .begin_repeatable_change(self.operator.key_id, idempotency, now)
            .await?;
        match begun {
            IdempotentStart::New(change) => Ok(change),
            IdempotentStart::Repeated(stored) => {
                let mut response = respond(&stored)?;
                response
                    .headers_mut()
                    .insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
                Err(Rejection::Replayed(Box::new(response)))
            }
            IdempotentStart::KeyInUse => Err(Problem::IdempotencyConflict.into()),
        }
    }
}

impl Admin {
    /// Begins a change that repeating does not make twice.
    pub(crate) async fn begin(&self, operator: &Operator) -> Result<ManagementChange<'_>, Problem> {
        let actor = Actor::operator_key(operator.key_id);
        Ok(self.storage().begin_change(actor, operator.now).await?)
    }
}

/// Why a change is not made.
pub(crate) enum Rejection {
    Problem(Problem),
    /// It was made before, and this is its response.
    Replayed(Box<Response>),
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => problem.into_response(),
            Self::Replayed(response) => *response,
        }
    }
}

impl From<Problem> for Rejection {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        Self::Problem(refusal.into())
    }
}

impl From<StorageError> for Rejection {
    fn from(error: StorageError) -> Self {
        Self::Problem(error.into())
    }
}

/// Commits a change, and responds with its result.
pub(crate) async fn commit(
    change: ManagementChange<'_>,
    status: StatusCode,
    data: impl Serialize,
) -> Result<Response, Rejection> {
    let body = serde_json::to_string(&Item { data }).map_err(|_| Problem::Internal)?;
    let response = StoredResponse {
        status: status.as_u16(),
        body: body.into(),
    };
    change.commit_with(&response).await?;
    Ok(respond(&response)?)
}

fn respond(stored: &StoredResponse) -> Result<Response, Problem> {
    let mut response = json_bytes(stored.body.expose_secret().to_owned());
    *response.status_mut() = StatusCode::from_u16(stored.status).map_err(|_| Problem::Internal)?;
    Ok(response)
}
