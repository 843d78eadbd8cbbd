//! The life of a connection: linking or import, refreshes, syncs, provider events, repair and removal.
//!
//! Refreshes, syncs, removals, link sessions and registrations are jobs in the database. Every instance polls for due
//! jobs and claims them with a lease, so no job is lost when a process is killed (see `runner.rs`).

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
mod runner;
pub mod schedule;
mod sync;

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::Clock;
use bellbird_domain::{ConnectionId, TimestampExt as _};
use bellbird_limits::SingleFlight;
use bellbird_providers::registry::PROVIDERS;
use bellbird_providers::{CallContext, Provider, Registry};
use bellbird_storage::{Storage, StorageError};
use bellbird_webhooks::event::buffer::WebhookEventBuffer;
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

pub use bellbird_domain::LinkOutcome;
pub use bellbird_providers::linking::Url;
pub use bellbird_providers::webhook_verifier::Rejection;
pub use error::ConnectionsError;
pub use import::{Imported, SkippedConsent};
pub use jobs::JOB_RUNS_METRIC;
pub use linking::callback::{CallbackAnswer, CallbackOutcome, HandledCallback, LinkResult, ReturnLink};
pub use linking::link_page::{FoundLink, LinkPage, LinkableProvider, LinkedConnection, RemovalPage, UnfinishedSession};
pub use linking::start::{CreatedLink, LinkTarget, new_browser_cookie};
pub use provider_events::{PROVIDER_EVENTS_METRIC, ReceiveError};
pub use removal::Removal;
pub use runner::job_kinds;
pub use sync::{SyncReport, SyncSettings};

/// Database reads at the same time that anyone can cause with a made-up link token or `state`. They must leave database
/// connections to others.
const UNVERIFIED_READS_MAX: usize = 4;

/// Every operation on connections. Cheap to clone; the clones share their state.
#[derive(Clone)]
pub struct Connections {
    storage: Storage,
    providers: Registry,
    clock: Clock,
    /// Merges concurrent background refreshes of one connection.
    refreshes: Arc<SingleFlight<ConnectionId, ()>>,
    unverified_reads: Arc<Semaphore>,
    /// Tasks that outlive their request.
    tasks: TaskTracker,
    subscribe_lock: Arc<tokio::sync::Mutex<()>>,
    signals: Arc<runner::Signals>,
    console_url: Option<Url>,
    sync_settings: SyncSettings,
    event_buffer: WebhookEventBuffer,
}

impl Connections {
    pub fn new(storage: Storage, providers: Registry, clock: Clock) -> Self {
        let tasks = TaskTracker::new();
        Self {
            storage,
            providers,
            clock,
            unverified_reads: Arc::new(Semaphore::new(UNVERIFIED_READS_MAX)),
            refreshes: Arc::new(SingleFlight::tracked(tasks.clone())),
            tasks,
            subscribe_lock: Arc::default(),
            signals: Arc::default(),
            console_url: None,
            sync_settings: SyncSettings::default(),
            event_buffer: WebhookEventBuffer::default(),
        }
    }

    /// Sets the console's URL as browsers reach it. Without it, nothing can be linked in a browser.
    #[must_use]
    pub fn with_console_url(self, url: Url) -> Self {
        Self { console_url: Some(url), ..self }
    }

    /// Sets how syncs run, and the buffer that holds their webhook events for delivery.
    #[must_use]
    pub fn with_syncs(self, sync_settings: SyncSettings, event_buffer: WebhookEventBuffer) -> Self {
        Self { sync_settings, event_buffer, ..self }
    }

    /// The tasks that outlive their request. A stopping service waits for them with [`Self::finish_tasks`].
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Waits for the tasks that outlive their request: an interrupted exchange of a code would lose the consent.
    ///
    /// Call it after the listeners have closed. A task that takes longer than `time` is cut off.
    pub async fn finish_tasks(&self, time: Duration) {
        self.tasks.close();
        if tokio::time::timeout(time, self.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "tasks cut off by shutdown");
        }
    }

    fn call_context_within(&self, time: Duration) -> CallContext {
        CallContext::new(Instant::now() + time, self.clock.now())
    }

    /// Runs a database read that anyone can cause: a few at a time, the others wait.
    async fn unverified_read<T>(&self, read: impl Future<Output = Result<T, StorageError>>) -> Result<T, StorageError> {
        let _permit = self.unverified_reads.acquire().await;
        read.await
    }

    /// Returns the current time and the end of a lease that starts now.
    fn lease(&self, length: Duration) -> (Timestamp, Timestamp) {
        let now = self.clock.now();
        (now, now.plus(length))
    }

    fn provider(&self, name: &str) -> Result<&Arc<dyn Provider>, ConnectionsError> {
        self.providers.find(name).ok_or_else(|| ConnectionsError::NotConfigured(name.to_owned()))
    }
}

/// The names of all providers, configured or not.
pub fn provider_names() -> impl Iterator<Item = &'static str> {
    PROVIDERS.iter().map(|provider| provider.name.as_str())
}
