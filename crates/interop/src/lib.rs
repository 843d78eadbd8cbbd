//! The reads of the API in other words, for programs that speak SimpleFIN, MCP or files.
//!
//! Nothing here decides what may be read: ownership, windows and exact sums are in `bellbird_reads`, keys and limits in
//! `bellbird_api`.

pub mod export;
pub mod mcp;
pub mod simplefin;

use std::sync::Arc;

use bellbird_api::front::{Access, Door};
use bellbird_domain::ConnectionId;

#[derive(Debug, Clone)]
pub struct InteropSettings {
    /// The public URL of the API, without a trailing slash.
    pub public_url: String,
}

/// The state shared by the handlers. Cheap to clone.
#[derive(Clone)]
pub struct Interop {
    access: Access,
    settings: Arc<InteropSettings>,
    simplefin: Arc<simplefin::Memory>,
}

impl Interop {
    #[must_use]
    pub fn new(access: Access, settings: InteropSettings) -> Self {
        Self { access, settings: Arc::new(settings), simplefin: Arc::new(simplefin::Memory::new()) }
    }

    /// Frees the memory of everything kept that has expired.
    pub fn purge_expired(&self) {
        self.simplefin.purge_expired();
    }

    /// Evicts a removed connection. This frees memory only: every request checks first what the caller owns.
    pub fn evict_connection(&self, connection_id: ConnectionId) {
        self.simplefin.evict_connection(connection_id);
    }
}

#[must_use]
pub fn doors(interop: &Interop) -> Vec<Door> {
    vec![export::door(interop.clone()), simplefin::door(interop.clone()), mcp::door(interop.clone())]
}
