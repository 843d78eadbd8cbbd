pub(crate) mod fixtures;
mod overlong_leases;
mod plans;
mod queue;
