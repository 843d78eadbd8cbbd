//! Sends a ping: a signed event without rows, which tests whether an endpoint responds and accepts
//! signed requests.

use bellbird_domain::{EndpointId, EventId, EventType, SyncRunId, UserId};
use bellbird_storage::{Endpoint, PingResult, StorageError};

use crate::Webhooks;
use crate::delivery::send::{ConnectTime, Exchange};
use crate::delivery::sign::Signer;
use crate::event::payload::{Envelope, body};
use crate::target::{TargetError, check_url};

/// How much of a response body whoever sent the ping sees.
const RESPONSE_BYTES_MAX: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingOutcome {
    pub event_id: EventId,
    pub exchange: Exchange,
    /// The beginning of the response body, for whoever sent the ping. It is not stored.
    pub response: String,
}

/// Why no ping was sent.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    #[error("the endpoint does not exist")]
    NotFound,
    /// The stored secret is not a webhook secret.
    #[error(
        "the endpoint secret is invalid: create a new one with `bellbird webhook rotate-secret`"
    )]
    Secret,
    /// The current rules reject the endpoint's URL.
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Webhooks {
    /// Sends a ping to an endpoint, enabled or disabled, and stores the outcome. A ping is never
    /// retried, and does not count as a success or failure of the endpoint.
    ///
    /// An error means that no request was sent, or that the endpoint was removed meanwhile.
    pub async fn ping(&self, endpoint: &Endpoint) -> Result<PingOutcome, PingError> {
        let inner = &self.inner;
        let (user, id) = (endpoint.user_id, endpoint.id);
        let url = check_url(&endpoint.url, inner.settings.rules)?;
        let signer = self.signer(user, id).await?.ok_or(PingError::NotFound)?;
        let (now, run, event) = (inner.clock.now(), SyncRunId::new(), EventId::new());
        let envelope = Envelope {
            id: event,
            event_type: EventType::Ping,
            created: now,
            sync_run_id: run,
            connection_id: None,
            chunk: 1,
            total_chunks: 1,
        };
        let body = body(&envelope, endpoint.api_version.into(), &[], &[]);
        let message = signer.sign(event, id, now, body);
        let sending = inner
            .client
            .send_and_read(&url, message, ConnectTime::Usual);
        let (exchange, response) = sending.await;
        let response = &response[..response.len().min(RESPONSE_BYTES_MAX)];
        let result = PingResult {
            at: now,
            duration_ms: u32::try_from(exchange.duration.as_millis()).unwrap_or(u32::MAX),
            status: exchange.status,
            error: exchange.recorded(event),
            delivered: exchange.is_success(),
        };
        if !inner
            .storage
            .deliveries()
            .insert_ping(user, id, event, run, &result)
            .await?
        {
            return Err(PingError::NotFound);
        }
        Ok(PingOutcome {
            event_id: event,
            exchange,
            response: String::from_utf8_lossy(response).into_owned(),
        })
    }

    /// Signs this body of an event, such as an example, and sends it once. Nothing is stored, so it
    /// is in no log, and it counts neither as a success nor as a failure of the endpoint.
    pub async fn send_example(
        &self,
        endpoint: &Endpoint,
        event: EventId,
        body: Vec<u8>,
    ) -> Result<Exchange, PingError> {
        let inner = &self.inner;
        let url = check_url(&endpoint.url, inner.settings.rules)?;
        let signer = self.signer(endpoint.user_id, endpoint.id).await?;
        let signer = signer.ok_or(PingError::NotFound)?;
        let message = signer.sign(event, endpoint.id, inner.clock.now(), body.into());
        Ok(inner.client.send(&url, message, ConnectTime::Usual).await)
    }

    /// Loads the secrets that currently sign for an endpoint. `None` if the endpoint does not
    /// exist.
    pub(crate) async fn signer(
        &self,
        user: UserId,
        id: EndpointId,
    ) -> Result<Option<Signer>, PingError> {
        let Some(secrets) = self
            .inner
            .storage
            .endpoints()
            .secrets(user, id, self.inner.clock.now())
            .await?
        else {
            return Ok(None);
        };
        let all: Vec<_> = std::iter::once(&secrets.current)
            .chain(&secrets.old)
            .collect();
        Signer::new(&all).map(Some).map_err(|_| PingError::Secret)
    }
}
