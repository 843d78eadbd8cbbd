//! The reads of the API in other words, for programs that speak SimpleFIN, MCP or files.
//!
//! Nothing here decides what may be read: ownership, windows and exact sums are in `bellbird_reads`, keys and limits in
//! `bellbird_requests`.

pub mod export;
pub mod mcp;
pub mod simplefin;

use std::sync::Arc;

use bellbird_requests::{Access, Door};

#[derive(Debug, Clone)]
pub struct InteropSettings {
    /// The public URL of the API, without a trailing slash.
    pub public_url: String,
}

/// The state shared by the handlers. Cheap to clone.
#[derive(Clone)]
pub struct Interop {
    pub access: Access,
    pub settings: Arc<InteropSettings>,
}

impl Interop {
    #[must_use]
    pub fn new(access: Access, settings: InteropSettings) -> Self {
        Self { access, settings: Arc::new(settings) }
    }
}

#[must_use]
pub fn doors(interop: &Interop) -> Vec<Door> {
    vec![export::door(interop.clone()), simplefin::door(interop.clone()), mcp::door(interop.clone())]
}
