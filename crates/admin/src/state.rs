//! What all handlers share.

use std::sync::Arc;

use axum::extract::FromRef;
use bellbird_api::http::{ApiContext, OperatorState, Problem};
use bellbird_storage::{Storage, StorageError};
use bellbird_webhooks::Webhooks;

/// The state of the handlers. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    pub(crate) access: ApiContext,
    pub(crate) webhooks: Webhooks,
    /// The public URL of the API, without a trailing slash.
    pub(crate) api_url: Arc<str>,
    /// The URL of this API, without a trailing slash.
    pub(crate) admin_url: Arc<str>,
}

impl Admin {
    /// `api_url` is the public URL of the API, which programs that claim setup tokens call.
    /// `admin_url` is shown by the reference page.
    #[must_use]
    pub fn new(access: ApiContext, webhooks: Webhooks, api_url: &str, admin_url: &str) -> Self {
        Self {
            access,
            webhooks,
            api_url: api_url.into(),
            admin_url: admin_url.into(),
        }
    }

    pub(crate) fn storage(&self) -> &Storage {
        self.access.storage()
    }
}

impl FromRef<OperatorState<Self>> for Admin {
    fn from_ref(state: &OperatorState<Self>) -> Self {
        state.state().clone()
    }
}

/// A member of the body whose value has the right form and is rejected all the same. `fault` is a
/// sentence.
pub(crate) fn invalid_member(member: &str, fault: &str) -> Problem {
    Problem::BadRequest {
        message: "Invalid members of the body".into(),
        details: vec![format!("{member}: {fault}")],
    }
}

/// As [`invalid_member`], of the query.
pub(crate) fn invalid_parameter(name: &str, fault: &str) -> Problem {
    Problem::BadRequest {
        message: "Invalid query parameters".into(),
        details: vec![format!("{name}: {fault}")],
    }
}

/// The error of a change. What is missing was removed meanwhile, or never existed.
pub(crate) fn problem(error: StorageError) -> Problem {
    match error {
        StorageError::NotFound("user") => Problem::NotFound("User"),
        StorageError::NotFound("key") => Problem::NotFound("Key"),
        StorageError::NotFound("connection") => Problem::NotFound("Connection"),
        StorageError::Conflict(what) => {
            Problem::Conflict(format!("There is {what} already").into())
        }
        other => other.into(),
    }
}
