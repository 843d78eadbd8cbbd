pub(crate) mod fixtures;
mod plans;
mod queue;
