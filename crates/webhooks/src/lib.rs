//! Tells users' endpoints what changed: which event has which rows, how it is signed, where it may go, when it is tried again.
//!
//! No row is stored. The first attempt is sent from memory; for every later one the rows are read from the provider again.

pub mod chunk;
pub mod client;
mod deliver;
pub mod digest;
pub mod outbox;
pub mod payload;
mod ping;
mod rebuild;
pub mod resolver;
pub mod schedule;
pub mod sign;
pub mod target;

use std::sync::Arc;
use std::time::Duration;

use bellbird_providers::Registry;
use bellbird_shared_state::Clock;
use bellbird_storage::Storage;
use tokio::sync::Semaphore;

pub use deliver::ATTEMPTS;
pub use ping::{PingError, Pinged};

use client::Client;
use outbox::Outbox;
use rebuild::REBUILDS_AT_ONCE;
use resolver::Resolver;
use schedule::Schedule;
use target::Rules;

/// How deliveries are made.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where endpoints may be.
    pub rules: Rules,
    /// What one exchange with an endpoint may take.
    pub timeout: Duration,
    /// When a delivery is tried again.
    pub schedule: Schedule,
}

/// Delivers events. Cheap to clone; the clones share everything.
#[derive(Clone)]
pub struct Webhooks {
    inner: Arc<Inner>,
}

struct Inner {
    storage: Storage,
    providers: Registry,
    clock: Clock,
    outbox: Outbox,
    settings: Settings,
    client: Client,
    rebuilds: Semaphore,
}

impl Webhooks {
    /// Over these. `outbox` is the one that the syncs of this program fill.
    ///
    /// # Errors
    /// A sentence when TLS or name resolution cannot be set up.
    pub fn new(
        storage: Storage,
        providers: Registry,
        clock: Clock,
        outbox: Outbox,
        settings: Settings,
    ) -> Result<Self, String> {
        let resolver = Resolver::from_system(settings.rules)?;
        Self::with_resolver(storage, providers, clock, outbox, settings, resolver)
    }

    /// As [`Webhooks::new`], with another way to find the addresses of endpoints.
    ///
    /// # Errors
    /// A sentence when TLS cannot be set up.
    pub fn with_resolver(
        storage: Storage,
        providers: Registry,
        clock: Clock,
        outbox: Outbox,
        settings: Settings,
        resolver: Resolver,
    ) -> Result<Self, String> {
        let client = Client::new(resolver, settings.rules, settings.timeout)?;
        let rebuilds = Semaphore::new(REBUILDS_AT_ONCE);
        let inner = Inner { storage, providers, clock, outbox, settings, client, rebuilds };
        Ok(Self { inner: Arc::new(inner) })
    }
}
