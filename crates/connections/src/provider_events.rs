//! Receives provider events, the webhooks that providers send.
//!
//! An event is only a hint: it requests refreshes and syncs of the affected connections, and polls of open link
//! sessions. Its content is never used as data.

use std::time::Duration;

use bellbird_domain::UserId;
use bellbird_providers::Provider;
use bellbird_providers::webhook_verifier::{AffectedResource, Rejection};
use bellbird_storage::{AffectedRef, JobKey, StorageError};
use http::HeaderMap;
use jiff::SignedDuration;
use uuid::Uuid;

use crate::linking::poll;
use crate::{Connections, refresh, sync};

/// For verifying an event. Akahu expects a response within 5 s (docs/providers/akahu.md#webhooks), and its signing key
/// may have to be fetched first.
const DEADLINE: Duration = Duration::from_secs(4);
/// Minimum time between two refreshes of a connection, however many events come.
const REFRESH_INTERVAL_MIN: SignedDuration = SignedDuration::from_secs(10);
/// Minimum time between two syncs of a connection: providers send several events for one change.
const SYNC_INTERVAL_MIN: SignedDuration = SignedDuration::from_secs(30);
/// Counts received events. Labels: `provider` and `outcome`.
pub const PROVIDER_EVENTS_METRIC: &str = "bellbird_provider_events_total";

/// Why an event was not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// No provider has this name, or no secret is set to verify its signatures.
    #[error("webhooks of this provider are not configured here")]
    NotConfigured,
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The provider has to send the event again.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Connections {
    /// Verifies a provider event, requests jobs for the affected resources, and wakes the job loops.
    ///
    /// After `Ok`, no crash can lose the event. An event that was received before is ignored.
    pub async fn receive_provider_event(
        &self,
        provider: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(), ReceiveError> {
        let Ok(adapter) = self.provider(provider) else { return Err(ReceiveError::NotConfigured) };
        let webhook_verifier = adapter.webhook_verifier().ok_or(ReceiveError::NotConfigured)?;
        let count = |outcome: &'static str| {
            let name = adapter.name().as_str();
            metrics::counter!(PROVIDER_EVENTS_METRIC, "provider" => name, "outcome" => outcome).increment(1);
        };
        let event = match webhook_verifier.verify(&self.call_context_within(DEADLINE), headers, body).await {
            Err(rejected) => {
                count("rejected");
                return Err(rejected.into());
            }
            Ok(event) => event,
        };
        if let Some(id) = &event.id
            && self.storage.has_provider_event(provider, id).await?
        {
            count("duplicate");
            return Ok(());
        }
        let affected: Vec<AffectedRef<'_>> = event.affected.iter().filter_map(affected_resource).collect();
        if affected.is_empty() {
            count("ignored");
        } else {
            count("accepted");
            self.request_jobs(adapter.as_ref(), &affected).await?;
        }
        // Recorded last: if this process is killed before that, the provider sends the event again.
        if let Some(id) = &event.id {
            self.storage.insert_provider_event(provider, id, self.clock.now()).await?;
        }
        Ok(())
    }

    async fn request_jobs(&self, provider: &dyn Provider, affected: &[AffectedRef<'_>]) -> Result<(), StorageError> {
        let (name, now) = (provider.name().as_str(), self.clock.now());
        self.storage.wake_link_sessions(name, affected, now).await?;
        self.wake(&poll::KIND, name);
        for (user, connection) in self.storage.find_affected_connections(name, affected).await? {
            for (kind, interval_min) in [(&refresh::KIND, REFRESH_INTERVAL_MIN), (&sync::KIND, SYNC_INTERVAL_MIN)] {
                if (kind.is_enabled)(self) {
                    let job = JobKey::new(kind.name, user, connection);
                    self.storage.request_job(&job, now, interval_min).await?;
                }
            }
        }
        self.wake(&refresh::KIND, name);
        self.wake(&sync::KIND, name);
        Ok(())
    }
}

fn affected_resource(affected: &AffectedResource) -> Option<AffectedRef<'_>> {
    Some(match affected {
        AffectedResource::Connection(id) => AffectedRef::Connection(id),
        AffectedResource::Account(id) => AffectedRef::Account(id),
        AffectedResource::ProviderUser(id) => AffectedRef::ProviderUser(id),
        AffectedResource::Reference(reference) => AffectedRef::User(UserId::from(Uuid::try_parse(reference).ok()?)),
    })
}
