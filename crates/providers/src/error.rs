//! What can go wrong between us and a provider, by what the caller does about it.

use std::time::Duration;

use bellbird_domain::ConnectionStatus;

/// A failed provider call. Holds no URL, no token, no row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Consent is gone: the user must reconnect. Holds the status that this means; repeating does not help.
    #[error("the connection must be reconnected ({0})")]
    ReconnectNeeded(ConnectionStatus),
    /// The provider asks us to slow down.
    #[error("the provider limits our rate")]
    RateLimited {
        /// How long it asks us to wait, if it says.
        retry_after: Option<Duration>,
    },
    /// Not reached, too slow, cut off, or a server error; worth repeating.
    #[error("the provider is unavailable: {reason}")]
    Unavailable {
        /// What happened, in a few fixed words.
        reason: &'static str,
        /// How long it asks us to wait, if it says.
        retry_after: Option<Duration>,
    },
    /// An answer that is not what its protocol says. Worth repeating: proxies break answers too.
    #[error("the provider's answer is broken: {0}")]
    Malformed(&'static str),
    /// The request's time is used up.
    #[error("out of time")]
    Deadline,
    /// The provider refuses the request, or our credentials. Repeating does not help.
    #[error("the provider refuses the request (status {status})")]
    Rejected {
        /// HTTP status of the refusal.
        status: u16,
    },
    /// The grant is not of the form that the provider needs, or does not work; says what to do.
    #[error("{0}")]
    BadGrant(String),
}

impl Error {
    /// An unavailable provider, for a fixed reason.
    #[must_use]
    pub fn unavailable(reason: &'static str) -> Self {
        Self::Unavailable { reason, retry_after: None }
    }

    /// Whether the same call may succeed soon.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::RateLimited { .. } | Self::Unavailable { .. } | Self::Malformed(_) | Self::Deadline)
    }

    /// How long the provider asks us to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after } | Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// A word for metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ReconnectNeeded(_) => "reconnect_needed",
            Self::RateLimited { .. } => "rate_limited",
            Self::Unavailable { .. } => "unavailable",
            Self::Malformed(_) => "malformed",
            Self::Deadline => "deadline",
            Self::Rejected { .. } => "rejected",
            Self::BadGrant(_) => "bad_grant",
        }
    }
}
