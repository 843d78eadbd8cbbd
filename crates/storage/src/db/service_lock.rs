//! Keeps a second service off a SQLite file. PostgreSQL serves several, so it needs no lock.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use crate::db::{open_error, owner};
use crate::error::{Result, StorageError};

/// The lock of a running service on its SQLite file: an exclusive lock of the operating system on the file `NAME-lock`
/// beside it. The system frees it when the process ends, however it ends. The empty file stays.
///
/// Commands beside a running service do not take it. It is no lock on the database file itself, because closing any
/// handle of that file would drop SQLite's own locks.
#[derive(Debug)]
pub struct ServiceLock {
    _file: File,
    database: PathBuf,
}

impl ServiceLock {
    /// Takes the lock for the database at this URL. Returns `None` for PostgreSQL. Take it before [`crate::Storage`] is
    /// opened: a restore holds it while it replaces the file.
    ///
    /// # Errors
    /// [`StorageError::InUse`] if another process holds it.
    pub fn acquire(database_url: &str) -> Result<Option<Self>> {
        let Some(path) = open_error::sqlite_file(database_url)? else { return Ok(None) };
        let unavailable = |error| open_error::explain(database_url, StorageError::unavailable(error));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // A symbolic link names the same lock.
        let database = path.canonicalize().unwrap_or(path);
        let mut lock_path = OsString::from(&database);
        lock_path.push("-lock");
        let lock_path = PathBuf::from(lock_path);
        let file = options.open(&lock_path).map_err(unavailable)?;
        owner::give(&lock_path, &database);
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file, database })),
            Err(TryLockError::WouldBlock) => Err(StorageError::InUse(database)),
            Err(TryLockError::Error(error)) => Err(unavailable(error)),
        }
    }

    /// The path of the database, through symbolic links.
    pub(crate) fn database(&self) -> &Path {
        &self.database
    }
}
