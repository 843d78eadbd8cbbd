//! Tests of linking, reconnecting and removing connections.

mod chromium;
mod confirmation;
mod provider_events;
mod removal;
mod sessions;
