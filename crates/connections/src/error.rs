//! What can go wrong in a connection's life. Every text is a sentence for the person at the terminal.

use bellbird_domain::ConnectionStatus;
use bellbird_storage::StorageError;

/// A step of a connection's life that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionsError {
    /// No adapter of this name, or no credentials for it.
    #[error("the provider {0} is not configured here: set its credentials ({0}.* in bellbird.toml or BELLBIRD_{upper}__* in the environment)", upper = .0.to_ascii_uppercase())]
    NotOffered(String),
    /// The grant covers nothing that the provider knows.
    #[error("the provider knows no such consent: check the ids in the grant")]
    NoConsent,
    /// The consent does not work.
    #[error("this consent is {0}: the user has to give it again at the provider before it can be adopted")]
    Broken(ConnectionStatus),
    /// The consent works, but its accounts did not appear.
    #[error("the provider shows no accounts for this consent yet: try again in a minute")]
    NoAccounts,
    /// There is no such connection.
    #[error("there is no such connection")]
    NotFound,
    /// It belongs to somebody else.
    #[error("this consent is connected already, by another user or by a connection that is being removed")]
    Taken,
    /// The grant is not of the provider's form.
    #[error("{0}")]
    BadGrant(String),
    /// The provider could not be asked.
    #[error("the provider did not do it: {0}")]
    Provider(bellbird_providers::Error),
    /// Our database.
    #[error(transparent)]
    Storage(StorageError),
}

impl From<bellbird_providers::Error> for ConnectionsError {
    fn from(error: bellbird_providers::Error) -> Self {
        match error {
            bellbird_providers::Error::BadGrant(why) => Self::BadGrant(why),
            bellbird_providers::Error::ReconnectNeeded(status) => Self::Broken(status),
            other => Self::Provider(other),
        }
    }
}

impl From<StorageError> for ConnectionsError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Conflict(_) => Self::Taken,
            other => Self::Storage(other),
        }
    }
}
