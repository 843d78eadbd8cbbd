//! Encrypts secrets, and stores them in the table `secrets`.

pub(crate) mod random;
pub(crate) mod sealer;
pub(crate) mod store;
