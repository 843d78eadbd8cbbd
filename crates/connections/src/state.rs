//! What the parts of this crate share. A part is a borrow of it, so `connections.syncs()` costs
//! nothing.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bellbird_domain::{Clock, Connection, ConnectionId, CurrentText, TimestampExt as _, UserId};
use bellbird_limits::Expiring;
use bellbird_providers::{CallContext, Cause, Linking, Provider, Registry};
use bellbird_storage::{Storage, StorageError};
use bellbird_webhooks::event::buffer::WebhookEventBuffer;
use jiff::Timestamp;
use secrecy::SecretString;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::ConnectionsError;
use crate::return_url::ReturnOrigin;
use crate::sync_settings::{ProviderSyncs, SyncSettings, SyncsByProvider};

const UNVERIFIED_READS_MAX: usize = 4;

/// Users whose syncs are limited. Beyond it, the least recently used are forgotten.
const USERS_MAX: u64 = 100_000;
/// A user who starts no sync for this long is forgotten. It is longer than a sync takes.
const USER_TTL: Duration = Duration::from_secs(3_600);

#[derive(Clone)]
pub(crate) struct State {
    pub(crate) storage: Storage,
    pub(crate) providers: Registry,
    pub(crate) clock: Clock,
    unverified_reads: Arc<Semaphore>,
    /// Tasks that outlive their request.
    pub(crate) tasks: TaskTracker,
    pub(crate) subscribe_lock: Arc<tokio::sync::Mutex<()>>,
    pub(crate) lanes: Arc<Lanes>,
    /// Places for the syncs that each user's requests start.
    pub(crate) syncs_of_users: Arc<Expiring<UserId, Arc<Semaphore>>>,
    pub(crate) console_url: Option<CurrentText>,
    pub(crate) return_origins: Vec<ReturnOrigin>,
    pub(crate) sync_settings: SyncSettings,
    pub(crate) syncs_by_provider: SyncsByProvider,
    pub(crate) event_buffer: WebhookEventBuffer,
}

/// The lanes of this process. A lane is a kind of job at one provider.
pub(crate) struct Lanes(HashMap<(&'static str, &'static str), Lane>);

#[derive(Default)]
struct Lane {
    /// Wakes it before its next poll.
    requested: Notify,
    /// One for each job that may run at the same time.
    places: OnceLock<Arc<Semaphore>>,
}

/// Declares a part: a borrow of the [`State`].
macro_rules! part {
    ($(#[$doc:meta])* $Part:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $Part<'c>(pub(crate) &'c std::sync::Arc<$crate::state::State>);
    };
}
pub(crate) use part;

impl State {
    pub(crate) fn new(storage: Storage, providers: Registry, clock: Clock, lanes: Lanes) -> Self {
        let tasks = TaskTracker::new();
        Self {
            storage,
            providers,
            clock,
            unverified_reads: Arc::new(Semaphore::new(UNVERIFIED_READS_MAX)),
            tasks,
            subscribe_lock: Arc::default(),
            lanes: Arc::new(lanes),
            syncs_of_users: Arc::new(Expiring::new(USER_TTL, USERS_MAX, |_, _| 1)),
            console_url: None,
            return_origins: Vec::new(),
            sync_settings: SyncSettings::default(),
            syncs_by_provider: SyncsByProvider::new(),
            event_buffer: WebhookEventBuffer::default(),
        }
    }

    pub(crate) fn call_context_within(&self, time: Duration, cause: Cause) -> CallContext {
        CallContext::new(Instant::now() + time, self.clock.now(), cause)
    }

    /// See [`crate::Connections::unverified_read`].
    pub(crate) async fn unverified_read<T>(
        &self,
        read: impl Future<Output = Result<T, StorageError>>,
    ) -> Result<T, StorageError> {
        let _permit = self.unverified_reads.acquire().await;
        read.await
    }

    /// Returns the current time and the end of a lease that starts now.
    pub(crate) fn lease(&self, length: Duration) -> (Timestamp, Timestamp) {
        let now = self.clock.now();
        (now, now.plus(length))
    }

    pub(crate) fn syncs_of(&self, provider: &str) -> ProviderSyncs {
        self.syncs_by_provider
            .get(provider)
            .copied()
            .unwrap_or_default()
    }

    /// The settings of the syncs of a provider.
    pub(crate) fn sync_settings_of(&self, provider: &str) -> SyncSettings {
        let interval = self
            .syncs_of(provider)
            .interval
            .unwrap_or(self.sync_settings.interval);
        SyncSettings {
            interval,
            ..self.sync_settings
        }
    }

    pub(crate) async fn connection(
        &self,
        user: UserId,
        id: ConnectionId,
    ) -> Result<Connection, ConnectionsError> {
        let found = self.storage.connections().find(user, id).await?;
        found.ok_or(ConnectionsError::NotFound)
    }

    pub(crate) async fn credentials(
        &self,
        user: UserId,
        id: ConnectionId,
    ) -> Result<SecretString, ConnectionsError> {
        let found = self.storage.secrets().find_credentials(user, id).await?;
        found.ok_or(ConnectionsError::NotFound)
    }

    pub(crate) fn provider(&self, name: &str) -> Result<Arc<dyn Provider>, ConnectionsError> {
        self.providers
            .find(name)
            .ok_or_else(|| ConnectionsError::NotConfigured(name.to_owned()))
    }
}

/// The consent page of a provider.
pub(crate) fn linking_of(provider: &dyn Provider) -> Result<&dyn Linking, ConnectionsError> {
    let name = || provider.name().as_str().to_owned();
    let linking = provider.linking();
    linking.ok_or_else(|| ConnectionsError::NoConsentPage(name()))
}

impl Lanes {
    pub(crate) fn new(lanes: impl Iterator<Item = (&'static str, &'static str)>) -> Self {
        Self(lanes.map(|lane| (lane, Lane::default())).collect())
    }

    /// Wakes the lane of this process.
    pub(crate) fn wake(&self, kind: &'static str, provider: &str) {
        if let Some(lane) = self.0.get(&(kind, provider)) {
            lane.requested.notify_one();
        }
    }

    /// The places of a lane, or as many of a kind at another provider.
    pub(crate) fn places(&self, kind: &'static str, provider: &str, max: usize) -> Arc<Semaphore> {
        let places = || Arc::new(Semaphore::new(max));
        let lane = self.0.get(&(kind, provider));
        lane.map_or_else(places, |lane| Arc::clone(lane.places.get_or_init(places)))
    }

    pub(crate) async fn requested(&self, kind: &'static str, provider: &str) {
        match self.0.get(&(kind, provider)) {
            Some(lane) => lane.requested.notified().await,
            None => std::future::pending().await,
        }
    }
}
