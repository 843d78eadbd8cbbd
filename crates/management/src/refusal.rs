//! Why an operation changed nothing.

use bellbird_connections::ConnectionsError;
use bellbird_domain::EventType;
use bellbird_storage::{NO_CONSOLE_SIGN_IN, StorageError, USER_BEING_REMOVED};
use bellbird_webhooks::PingError;
use bellbird_webhooks::endpoint::{ENDPOINTS_MAX, EndpointUrlError};

/// What is not found, as the operator's API calls it.
pub const USER: &str = "User";
pub const KEY: &str = "Key";
pub const OPERATOR_KEY: &str = "Operator key";
pub const CONNECTION: &str = "Connection";
pub const ENDPOINT: &str = "Webhook endpoint";
pub const EVENT: &str = "Event";
pub const SESSION: &str = "Session";

/// Why an operation changed nothing. The texts are those of the operator's API. A page or a command
/// has its own where it knows more about what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It does not exist, or belongs to another user.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// A value that is rejected. The fault is a sentence.
    #[error("{field}: {fault}")]
    Invalid {
        /// As the operator's API calls it.
        field: &'static str,
        fault: &'static str,
    },
    /// What is to be unique, such as an e-mail address.
    #[error("There is {0} already")]
    InUse(&'static str),
    /// The user has as many as a user may have. The text says so, and what to do.
    #[error("{0}")]
    TooMany(&'static str),
    #[error(
        "There are {} endpoints already, which is the limit: remove one first",
        ENDPOINTS_MAX
    )]
    TooManyEndpoints,
    #[error("The key is revoked or expired: create a new one")]
    KeyEnded,
    #[error(
        "The user still has connections: repeat this request with ?connections=remove to remove them too"
    )]
    StillConnected,
    /// Only a command may do this.
    #[error("Only a command on the server makes a user an operator")]
    CommandsOnly,
    #[error("{}", NO_CONSOLE_SIGN_IN)]
    MayNotSignIn,
    #[error("{}", USER_BEING_REMOVED)]
    UserBeingRemoved,
    #[error("20 sign-in links that work: wait until one has ended")]
    TooManySignInLinks,
    /// Nobody may complete a first start in this way now.
    #[error("There is no first start that awaits its operator")]
    NoFirstStart,
    #[error(
        "There are connections or registered users of this provider, or somebody is linking a bank: remove them first, \
         because simulated connections cannot become real ones, nor real ones simulated"
    )]
    ProviderInUse,
    #[error("The connection is being removed and cannot be synced")]
    BeingRemoved,
    #[error("Syncs are off: set sync.enabled, or run `bellbird connection sync`")]
    SyncsAreOff,
    #[error("`{0}` goes to endpoints with `allUsers` only: leave it out")]
    ForAllUsersOnly(EventType),
    #[error("The endpoint is disabled: enable it first")]
    EndpointDisabled,
    #[error("A ping cannot be redelivered: send another")]
    PingRedelivered,
    #[error("The event waits for an earlier event of the same sync: redeliver that one instead")]
    EventWaits,
    #[error("Must name the user, because the endpoint is for all users")]
    UserRequired,
    /// What the URL of an endpoint is not.
    #[error(transparent)]
    Url(#[from] EndpointUrlError),
    #[error(transparent)]
    Ping(PingError),
    /// A provider, or a link that is not possible.
    #[error(transparent)]
    Connections(ConnectionsError),
    #[error(transparent)]
    Storage(StorageError),
}

impl From<StorageError> for Refusal {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::NotFound("first start") => Self::NoFirstStart,
            StorageError::NotFound("user") => Self::NotFound(USER),
            StorageError::NotFound("key") => Self::NotFound(KEY),
            StorageError::NotFound("operator key") => Self::NotFound(OPERATOR_KEY),
            StorageError::NotFound("connection") => Self::NotFound(CONNECTION),
            StorageError::Conflict(NO_CONSOLE_SIGN_IN) => Self::MayNotSignIn,
            StorageError::Conflict(USER_BEING_REMOVED) => Self::UserBeingRemoved,
            StorageError::Conflict(what) => Self::InUse(what),
            StorageError::TooMany(text) => Self::TooMany(text),
            other => Self::Storage(other),
        }
    }
}

impl From<ConnectionsError> for Refusal {
    fn from(error: ConnectionsError) -> Self {
        match error {
            ConnectionsError::Storage(error) => error.into(),
            other => Self::Connections(other),
        }
    }
}

impl From<PingError> for Refusal {
    fn from(error: PingError) -> Self {
        match error {
            PingError::NotFound => Self::NotFound(ENDPOINT),
            PingError::Storage(error) => error.into(),
            other => Self::Ping(other),
        }
    }
}
