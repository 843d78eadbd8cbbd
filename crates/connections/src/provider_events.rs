//! Receives provider events, the webhooks that providers send.
//!
//! An event is only a hint: it requests refreshes and syncs of the affected connections, and polls
//! of open consent sessions. Its content is never used as data: of a row that an event calls gone,
//! the next sync checks that it is.

use std::time::Duration;

use bellbird_domain::{Digest, UserId};
use bellbird_providers::webhook_verifier::{AffectedResource, Rejection, RemovedTransactions};
use bellbird_providers::{Cause, Provider};
use bellbird_storage::{AffectedRef, JobKey, StorageError};
use bellbird_webhooks::event::digest::RowHasher;
use futures_util::future::join_all;
use http::HeaderMap;
use jiff::SignedDuration;
use secrecy::ExposeSecret as _;
use uuid::Uuid;

use crate::linking::poll;
use crate::state::part;
use crate::{refresh, sync};

/// For verifying an event. Akahu expects a response within 5 s (docs/providers/akahu.md#webhooks),
/// and its signing key may have to be fetched first.
const DEADLINE: Duration = Duration::from_secs(4);
/// For the calls that prepare a provider for its events.
const PREPARE_DEADLINE: Duration = Duration::from_secs(40);
/// How long to wait before a provider is prepared for its events again, after a failure.
const PREPARE_INTERVAL: Duration = Duration::from_secs(60);

/// Minimum times between two runs of a connection's jobs, however many events come. Providers send
/// several events for one change. A request within that time is not lost: the job runs at its end.
#[derive(Clone, Copy)]
struct Intervals {
    refresh: SignedDuration,
    sync: SignedDuration,
}

const WITH_ID: Intervals = Intervals {
    refresh: SignedDuration::from_secs(10),
    sync: SignedDuration::from_secs(30),
};
/// Events without an id can be replayed, so a replay costs at most 144 syncs a day.
const WITHOUT_ID: Intervals = Intervals {
    refresh: SignedDuration::from_secs(30),
    sync: SignedDuration::from_mins(10),
};

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

part! {
    /// Events that providers send.
    ProviderEvents
}

