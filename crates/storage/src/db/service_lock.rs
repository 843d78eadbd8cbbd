//! Locks on a SQLite file, held by the operating system on files of their own beside it. PostgreSQL needs none.
//!
//! They are no locks on the database file itself, because closing any handle of that file would drop SQLite's own
//! locks. The system frees a lock when its process ends, however it ends. The empty files stay.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use crate::db::{file_user, open_error};
use crate::error::{Result, StorageError};

/// The lock of a running service, on `NAME-lock`: one at a time. Commands beside the service do not take it.
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
        let database = resolved(path);
        let file = lock_file(&database, "-lock").map_err(unavailable)?;
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

/// A lock on `NAME-open`. Every process that has the database open shares it, so that no restore replaces the file
/// meanwhile: what is written to a replaced file is lost.
#[derive(Debug)]
pub(crate) struct OpenLock {
    _file: File,
}

impl OpenLock {
    /// Take it before the database is opened.
    pub(crate) fn share(database: PathBuf) -> Result<Self> {
        let database = resolved(database);
        let file = lock_file(&database, "-open").map_err(StorageError::unavailable)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StorageError::Open(format!(
                "a restore replaces the SQLite database {} at the moment: try again, or correct database.url",
                database.display()
            ))),
            Err(TryLockError::Error(error)) => Err(StorageError::unavailable(error)),
        }
    }

    /// For the restore.
    pub(crate) fn exclude_others(database: &Path) -> Result<Self> {
        let file = lock_file(database, "-open").map_err(StorageError::unavailable)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(in_use(database)),
            Err(TryLockError::Error(error)) => Err(StorageError::unavailable(error)),
        }
    }
}

/// The error of a restore beside another process.
pub(crate) fn in_use(database: &Path) -> StorageError {
    let database = database.display();
    StorageError::Backup(format!("another process has {database} open: wait until it ends, and try again"))
}

/// A symbolic link names the same locks as the file.
fn resolved(database: PathBuf) -> PathBuf {
    database.canonicalize().unwrap_or(database)
}

fn lock_file(database: &Path, end: &str) -> std::io::Result<File> {
    let path = file_user::with_suffix(database, end);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&path)?;
    file_user::match_database(&path, database);
    Ok(file)
}
