//! The life of a connection: adopt, status, remove.
