//! Encrypts secrets, and stores them in the table `secrets`.

mod cursors;
pub(crate) mod random;
pub(crate) mod sealer;
pub(crate) mod store;
