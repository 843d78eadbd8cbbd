//! The life of a connection: it is linked in the browser or adopted from a grant made elsewhere, looked at when something
//! may have changed, synced, repaired, and removed.

mod adopt;
mod arrive;
pub mod error;
mod gather;
mod inbound;
pub mod lifecycle;
mod link;
mod look;
pub mod matching;
mod owner;
mod remove;
pub mod schedule;
mod sync;

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::ConnectionId;
use bellbird_providers::{Call, Provider, Registry};
use bellbird_shared_state::{Clock, SingleFlight};
use bellbird_storage::Storage;
use bellbird_webhooks::outbox::Outbox;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use adopt::{Adopted, LeftOut};
pub use arrive::{Arrival, Outcome};
pub use bellbird_providers::linking::Url;
pub use bellbird_providers::notifying::Refused;
pub use error::ConnectionsError;
pub use inbound::{EVENTS, NotTaken};
pub use link::{LinkPage, LinkTo, Linkable, NewAddress};
pub use remove::Removal;
pub use sync::{SYNCS, SyncReport, SyncSettings};

/// How long one step may take.
const STEP_DEADLINE: Duration = Duration::from_secs(60);

/// What wakes those who wait for due work, before they would look for it by themselves.
#[derive(Default)]
struct Due {
    looks: Notify,
    syncs: Notify,
    trips: Notify,
}

/// Leads connections through their life.
#[derive(Clone)]
pub struct Connections {
    storage: Storage,
    providers: Registry,
    clock: Clock,
    checks: Arc<SingleFlight<ConnectionId, ()>>,
    subscribing: Arc<tokio::sync::Mutex<()>>,
    due: Arc<Due>,
    console_url: Option<Url>,
    syncing: SyncSettings,
    outbox: Outbox,
}

impl Connections {
    /// Over these.
    #[must_use]
    pub fn new(storage: Storage, providers: Registry, clock: Clock) -> Self {
        Self {
            storage,
            providers,
            clock,
            checks: Arc::default(),
            subscribing: Arc::default(),
            due: Arc::default(),
            console_url: None,
            syncing: SyncSettings::default(),
            outbox: Outbox::default(),
        }
    }

    /// With the address of the console, as browsers reach it: without it, nothing can be linked in a browser.
    #[must_use]
    pub fn with_console_at(self, url: Url) -> Self {
        Self { console_url: Some(url), ..self }
    }

    /// With these settings of syncs, whose events go to `outbox`.
    #[must_use]
    pub fn with_syncs(self, syncing: SyncSettings, outbox: Outbox) -> Self {
        Self { syncing, outbox, ..self }
    }

    fn call(&self) -> Call {
        self.call_within(STEP_DEADLINE)
    }

    fn call_within(&self, time: Duration) -> Call {
        Call::new(Instant::now() + time, self.clock.now())
    }

    /// The present moment, and the end of a lease that begins now.
    fn lease(&self, length: Duration) -> (Timestamp, Timestamp) {
        let now = self.clock.now();
        (now, now.saturating_add(length).unwrap_or(now))
    }

    fn provider(&self, name: &str) -> Result<&Arc<dyn Provider>, ConnectionsError> {
        self.providers.find(name).ok_or_else(|| ConnectionsError::NotOffered(name.to_owned()))
    }
}

/// Does the work for all claims at the same time. One that fails or panics ends no other: its lease runs out.
///
/// # Errors
/// The first one, when all are done.
async fn for_each<C, F>(claims: Vec<C>, work: impl Fn(C) -> F) -> Result<(), ConnectionsError>
where
    F: Future<Output = Result<(), ConnectionsError>> + Send + 'static,
{
    let mut attempts = JoinSet::new();
    for claim in claims {
        attempts.spawn(work(claim));
    }
    let mut failed = None;
    while let Some(attempt) = attempts.join_next().await {
        if let Ok(Err(error)) = attempt {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(()), Err)
}
