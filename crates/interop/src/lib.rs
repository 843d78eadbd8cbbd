//! The reads of the API in other words, for programs that speak SimpleFIN, MCP or files.
//!
//! Nothing here decides what may be read: ownership, windows and exact sums are in
//! `bellbird_reads`, keys and limits in `bellbird_api`.

pub mod export;
pub mod mcp;
pub mod simplefin;

use std::sync::Arc;

use axum::extract::FromRef;
use bellbird_api::http::{ApiContext, Interface, UserState};
use bellbird_domain::{ConnectionId, CurrentText};
use simplefin::SimpleFin;

#[derive(Debug, Clone, Copy)]
pub struct InteropSettings {
    /// Requests a minute for each key: SimpleFIN accounts. 0 means no limit.
    pub simplefin_per_minute: u32,
}

/// The state shared by the handlers. Cheap to clone.
#[derive(Clone)]
pub struct Interop {
    context: ApiContext,
    /// The public URL of the API, without a trailing slash.
    public_url: CurrentText,
    simplefin: Arc<SimpleFin>,
}

impl Interop {
    pub fn new(context: ApiContext, settings: InteropSettings, public_url: CurrentText) -> Self {
        Self {
            simplefin: Arc::new(SimpleFin::new(&context, settings)),
            context,
            public_url,
        }
    }

    /// The public URL of SimpleFIN's interface.
    fn simplefin_url(&self) -> String {
        format!("{}{}", self.public_url.get(), simplefin::ROOT_PATH)
    }

    /// Frees the memory of everything kept that has expired.
    pub fn purge_expired(&self) {
        self.simplefin.memory.purge_expired();
    }

    /// Evicts a removed connection. This frees memory only: every request checks first what the
    /// caller owns.
    pub fn evict_connection(&self, connection_id: ConnectionId) {
        self.simplefin.memory.evict_connection(connection_id);
    }
}

impl FromRef<UserState<Self>> for Interop {
    fn from_ref(state: &UserState<Self>) -> Self {
        state.state().clone()
    }
}

/// The interfaces with a prefix of their own. Files are paths of `/v1`: see [`export::routes`].
pub fn interfaces(interop: &Interop) -> Vec<Interface> {
    vec![simplefin::interface(interop), mcp::interface(interop)]
}
