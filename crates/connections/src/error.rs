//! The error type of every operation on a connection.
//!
//! `Display` is written for the operator at the terminal, [`ConnectionsError::user_message`] for
//! the user in a browser.

use bellbird_domain::{ConnectionStatus, Plan};
use bellbird_storage::StorageError;

use crate::return_url::ReturnUrlError;
use crate::schedule::Failure;

#[derive(Debug, thiserror::Error)]
pub enum ConnectionsError {
    /// No adapter has this name, or its credentials are not set.
    #[error(
        "the provider {0} is not configured here: set its credentials ({0}.* in bellbird.toml or BELLBIRD_{upper}__* \
         in the environment)",
        upper = .0.to_ascii_uppercase()
    )]
    NotConfigured(String),
    #[error("the provider has no consent for these credentials: check the ids in them")]
    ConsentNotFound,
    /// The provider rejects the consent; holds the status that this means for a connection.
    #[error(
        "the provider says that the consent is {0}: check the credentials, or let the user renew it there first"
    )]
    ConsentInactive(ConnectionStatus),
    /// The consent is active, but has no accounts yet.
    #[error("the provider lists no accounts for this consent yet: try again in a minute")]
    NoAccounts,
    #[error("connection not found")]
    NotFound,
    #[error(
        "{0} has no consent page for the configured credentials: import a consent with `bellbird connection import` \
         instead"
    )]
    NoConsentPage(String),
    #[error(
        "no provider with a consent page is configured here: set the credentials of one, or import a consent with \
         `bellbird connection import`"
    )]
    NoLinkableProvider,
    #[error(
        "the plan {plan} of this user does not include what {provider} reaches: change the plan first"
    )]
    NotInPlan { plan: Plan, provider: String },
    #[error("the URL of the console is unknown: set console.public_url")]
    NoConsoleUrl,
    /// No link has this token, it has expired or was used too often, or it is restricted to
    /// something else.
    #[error("this link URL has expired, was used up, or is incomplete: ask for a new one")]
    LinkExpired,
    /// As many consent sessions of the user at the provider are open as can be.
    #[error(
        "five visits to this provider are open already: finish one, or wait until they expire after half an hour"
    )]
    TooManySessions,
    #[error("the return URL {0}")]
    ReturnUrl(ReturnUrlError),
    #[error("the state is longer than 500 characters, or has a control character")]
    InvalidState,
    /// Another process holds the lease of this job, or claimed it after the lease of this process
    /// had expired.
    #[error("another process is already working on this: try again in a minute")]
    Busy,
    #[error(
        "this consent is already connected for another user, or its connection is being removed. Find it with \
         `bellbird connection list`: remove it with `bellbird connection remove ID`, or wait until it is gone"
    )]
    AlreadyConnected,
    /// The credentials do not have the form that the provider's adapter expects; the text says why.
    #[error("{0}")]
    InvalidCredentials(String),
    /// A job panicked. The log has no more, because the text may contain a row.
    #[error("panicked")]
    Panicked,
    #[error("the provider call failed: {0}")]
    Provider(bellbird_providers::Error),
    #[error(transparent)]
    Storage(StorageError),
}

impl ConnectionsError {
    /// What happened and what to do, for a user in a browser, who cannot change the configuration.
    pub fn user_message(&self) -> &'static str {
        match self {
            Self::Busy => {
                "Your registration at the provider is in progress. Try again in half a minute."
            }
            Self::LinkExpired => {
                "This link has expired, was used up, or is incomplete. Ask for a new one."
            }
            Self::NotInPlan { .. } => {
                "Your plan does not include this. Ask the operator of this service."
            }
            Self::TooManySessions => {
                "You have gone to this provider five times without coming back. Finish one of these visits, or wait \
                 half an hour."
            }
            Self::Provider(bellbird_providers::Error::BudgetUsedUp { .. }) => {
                "That was often in a short time. Wait a minute, then try again."
            }
            Self::AlreadyConnected => {
                "These accounts are linked for somebody else on this service, and can be linked once only."
            }
            Self::InvalidCredentials(_) => {
                "The provider's confirmation has expired or was used already. Start again."
            }
            Self::Provider(error) if error.is_transient() => {
                "The provider is not available at the moment. Try again in a few minutes."
            }
            Self::Storage(_) => "Something went wrong on our side. Try again in a few minutes.",
            _ => {
                "The provider does not let this service link accounts. The operator can find the cause in the log."
            }
        }
    }

    /// How a failed job is retried. None: it was interrupted, and runs again when its lease ends.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self {
            Self::Busy | Self::Storage(StorageError::Unavailable(_)) => None,
            Self::Provider(error) if error.is_transient() => {
                Some(Failure::Transient(error.retry_after()))
            }
            error if error.is_transient() => Some(Failure::Transient(None)),
            _ => Some(Failure::Permanent),
        }
    }

    /// Why a job failed, for lists of jobs.
    pub(crate) fn last_error(&self) -> String {
        match self {
            Self::Provider(error) => error.to_string(),
            Self::Storage(StorageError::Sealed(error)) => {
                format!("its credentials cannot be opened: {error}")
            }
            other => other.to_string(),
        }
    }

    /// Whether a retry may succeed soon.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Provider(error) => error.is_transient(),
            Self::Busy | Self::NoAccounts | Self::Panicked | Self::TooManySessions => true,
            _ => false,
        }
    }
}

impl From<bellbird_providers::Error> for ConnectionsError {
    fn from(error: bellbird_providers::Error) -> Self {
        match error {
            bellbird_providers::Error::InvalidCredentials(why) => Self::InvalidCredentials(why),
            bellbird_providers::Error::ReconnectNeeded(status) => Self::ConsentInactive(status),
            other => Self::Provider(other),
        }
    }
}

impl From<StorageError> for ConnectionsError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Conflict(_) => Self::AlreadyConnected,
            other => Self::Storage(other),
        }
    }
}
