//! Events that providers send us. An event is a hint to look, never a source of data.

use async_trait::async_trait;
use reqwest::header::HeaderMap;
use secrecy::SecretString;
use serde_json::Value;

use crate::{Call, Error};

/// An event whose signature is good, without anything that it says about accounts or rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The provider's own id of it, the same when it is sent again; none where the provider gives none.
    pub id: Option<String>,
    /// What to look at. Empty for an event that concerns us in no way, or that is not known.
    pub concerns: Vec<Concern>,
}

/// What an event is about: each of them an id, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Concern {
    /// The connection with this id at the provider.
    Connection(String),
    /// The connection that has this account, by its id at the provider.
    Account(String),
    /// All connections of this user of the provider's: [`crate::FoundConnection::owner`].
    Owner(String),
    /// All connections at this provider of the user of ours who was named when we subscribed.
    Reference(String),
}

/// Why an event is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The signature is missing, or is not the provider's over this very body.
    #[error("the signature does not fit")]
    Forged,
    /// It is good, but too old: somebody may be sending it again.
    #[error("the event is too old")]
    Stale,
    /// Signed, but not of the documented form.
    #[error("not an event")]
    Malformed,
    /// It cannot be told now whether the signature is good; to be sent again.
    #[error("the signature cannot be checked now: {0}")]
    Unchecked(Error),
}

/// The longest id that is taken from an event.
const ID_BYTES_MAX: usize = 255;

/// A member of an event that is an id; none when it is missing or anything else.
pub(crate) fn id(member: Option<&Value>) -> Option<String> {
    let id = member?.as_str()?;
    (!id.is_empty() && id.len() <= ID_BYTES_MAX).then(|| id.to_owned())
}

/// A header that is there once and can be read.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok()
}

/// A provider that sends us events.
#[async_trait]
pub trait Notifying: Send + Sync {
    /// Checks the signature over the raw body, in constant time, and says what the event is about.
    async fn read(&self, call: &Call, headers: &HeaderMap, body: &[u8]) -> Result<Notification, Refused>;

    /// Asks for the events about the consents of a grant, where they have to be asked for; what is subscribed to
    /// already is not subscribed to again. `reference` comes back as [`Concern::Reference`].
    async fn subscribe(&self, _call: &Call, _grant: &SecretString, _reference: &str) -> Result<(), Error> {
        Ok(())
    }
}
