mod deliveries;
mod endpoints;
mod redeliveries;
