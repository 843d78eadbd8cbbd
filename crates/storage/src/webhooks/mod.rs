//! Webhook endpoints, webhook events and their deliveries.

pub(crate) mod deliveries;
pub mod delivery_log;
pub mod endpoints;
pub(crate) mod queues;
pub mod redeliveries;
pub(crate) mod webhook_events;
