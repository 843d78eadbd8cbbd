//! Values passed between middleware and handlers. The guard sets request extensions, which handlers extract. Handlers
//! and the guard set response extensions, which the access log reads.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use bellbird_domain::KeyId;
use bellbird_shared_state::Permit;
use http::request::Parts;
use jiff::Timestamp;
use uuid::Uuid;

use crate::problem::Problem;

tokio::task_local! {
    /// The id of the request that this task answers.
    pub(crate) static REQUEST_ID: Uuid;
}

/// A permit for one concurrent live request of an API key. The provider read holds it too, so a client that disconnects
/// cannot start another read before its first one has ended.
#[derive(Clone)]
pub(crate) struct LivePermit {
    _permit: Option<Arc<Permit<KeyId>>>,
}

/// The time at which the guard received the request.
#[derive(Clone, Copy)]
pub(crate) struct RequestTime(pub(crate) Timestamp);

/// The number of provider calls of a request. Handlers set it on the response.
#[derive(Clone, Copy)]
pub(crate) struct ProviderCalls(pub(crate) u32);

/// The request whose provider read answered this one too. Handlers set it on the response.
#[derive(Clone, Copy)]
pub(crate) struct SharedRead(pub(crate) Uuid);

/// The API key of a request. The guard sets it on the response.
#[derive(Clone, Copy)]
pub(crate) struct AuthenticatedKey(pub(crate) KeyId);

impl LivePermit {
    pub(crate) fn new(permit: Option<Arc<Permit<KeyId>>>) -> Self {
        Self { _permit: permit }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for LivePermit {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().cloned().ok_or(Problem::Internal)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RequestTime {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().copied().ok_or(Problem::Internal)
    }
}
