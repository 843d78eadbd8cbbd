//! Webhook delivery: builds events from changed rows, signs them, checks endpoint URLs, sends and
//! retries.
//!
//! No row is stored. The first attempt usually sends a body from memory. For a later attempt the
//! rows are read from the provider again.

pub mod delivery;
pub mod endpoint;
pub mod event;
pub mod target;

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::Clock;
use bellbird_providers::Registry;
use bellbird_storage::Storage;

pub use delivery::ping::{PingError, PingOutcome};
pub use delivery::record::ATTEMPTS;

use delivery::rebuild::Rebuilds;
use delivery::schedule::Schedule;
use delivery::send::Client;
use event::buffer::WebhookEventBuffer;
use target::Rules;
use target::resolver::Resolver;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Which endpoint URLs are allowed.
    pub rules: Rules,
    /// Maximum duration of one exchange with an endpoint.
    pub timeout: Duration,
    pub schedule: Schedule,
    pub chunk_rows: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            timeout: Duration::from_secs(15),
            schedule: Schedule::default(),
            chunk_rows: 500,
        }
    }
}

/// The entry point of this crate. Cheap to clone; clones share all state.
#[derive(Clone)]
pub struct Webhooks {
    inner: Arc<Inner>,
}

struct Inner {
    storage: Storage,
    providers: Registry,
    clock: Clock,
    event_buffer: WebhookEventBuffer,
    settings: Settings,
    client: Client,
    rebuilds: Rebuilds,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Webhooks").finish_non_exhaustive()
    }
}

impl Webhooks {
    /// `event_buffer` must be the one that the syncs of this process fill. Fails with a sentence
    /// for the operator if TLS or name resolution cannot be set up.
    pub fn new(
        storage: Storage,
        providers: Registry,
        clock: Clock,
        event_buffer: WebhookEventBuffer,
        settings: Settings,
    ) -> Result<Self, String> {
        let resolver = Resolver::from_system(settings.rules)?;
        let client = Client::new(resolver, settings.rules, settings.timeout)?;
        Ok(Self::with_client(
            storage,
            providers,
            clock,
            event_buffer,
            settings,
            client,
        ))
    }

    /// As [`Self::new`], with this client.
    pub fn with_client(
        storage: Storage,
        providers: Registry,
        clock: Clock,
        event_buffer: WebhookEventBuffer,
        settings: Settings,
        client: Client,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                storage,
                providers,
                clock,
                event_buffer,
                settings,
                client,
                rebuilds: Rebuilds::default(),
            }),
        }
    }

    /// Which endpoint URLs are allowed.
    pub fn rules(&self) -> Rules {
        self.inner.settings.rules
    }
}
