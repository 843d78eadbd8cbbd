//! Provider events: the webhooks that providers send to Bellbird.
//!
//! An event is only a hint to refresh the connections that it names. It is never a source of data.

use async_trait::async_trait;
use hyper::header::HeaderMap;
use secrecy::SecretString;
use serde_json::Value;

use crate::{CallContext, Error};

/// A provider event with a valid signature. It holds ids only, no data of accounts or rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderEvent {
    /// The provider's id of the event, which a redelivery repeats. None if the provider has no such
    /// id.
    pub id: Option<String>,
    /// The resources to refresh. Empty for events of other or unknown types.
    pub affected: Vec<AffectedResource>,
    /// Transactions of which the provider says that they are gone.
    pub removed: Option<RemovedTransactions>,
}

/// Transactions that are gone, by the provider's ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedTransactions {
    pub account: String,
    pub transactions: Vec<String>,
}

/// Names connections to refresh, by an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AffectedResource {
    /// The provider's id of a connection.
    Connection(String),
    /// The provider's id of an account. It stands for the connection that has the account.
    Account(String),
    /// All connections of this provider user: [`crate::FoundConnection::provider_user_id`].
    ProviderUser(String),
    /// All connections at this provider of one user: the `reference` of
    /// [`WebhookVerifier::subscribe`].
    Reference(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The signature is missing or does not match the body.
    #[error("the signature does not match")]
    Forged,
    /// The signature is valid, but the event's time is too far from now. It may be a replay.
    #[error("the event is too old")]
    Stale,
    /// The signature is valid, but the body does not have the documented form.
    #[error("the body is not a provider event")]
    Malformed,
    /// The signature could not be checked. The provider should send the event again.
    #[error("could not check the signature: {0}")]
    Unchecked(Error),
}

/// The longest id in an event. Longer ones are ignored.
const ID_BYTES_MAX: usize = 255;

/// Reads a member that is an id. None if it is absent, empty, too long or not a string.
pub(crate) fn id(member: Option<&Value>) -> Option<String> {
    let id = member?.as_str()?;
    (!id.is_empty() && id.len() <= ID_BYTES_MAX).then(|| id.to_owned())
}

/// The value of a header. None if it is absent, repeated or not ASCII.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok()
}

/// A provider that sends events.
#[async_trait]
pub trait WebhookVerifier: Send + Sync {
    /// Checks the signature over the raw body in constant time, then parses the event.
    async fn verify(
        &self,
        context: &CallContext,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<ProviderEvent, Rejection>;

    /// Fetches what verifying needs, so that the first event does not have to wait for it.
    async fn prepare(&self, _context: &CallContext) -> Result<(), Error> {
        Ok(())
    }

    /// Subscribes to the events of a consent, if the provider needs subscriptions. Existing
    /// subscriptions are not repeated. The events carry `reference` as
    /// [`AffectedResource::Reference`].
    async fn subscribe(
        &self,
        _context: &CallContext,
        _credentials: &SecretString,
        _reference: &str,
    ) -> Result<(), Error> {
        Ok(())
    }
}
