//! Why a provider call failed. Each variant stands for one reaction of the caller.

use std::time::Duration;

use bellbird_domain::ConnectionStatus;

/// A failed provider call. It never holds a URL, a token or a row, so it can be logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The consent does not work any more, and the user must reconnect. Holds the new status of the
    /// connection. Permanent.
    #[error("the connection must be reconnected ({0})")]
    ReconnectNeeded(ConnectionStatus),
    /// The provider's rate limit is reached. Transient.
    #[error("the provider's rate limit is reached")]
    RateLimited {
        /// None if the provider does not say.
        retry_after: Option<Duration>,
    },
    /// No connection, no response in time, an incomplete response or a server error. Transient.
    #[error("the provider is unavailable: {reason}")]
    Unavailable {
        reason: &'static str,
        /// None if the provider does not say.
        retry_after: Option<Duration>,
    },
    /// The response does not follow the provider's protocol. Transient, because proxies damage
    /// responses too.
    #[error("the provider sent an invalid response: {0}")]
    Malformed(&'static str),
    /// The user whose request this is has used up their budget of calls. Transient. The call was
    /// not made.
    #[error("the user's budget of provider calls is used up")]
    BudgetUsedUp { retry_after: Duration },
    /// Calls of other instances cannot be counted. Transient. The call was not made.
    #[error("the call waits until Valkey responds")]
    StoreDown { retry_after: Duration },
    /// [`crate::CallContext::deadline`] has passed.
    #[error("the deadline has passed")]
    Deadline,
    /// The provider rejected the request. Permanent.
    #[error("the provider rejected the request (status {status})")]
    Rejected { status: u16 },
    /// The provider rejects the operator's credentials. Permanent until the operator corrects these
    /// settings.
    #[error(
        "the provider rejects {settings} (status {status}): copy the credentials again from its dashboard"
    )]
    OperatorRejected { settings: &'static str, status: u16 },
    /// The credentials of a connection or provider user have the wrong form or do not work. The
    /// message says what to do.
    #[error("{0}")]
    InvalidCredentials(String),
}

impl Error {
    /// [`Error::Unavailable`] without a `Retry-After`.
    pub fn unavailable(reason: &'static str) -> Self {
        Self::Unavailable {
            reason,
            retry_after: None,
        }
    }

    /// Whether a retry of the same call may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::RateLimited { .. }
            | Self::Unavailable { .. }
            | Self::Malformed(_)
            | Self::BudgetUsedUp { .. }
            | Self::StoreDown { .. }
            | Self::Deadline => true,
            Self::ReconnectNeeded(_)
            | Self::Rejected { .. }
            | Self::OperatorRejected { .. }
            | Self::InvalidCredentials(_) => false,
        }
    }

    /// Whether it concerns one user only: their consent has ended, their credentials are wrong, or
    /// their budget is used up.
    pub(crate) fn concerns_user(&self) -> bool {
        matches!(
            self,
            Self::ReconnectNeeded(_) | Self::InvalidCredentials(_) | Self::BudgetUsedUp { .. }
        )
    }

    /// How long to wait before another call, if known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after } | Self::Unavailable { retry_after, .. } => {
                *retry_after
            }
            Self::BudgetUsedUp { retry_after } | Self::StoreDown { retry_after } => {
                Some(*retry_after)
            }
            _ => None,
        }
    }

    /// The label in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ReconnectNeeded(_) => "reconnect_needed",
            Self::RateLimited { .. } => "rate_limited",
            Self::Unavailable { .. } => "unavailable",
            Self::Malformed(_) => "malformed",
            Self::BudgetUsedUp { .. } => "budget_used_up",
            Self::StoreDown { .. } => "store_down",
            Self::Deadline => "deadline",
            Self::Rejected { .. } => "rejected",
            Self::OperatorRejected { .. } => "operator_rejected",
            Self::InvalidCredentials(_) => "invalid_credentials",
        }
    }
}
