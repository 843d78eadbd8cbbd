//! Sealing, and the table of sealed secrets.

pub(crate) mod sealer;
pub(crate) mod store;
