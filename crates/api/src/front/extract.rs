//! Values passed between middleware and handlers. The guard sets a request extension, which handlers extract. Handlers
//! and the guard set response extensions, which the access log reads.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use bellbird_domain::{Caller, KeyId};
use bellbird_limits::Permit;
use http::request::Parts;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::front::parameters::{self, RawParams};
use crate::front::problem::Problem;

tokio::task_local! {
    /// The id of the request that this task answers.
    pub static REQUEST_ID: Uuid;
}

/// A permit for one concurrent live request of an API key, if the endpoint needs one. The provider read holds it too,
/// so a client that disconnects cannot start another read before its first one has ended.
pub type LivePermit = Option<Arc<Permit<KeyId>>>;

/// What the guard found out about a request that it lets pass.
#[derive(Clone)]
pub struct Admitted {
    pub caller: Caller,
    /// The time at which the guard received the request.
    pub now: Timestamp,
    pub permit: LivePermit,
}

/// The query parameters of an endpoint.
pub struct Query<T>(pub T);

/// The number of provider calls of a request. Handlers set it on the response.
#[derive(Clone, Copy)]
pub struct ProviderCalls(pub u32);

/// The request whose provider read answered this one too. Handlers set it on the response.
#[derive(Clone, Copy)]
pub struct SharedRead(pub Uuid);

/// The API key of a request. The guard sets it on the response.
#[derive(Clone, Copy)]
pub struct AuthenticatedKey(pub KeyId);

impl<S: Send + Sync> FromRequestParts<S> for Admitted {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.remove().ok_or(Problem::Internal)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = RawParams::Query(parts.uri.query().unwrap_or_default());
        Ok(Self(parameters::read(query)?))
    }
}
