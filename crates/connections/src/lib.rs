//! The life of a connection: linking or import, refreshes, syncs, provider events, repair and
//! removal.
//!
//! Refreshes, syncs, removals, consent sessions and registrations are jobs in the database. Every
//! instance polls for due jobs and claims them with a lease, so no job is lost when a process is
//! killed (see `runner/mod.rs`).

pub mod account_matching;
mod cleanup;
pub mod error;
mod import;
mod jobs;
pub mod lifecycle;
mod linking;
mod provider_events;
mod refresh;
mod removal;
mod return_url;
mod runner;
pub mod schedule;
mod state;
mod sync;
mod sync_settings;
#[cfg(test)]
mod tests;
mod user_removal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{Clock, CurrentText};
use bellbird_providers::registry::PROVIDERS;
use bellbird_providers::{Provider, Registry};
use bellbird_storage::{ProviderCalls, Storage, StorageError};
use bellbird_webhooks::event::buffer::WebhookEventBuffer;
use tokio_util::task::TaskTracker;

pub use bellbird_domain::{LinkOutcome, LinkStatus};
pub use bellbird_providers::linking::Url;
pub use bellbird_providers::webhook_verifier::Rejection;
pub use bellbird_storage::NewLinkSession;
pub use bellbird_webhooks::event::digest::RowHasher;
pub use error::ConnectionsError;
pub use import::{Imported, Imports, SkippedConsent};
pub use jobs::JOB_RUNS_METRIC;
pub use linking::Links;
pub use linking::callback::{
    CallbackAnswer, CallbackOutcome, HandledCallback, LinkResult, ReturnLink,
};
pub use linking::link_page::{
    FoundLink, LinkPage, LinkableProvider, LinkedConnection, RemovalPage, UnfinishedSession,
};
pub use linking::link_session::{LinkSession, NoConnection, SessionConnection};
pub use linking::start::{CreatedLink, LinkTarget, PreparedLink};
pub use provider_events::{PROVIDER_EVENTS_METRIC, ProviderEvents, ReceiveError};
pub use refresh::Refreshes;
pub use removal::{Removal, Removals};
pub use return_url::{AppReturn, ReturnOrigin, ReturnUrl, ReturnUrlError};
pub use runner::{Jobs, job_kinds};
pub use sync::{DuplicateIds, SyncReport, Syncs, following};
pub use sync_settings::{ProviderSyncs, SyncSettings, SyncsByProvider};
pub use user_removal::UserRemovals;

use state::{Lanes, State};

/// Every operation on connections, in parts: `connections.syncs().run(..)`. Cheap to clone; the
/// clones share their state.
#[derive(Clone)]
pub struct Connections(Arc<State>);

impl Connections {
    pub fn new(storage: Storage, providers: Registry, clock: Clock) -> Self {
        Self(Arc::new(State::new(
            storage,
            providers,
            clock,
            Lanes::new(runner::lanes()),
        )))
    }

    /// Sets the console's URL as browsers reach it. Without it, nothing can be linked in a browser.
    #[must_use]
    pub fn with_console_url(mut self, url: CurrentText) -> Self {
        Arc::make_mut(&mut self.0).console_url = Some(url);
        self
    }

    /// Sets the origins to which a browser may return from a link session. None by default.
    #[must_use]
    pub fn with_return_origins(mut self, origins: Vec<ReturnOrigin>) -> Self {
        Arc::make_mut(&mut self.0).return_origins = origins;
        self
    }

    /// Sets what differs between the syncs of the providers.
    #[must_use]
    pub fn with_syncs_by_provider(mut self, syncs: SyncsByProvider) -> Self {
        Arc::make_mut(&mut self.0).syncs_by_provider = syncs;
        self
    }

    /// Sets how syncs run, and the buffer that holds their webhook events for delivery.
    #[must_use]
    pub fn with_syncs(
        mut self,
        sync_settings: SyncSettings,
        event_buffer: WebhookEventBuffer,
    ) -> Self {
        let state = Arc::make_mut(&mut self.0);
        (state.sync_settings, state.event_buffer) = (sync_settings, event_buffer);
        self
    }

    /// Link URLs, link sessions, consent sessions, and what the page of a link URL does.
    pub fn links(&self) -> Links<'_> {
        Links(&self.0)
    }

    /// Consents that were given outside of Bellbird.
    pub fn imports(&self) -> Imports<'_> {
        Imports(&self.0)
    }

    /// Status and accounts, read from the provider.
    pub fn refreshes(&self) -> Refreshes<'_> {
        Refreshes(&self.0)
    }

    /// Rows that are new or changed, which become webhook events.
    pub fn syncs(&self) -> Syncs<'_> {
        Syncs(&self.0)
    }

    /// Removal of a connection, with its consent at the provider.
    pub fn removals(&self) -> Removals<'_> {
        Removals(&self.0)
    }

    /// Removals of users with their connections.
    #[must_use]
    pub fn user_removals(&self) -> UserRemovals<'_> {
        UserRemovals(&self.0)
    }

    /// Events that providers send.
    pub fn provider_events(&self) -> ProviderEvents<'_> {
        ProviderEvents(&self.0)
    }

    /// The runner of everything that outlives a request.
    pub fn jobs(&self) -> Jobs<'_> {
        Jobs(&self.0)
    }

    /// The configured providers, by the name in the API, and how the calls of this process to them
    /// went.
    pub fn provider_calls(&self) -> BTreeMap<String, ProviderCalls> {
        let calls = |provider: &dyn Provider| {
            let health = provider.health();
            let (failed_at, error) = health.last_failure.unzip();
            let calls = ProviderCalls {
                calls: health.calls,
                failed: health.failed,
                failed_in_a_row: health.failures,
                succeeded_at: health.succeeded_at,
                failed_at,
                error,
                is_paused: health.is_breaker_open,
            };
            (provider.name().as_str().to_owned(), calls)
        };
        let enabled = self.0.providers.enabled();
        enabled
            .iter()
            .map(|enabled| calls(enabled.provider.as_ref()))
            .collect()
    }

    /// The providers that are enabled, as they are exchanged.
    #[must_use]
    pub fn registry(&self) -> Registry {
        self.0.providers.clone()
    }

    /// Runs a database read that anyone can cause with a made-up token, `state` or cookie: a few at
    /// a time, the others wait. They leave database connections to others.
    pub async fn unverified_read<T>(
        &self,
        read: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<T, StorageError> {
        self.0.unverified_read(read).await
    }

    /// The tasks that outlive their request. A stopping service waits for them with
    /// [`Self::finish_tasks`].
    pub fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    /// Waits for the tasks that outlive their request: an interrupted exchange of a code would lose
    /// the consent.
    ///
    /// Call it after the listeners have closed. A task that takes longer than `time` is cut off.
    pub async fn finish_tasks(&self, time: Duration) {
        self.0.tasks.close();
        if tokio::time::timeout(time, self.0.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(tasks = self.0.tasks.len(), "tasks cut off by shutdown");
        }
    }
}

/// The names of all providers, configured or not.
pub fn provider_names() -> impl Iterator<Item = &'static str> {
    PROVIDERS.iter().map(|provider| provider.name.as_str())
}

/// Describes the name of a provider in the OpenAPI documents.
pub struct ProviderSchema;

impl utoipa::PartialSchema for ProviderSchema {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        bellbird_domain::connection::schema_of(provider_names())
    }
}

impl utoipa::ToSchema for ProviderSchema {}
