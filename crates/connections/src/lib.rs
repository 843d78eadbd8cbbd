//! The life of a connection: it is linked in the browser or adopted from a grant made elsewhere, looked at when something
//! may have changed, repaired, and removed.

mod adopt;
mod arrive;
pub mod error;
mod inbound;
pub mod lifecycle;
mod link;
mod look;
pub mod matching;
mod owner;
mod remove;
pub mod schedule;

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::ConnectionId;
use bellbird_providers::{Call, Provider, Registry};
use bellbird_shared_state::{Clock, SingleFlight};
use bellbird_storage::Storage;
use jiff::Timestamp;
use tokio::time::Instant;

pub use adopt::{Adopted, LeftOut};
pub use arrive::{Arrival, Outcome};
pub use bellbird_providers::linking::Url;
pub use bellbird_providers::notifying::Refused;
pub use error::ConnectionsError;
pub use inbound::NotTaken;
pub use link::{LinkPage, LinkTo, Linkable, NewAddress};
pub use remove::Removal;

/// How long one step may take.
const STEP_DEADLINE: Duration = Duration::from_secs(60);

/// Leads connections through their life.
#[derive(Clone)]
pub struct Connections {
    storage: Storage,
    providers: Registry,
    clock: Clock,
    checks: Arc<SingleFlight<ConnectionId, ()>>,
    console_url: Option<Url>,
}

impl Connections {
    /// Over these.
    #[must_use]
    pub fn new(storage: Storage, providers: Registry, clock: Clock) -> Self {
        Self { storage, providers, clock, checks: Arc::default(), console_url: None }
    }

    /// With the address of the console, as browsers reach it: without it, nothing can be linked in a browser.
    #[must_use]
    pub fn with_console_at(self, url: Url) -> Self {
        Self { console_url: Some(url), ..self }
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
