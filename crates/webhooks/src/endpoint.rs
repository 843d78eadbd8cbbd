//! How an endpoint is checked before it is stored.

use std::time::Duration;

use bellbird_domain::{ApiVersion, EventType, UserId};
use jiff::SignedDuration;

use crate::target::resolver::{ResolveError, Resolver};
use crate::target::{Rules, TargetError, check_url};

/// Endpoints per user, and of the installation: docs/contract.md#webhook-endpoints.
pub const ENDPOINTS_MAX: u32 = 20;
/// How long events are also signed with the old secret: docs/contract.md#webhook-signatures.
pub const OLD_SECRET_LIFE: SignedDuration = SignedDuration::from_hours(24);
/// The event types of a user's endpoint that asks for none.
pub const DEFAULT_EVENTS: &[EventType] = &[EventType::TransactionsSynced, EventType::TradesSynced];
/// Limit for the name resolution of an endpoint's URL.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Why the URL of an endpoint is rejected.
#[derive(Debug, thiserror::Error)]
pub enum EndpointUrlError {
    #[error(transparent)]
    Target(TargetError),
    #[error(
        "the host name resolves to a private address: use one that resolves to public addresses only"
    )]
    PrivateAddress,
    /// Name resolution cannot be set up.
    #[error("{0}")]
    Resolver(String),
}

/// A URL that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointUrl {
    /// Its normal form.
    pub url: String,
    /// Why its host name does not resolve now. It may do so later, because each delivery resolves
    /// it again.
    pub unresolved: Option<ResolveError>,
}

impl EndpointUrl {
    /// Checks the URL of an endpoint, and resolves its name.
    pub async fn check(text: &str, rules: Rules) -> Result<Self, EndpointUrlError> {
        let url = check_url(text, rules).map_err(EndpointUrlError::Target)?;
        // Only a loopback address, where allowed, has no host name.
        let unresolved = match url.domain() {
            Some(name) => {
                resolve(
                    &Resolver::from_system(rules).map_err(EndpointUrlError::Resolver)?,
                    name,
                )
                .await?
            }
            None => None,
        };
        Ok(Self {
            url: url.into(),
            unresolved,
        })
    }
}

/// Rejects a name that resolves to a forbidden address. Returns why it does not resolve.
async fn resolve(
    resolver: &Resolver,
    name: &str,
) -> Result<Option<ResolveError>, EndpointUrlError> {
    match tokio::time::timeout(RESOLVE_TIMEOUT, resolver.vet(name)).await {
        Ok(Ok(_)) => Ok(None),
        Ok(Err(ResolveError::NotAllowed)) => Err(EndpointUrlError::PrivateAddress),
        Ok(Err(resolve_error)) => Ok(Some(resolve_error)),
        Err(_) => Ok(Some(ResolveError::Unavailable)),
    }
}

/// The event types that an endpoint of this owner can have.
#[must_use]
pub fn event_types_for(owner: UserId) -> &'static [EventType] {
    if owner == UserId::INSTALLATION {
        EventType::SUBSCRIBABLE
    } else {
        EventType::SUBSCRIBABLE_BY_USERS
    }
}

/// The event types and the version of the body of an endpoint that asks for none.
#[must_use]
pub fn defaults_for(owner: UserId) -> (&'static [EventType], ApiVersion) {
    match owner {
        UserId::INSTALLATION => (EventType::SUBSCRIBABLE, ApiVersion::NEWEST),
        _ => (DEFAULT_EVENTS, ApiVersion::DEFAULT),
    }
}

/// The given event types, each once.
pub fn in_order(events: &[EventType]) -> Vec<EventType> {
    EventType::SUBSCRIBABLE
        .iter()
        .copied()
        .filter(|event| events.contains(event))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[tokio::test]
    async fn unresolvable_name_is_accepted_loopback_is_not() {
        let resolver = |allow_loopback| Resolver::from_system(Rules { allow_loopback }).unwrap();
        assert!(resolve(&resolver(false), "localhost").await.is_err());
        assert_eq!(resolve(&resolver(true), "localhost").await.unwrap(), None);
        // The socket is closed again, so nothing responds on its port.
        let no_server = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let resolver = Resolver::with_name_servers(&[no_server], Rules::default()).unwrap();
        assert_eq!(
            resolve(&resolver, "hooks.example.com").await.unwrap(),
            Some(ResolveError::Unavailable)
        );
    }
}
