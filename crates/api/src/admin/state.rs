//! What all handlers share.

use std::sync::Arc;

use axum::extract::FromRef;
use bellbird_connections::ConnectionsError;
use bellbird_domain::CurrentText;
use bellbird_management::Refusal;
use bellbird_storage::Storage;
use bellbird_webhooks::endpoint::EndpointUrlError;
use bellbird_webhooks::{PingError, Webhooks};

use crate::http::{ApiContext, OperatorState, Problem};

/// The state of the handlers. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    pub(crate) context: ApiContext,
    pub(crate) webhooks: Webhooks,
    /// The public URL of the API, without a trailing slash.
    pub(crate) api_url: CurrentText,
    /// The URL of this API, without a trailing slash.
    pub(crate) admin_url: Arc<str>,
}

impl Admin {
    /// `api_url` is the public URL of the API, which programs that claim setup tokens call.
    /// `admin_url` is shown by the reference page.
    pub fn new(
        context: ApiContext,
        webhooks: Webhooks,
        api_url: CurrentText,
        admin_url: &str,
    ) -> Self {
        Self {
            context,
            webhooks,
            api_url,
            admin_url: admin_url.into(),
        }
    }

    pub(crate) fn storage(&self) -> &Storage {
        self.context.storage()
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

/// The error of an operation.
impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound(noun) => Self::NotFound(noun),
            Refusal::Invalid { field, fault } => invalid_member(field, fault),
            Refusal::ForAllUsersOnly(_) => invalid_member("events", &refusal.to_string()),
            Refusal::UserRequired => invalid_member("userId", &refusal.to_string()),
            Refusal::Url(EndpointUrlError::Resolver(_)) => Self::Internal,
            Refusal::Url(error) => invalid_member("url", &error.to_string()),
            Refusal::Ping(PingError::Secret) => {
                Self::Conflict("The endpoint's secret is broken: rotate it first".into())
            }
            Refusal::Ping(PingError::Target(error)) => {
                Self::Conflict(format!("The endpoint's URL is not allowed: {error}").into())
            }
            Refusal::Ping(PingError::NotFound) => Self::NotFound("Webhook endpoint"),
            Refusal::Ping(PingError::Storage(error)) | Refusal::Storage(error) => error.into(),
            Refusal::Connections(error) => link_problem(error),
            other => Self::Conflict(other.to_string().into()),
        }
    }
}

fn link_problem(error: ConnectionsError) -> Problem {
    match error {
        ConnectionsError::NotFound => Problem::NotFound("Connection"),
        ConnectionsError::ReturnUrl(reason) => {
            invalid_member("returnUrl", &format!("The return URL {reason}"))
        }
        ConnectionsError::InvalidState => invalid_member(
            "state",
            "Must be at most 500 characters, and none of them a control character",
        ),
        ConnectionsError::TooManySessions
        | ConnectionsError::NoLinkableProvider
        | ConnectionsError::NoConsoleUrl
        | ConnectionsError::NotInPlan { .. }
        | ConnectionsError::NotConfigured(_)
        | ConnectionsError::NoConsentPage(_) => Problem::Conflict(error.to_string().into()),
        ConnectionsError::Storage(error) => error.into(),
        _ => Problem::Internal,
    }
}
