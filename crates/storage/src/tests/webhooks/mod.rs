mod claim_plans;
mod connection_events;
mod deliveries;
mod endpoints;
mod queues;
mod redeliveries;
