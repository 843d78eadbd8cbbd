//! Tests of linking, reconnecting and removing connections.

mod apps;
pub(crate) mod chromium;
mod confirmation;
mod pages;
mod provider_events;
mod removal;
mod sessions;
