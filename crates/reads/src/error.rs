//! The errors of a live read, and their mapping from provider errors.

use std::time::Duration;

use bellbird_domain::ConnectionStatus;
use bellbird_storage::StorageError;

/// Maximum `Retry-After`. A longer wait is not passed on, because the next call may well succeed
/// earlier.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Why a live read failed. The API maps each variant to an HTTP status.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The connection or account does not exist or belongs to another user. Clients cannot
    /// distinguish the two.
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
    /// The provider rejects the operator's credentials, or has none.
    #[error("the provider cannot be used with the settings of this service")]
    OperatorNeeded,
    /// The provider failed.
    #[error("the provider is unavailable")]
    Unavailable {
        /// `None` if the provider does not say.
        retry_after: Option<Duration>,
        is_transient: bool,
    },
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
    /// If consent is gone but the stored status is still active, reports invalidated until a
    /// refresh determines the status.
    pub fn from_provider(error: &bellbird_providers::Error, stored: ConnectionStatus) -> Self {
        use bellbird_providers::Error;
        match error {
            Error::ReconnectNeeded(_) => Self::Reconnect(match stored {
                ConnectionStatus::Active => ConnectionStatus::Invalidated,
                status => status,
            }),
            Error::BudgetUsedUp { retry_after } => Self::BudgetUsedUp {
                retry_after: *retry_after,
            },
            Error::OperatorRejected { .. } => Self::OperatorNeeded,
            other => Self::Unavailable {
                retry_after: other.retry_after().map(|wait| wait.min(RETRY_AFTER_MAX)),
                is_transient: other.is_transient(),
            },
        }
    }

    /// As [`Self::from_provider`], for a page of a list. No attempt succeeds once the list is
    /// broken.
    pub(crate) fn from_page(
        error: &bellbird_providers::Error,
        stored: ConnectionStatus,
        is_broken: bool,
    ) -> Self {
        match Self::from_provider(error, stored) {
            Self::Unavailable { retry_after, .. } if is_broken => Self::Unavailable {
                retry_after,
                is_transient: false,
            },
            error => error,
        }
    }

    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::BudgetUsedUp { .. }
                | Self::Unavailable {
                    is_transient: true,
                    ..
                }
        )
    }
}
