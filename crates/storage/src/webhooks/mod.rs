//! Webhook endpoints, webhook events and their deliveries.

pub(crate) mod deliveries;
pub(crate) mod delivery_log;
pub(crate) mod endpoints;
pub(crate) mod queues;
pub(crate) mod redeliveries;
pub(crate) mod webhook_events;
