//! Copies a SQLite database to a backup, puts a backup in the place of a database, and cuts the
//! access that a restored database would give back.

pub(crate) mod access;
pub(crate) mod copy;
pub(crate) mod origin;
