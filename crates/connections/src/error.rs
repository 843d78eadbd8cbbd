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
    /// The provider has no consent page with our credentials.
    #[error(
        "{0} has no consent page with the credentials that are set here: take a consent over with `bellbird connection adopt` instead"
    )]
    NoConsentPage(String),
    /// No provider has one.
    #[error(
        "no provider with a consent page is configured here: set the credentials of one, or take a consent over with `bellbird connection adopt`"
    )]
    NothingToLink,
    /// It is not known where browsers find us.
    #[error("it is not known where browsers reach the console: set console.public_url")]
    NoConsole,
    /// An address to link at that serves no more, or never did.
    #[error("this address has expired, was used up, or is not complete: ask for a new one")]
    AddressEnded,
    /// Somebody else does the same at this moment.
    #[error("this is being done at the moment: try again in a minute")]
    Busy,
    /// The operating system has none.
    #[error("the system has no random numbers")]
    NoRandomNumbers,
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

impl ConnectionsError {
    /// What happened and what to do, for people who link in a browser and cannot change how the service is set up.
    #[must_use]
    pub fn for_people(&self) -> &'static str {
        match self {
            Self::Busy => "This is being prepared at the provider. Try again in half a minute.",
            Self::AddressEnded => "This address has expired, was used up, or is not complete. Ask for a new one.",
            Self::Taken => "What you consented to is connected for another user of this service.",
            Self::BadGrant(_) => "It took too long, or the provider no longer takes what it gave before. Begin again.",
            Self::Provider(error) if error.is_transient() => {
                "The provider does not answer as it should at the moment. Try again in a few minutes."
            }
            Self::Storage(_) | Self::NoRandomNumbers => "Something went wrong on our side. Try again in a few minutes.",
            _ => {
                "The provider does not let this service link accounts. Whoever runs the service finds the cause in its log."
            }
        }
    }

    /// Whether the same may succeed soon.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Provider(error) => error.is_transient(),
            Self::Busy | Self::NoAccounts => true,
            _ => false,
        }
    }
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
