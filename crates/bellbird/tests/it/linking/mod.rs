//! Connections are linked, reconnected and removed.

mod chromium;
mod provider_events;
mod removal;
mod sessions;
