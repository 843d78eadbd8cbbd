//! Copies a SQLite database to a backup, puts a backup in the place of a database, and keeps revoked and removed what
//! was revoked and removed since the backup.

pub(crate) mod changes_since;
pub(crate) mod copy;
pub(crate) mod origin;
