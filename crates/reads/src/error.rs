//! Why a question about live data has no answer.

use std::time::Duration;

use bellbird_domain::ConnectionStatus;
use bellbird_storage::StorageError;

/// How long a caller is asked to wait when the provider does not say.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A provider that asks for more is not passed on: our next call may well succeed earlier.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// What the API turns into a status.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The connection or an account does not exist, or is another user's: the two are never told apart.
    #[error("not found")]
    NotFound,
    /// A question for banks, asked of a broker, or the other way round.
    #[error("wrong category")]
    WrongCategory,
    /// Consent is gone; says the status to name.
    #[error("the connection is {0} and must be reconnected")]
    Reconnect(ConnectionStatus),
    /// The provider does not answer now.
    #[error("the provider is unavailable")]
    Unavailable {
        /// When to try again.
        retry_after: Duration,
    },
    /// Our own database failed.
    #[error("storage: {0}")]
    Storage(std::sync::Arc<StorageError>),
}

impl From<StorageError> for ReadError {
    fn from(error: StorageError) -> Self {
        Self::Storage(std::sync::Arc::new(error))
    }
}

impl ReadError {
    /// What a provider's failure means for a connection of this stored status. A read that finds consent gone while the
    /// stored status still says active calls it invalidated, until a check has found out more.
    #[must_use]
    pub fn from_provider(error: &bellbird_providers::Error, stored: ConnectionStatus) -> Self {
        use bellbird_providers::Error;
        match error {
            Error::ReconnectNeeded(_) => Self::Reconnect(match stored {
                ConnectionStatus::Active => ConnectionStatus::Invalidated,
                status => status,
            }),
            other => Self::Unavailable { retry_after: other.retry_after().unwrap_or(RETRY_AFTER).min(RETRY_AFTER_MAX) },
        }
    }

    /// A provider without an adapter or credentials in this installation.
    #[must_use]
    pub fn not_offered() -> Self {
        Self::Unavailable { retry_after: Duration::from_secs(60) }
    }
}
