//! The errors of a live read, and their mapping from provider errors.

use std::time::Duration;

use bellbird_domain::ConnectionStatus;
use bellbird_storage::StorageError;

/// `Retry-After` if the provider sends none.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Maximum `Retry-After`. A longer wait is not passed on, because the next call may well succeed earlier.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Why a live read failed. The API maps each variant to an HTTP status.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The connection or account does not exist or belongs to another user. Clients cannot distinguish the two.
    #[error("not found")]
    NotFound,
    /// A banking endpoint called for a brokerage connection, or the other way round.
    #[error("wrong category")]
    WrongCategory,
    /// Consent is gone. Holds the connection status to report.
    #[error("the connection is {0} and must be reconnected")]
    Reconnect(ConnectionStatus),
    /// The user has used up their budget of provider calls.
    #[error("the budget of provider calls is used up")]
    BudgetUsedUp { retry_after: Duration },
    /// A transient failure, or a provider that is not configured.
    #[error("the provider is unavailable")]
    Unavailable { retry_after: Duration },
    #[error("storage: {0}")]
    Storage(std::sync::Arc<StorageError>),
}

impl From<StorageError> for ReadError {
    fn from(error: StorageError) -> Self {
        Self::Storage(std::sync::Arc::new(error))
    }
}

impl ReadError {
    /// Maps a provider error. `stored` is the status of the connection in the database.
    ///
    /// If consent is gone but the stored status is still active, reports invalidated until a refresh determines the
    /// status.
    #[must_use]
    pub fn from_provider(error: &bellbird_providers::Error, stored: ConnectionStatus) -> Self {
        use bellbird_providers::Error;
        match error {
            Error::ReconnectNeeded(_) => Self::Reconnect(match stored {
                ConnectionStatus::Active => ConnectionStatus::Invalidated,
                status => status,
            }),
            Error::BudgetUsedUp { retry_after } => Self::BudgetUsedUp { retry_after: *retry_after },
            other => Self::Unavailable { retry_after: other.retry_after().unwrap_or(RETRY_AFTER).min(RETRY_AFTER_MAX) },
        }
    }

    /// This installation has no adapter or no app credentials for the provider.
    #[must_use]
    pub fn not_configured() -> Self {
        Self::Unavailable { retry_after: Duration::from_secs(60) }
    }
}