impl ProviderEvents<'_> {
    /// Verifies a provider event, requests jobs for the affected resources, and wakes the job
    /// loops.
    ///
    /// After `Ok`, no crash can lose the event. An event that was received before is ignored.
    pub async fn receive(
        self,
        provider: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(), ReceiveError> {
        let Ok(adapter) = self.0.provider(provider) else {
            return Err(ReceiveError::NotConfigured);
        };
        let webhook_verifier = adapter
            .webhook_verifier()
            .ok_or(ReceiveError::NotConfigured)?;
        let count = |outcome: &'static str| {
            let name = adapter.name().as_str();
            metrics::counter!(PROVIDER_EVENTS_METRIC, "provider" => name, "outcome" => outcome)
                .increment(1);
        };
        let event = match webhook_verifier
            .verify(
                &self.0.call_context_within(DEADLINE, Cause::Schedule),
                headers,
                body,
            )
            .await
        {
            Err(rejected) => {
                count("rejected");
                return Err(rejected.into());
            }
            Ok(event) => event,
        };
        if let Some(id) = &event.id
            && self.0.storage.provider_events().has(provider, id).await?
        {
            count("duplicate");
            return Ok(());
        }
        let affected: Vec<AffectedRef<'_>> = event
            .affected
            .iter()
            .filter_map(affected_resource)
            .collect();
        if affected.is_empty() {
            count("ignored");
        } else {
            count("accepted");
            let intervals = if event.id.is_some() {
                WITH_ID
            } else {
                WITHOUT_ID
            };
            if let Some(removed) = &event.removed {
                self.note_removed(adapter.as_ref(), removed).await?;
            }
            self.request_jobs(adapter.as_ref(), &affected, intervals)
                .await?;
        }
        // Recorded last: if this process is killed before that, the provider sends the event again.
        if let Some(id) = &event.id {
            self.0
                .storage
                .provider_events()
                .insert(provider, id, self.0.clock.now())
                .await?;
        }
        Ok(())
    }

    /// Keeps the digests of transactions of which the provider says that they are gone, for the
    /// next sync to check.
    async fn note_removed(
        self,
        provider: &dyn Provider,
        removed: &RemovedTransactions,
    ) -> Result<(), StorageError> {
        let (name, account) = (
            provider.name().as_str(),
            AffectedRef::Account(&removed.account),
        );
        for (user, connection) in self
            .0
            .storage
            .provider_events()
            .find_affected(name, &[account])
            .await?
        {
            let accounts = self
                .0
                .storage
                .accounts()
                .list_of_connection(user, connection)
                .await?;
            let account = accounts
                .iter()
                .find(|account| account.provider_account_id == removed.account);
            let key = self
                .0
                .storage
                .syncs()
                .fingerprint_key(user, connection)
                .await?;
            let Some((account, key)) = account.zip(key) else {
                continue;
            };
            let hasher = RowHasher::new(key.expose_secret().as_bytes());
            let rows: Vec<Digest> = removed
                .transactions
                .iter()
                .map(|id| hasher.transaction_id(account.id, id))
                .collect();
            self.0
                .storage
                .syncs()
                .add_removal_hints(user, connection, &rows)
                .await?;
        }
        Ok(())
    }

    /// Fetches what the events of all providers are verified with, and again when providers are
    /// exchanged.
    pub(crate) async fn prepare_all(self) {
        let mut exchanges = self.0.providers.exchanges();
        loop {
            exchanges.mark_unchanged();
            let enabled = self.0.providers.enabled();
            let prepared = enabled
                .iter()
                .map(|enabled| self.prepare(enabled.provider.as_ref()));
            let prepare = async {
                join_all(prepared).await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = prepare => {}
                changed = exchanges.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Fetches what the provider's events are verified with, until that has succeeded once.
    pub(crate) async fn prepare(self, provider: &dyn Provider) {
        let Some(webhook_verifier) = provider.webhook_verifier() else {
            return;
        };
        while let Err(error) = webhook_verifier
            .prepare(
                &self
                    .0
                    .call_context_within(PREPARE_DEADLINE, Cause::Schedule),
            )
            .await
        {
            tracing::warn!(provider = %provider.name(), %error, "could not fetch the keys of provider events");
            tokio::time::sleep(PREPARE_INTERVAL).await;
        }
    }

    async fn request_jobs(
        self,
        provider: &dyn Provider,
        affected: &[AffectedRef<'_>],
        intervals: Intervals,
    ) -> Result<(), StorageError> {
        let (name, now) = (provider.name().as_str(), self.0.clock.now());
        self.0
            .storage
            .provider_events()
            .wake_consent_sessions(name, affected, now)
            .await?;
        self.0.wake(&poll::KIND, name);
        // A reference names all connections of a user, who may have many. It counts only if nothing
        // else is known.
        let (references, named): (Vec<_>, Vec<_>) = affected
            .iter()
            .copied()
            .partition(|affected| matches!(affected, AffectedRef::User(_)));
        let mut connections = self
            .0
            .storage
            .provider_events()
            .find_affected(name, &named)
            .await?;
        if connections.is_empty() {
            connections = self
                .0
                .storage
                .provider_events()
                .find_affected(name, &references)
                .await?;
        }
        for (user, connection) in connections {
            for (kind, interval_min) in [
                (&refresh::KIND, intervals.refresh),
                (&sync::KIND, intervals.sync),
            ] {
                if (kind.is_enabled)(self.0) {
                    let job = JobKey::new(kind.name, user, connection);
                    self.0
                        .storage
                        .jobs()
                        .request(&job, now, interval_min)
                        .await?;
                }
            }
        }
        self.0.wake(&refresh::KIND, name);
        self.0.wake(&sync::KIND, name);
        Ok(())
    }
}

fn affected_resource(affected: &AffectedResource) -> Option<AffectedRef<'_>> {
    Some(match affected {
        AffectedResource::Connection(id) => AffectedRef::Connection(id),
        AffectedResource::Account(id) => AffectedRef::Account(id),
        AffectedResource::ProviderUser(id) => AffectedRef::ProviderUser(id),
        AffectedResource::Reference(reference) => {
            AffectedRef::User(UserId::from(Uuid::try_parse(reference).ok()?))
        }
    })
}
