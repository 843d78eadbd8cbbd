//! Syncs of connections.

mod runs;
