pub(crate) mod fixtures;
pub(crate) mod plans;
mod queue;
