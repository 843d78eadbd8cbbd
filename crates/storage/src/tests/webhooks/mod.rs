mod claim_plans;
mod deliveries;
mod endpoints;
mod redeliveries;
mod status_changes;
