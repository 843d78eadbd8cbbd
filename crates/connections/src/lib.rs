//! The life of a connection: it is adopted from a grant made elsewhere, looked at when it seems broken, and removed.

mod adopt;
mod check;
pub mod error;
pub mod lifecycle;
mod remove;
pub mod schedule;

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::ConnectionId;
use bellbird_providers::{Call, Provider, Registry};
use bellbird_shared_state::{Clock, SingleFlight};
use bellbird_storage::Storage;
use tokio::time::Instant;

pub use adopt::{Adopted, LeftOut};
pub use error::ConnectionsError;
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
}

impl Connections {
    /// Over these.
    #[must_use]
    pub fn new(storage: Storage, providers: Registry, clock: Clock) -> Self {
        Self { storage, providers, clock, checks: Arc::default() }
    }

    fn call(&self) -> Call {
        Call::new(Instant::now() + STEP_DEADLINE, self.clock.now())
    }

    fn provider(&self, name: &str) -> Result<&Arc<dyn Provider>, ConnectionsError> {
        self.providers.find(name).ok_or_else(|| ConnectionsError::NotOffered(name.to_owned()))
    }
}
