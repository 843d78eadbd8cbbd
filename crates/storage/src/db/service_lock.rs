//! Locks on a SQLite file, held by the operating system on files of their own beside it. PostgreSQL
//! needs none.
//!
//! They are no locks on the database file itself, because closing any handle of that file would
//! drop SQLite's own locks. The system frees a lock when its process ends, however it ends. The
//! empty files stay.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::db::opened_file::RESCUE;
use crate::db::{file_user, open_error};
use crate::error::{Result, StorageError};

/// The lock of a running service, on `NAME-lock`: one at a time. Commands beside the service do not
/// take it.
#[derive(Debug)]
pub struct ServiceLock {
    _file: File,
    database: PathBuf,
}

impl ServiceLock {
    /// Takes the lock for the database at this URL. Returns `None` for PostgreSQL. Take it before
    /// [`crate::Storage`] is opened: a restore holds it while it replaces the file.
    ///
    /// # Errors
    /// [`StorageError::InUse`] if another process holds it, [`StorageError::File`] if the file is
    /// not there then.
    pub fn acquire(database_url: &str) -> Result<Option<Self>> {
        let Some(path) = open_error::sqlite_file(database_url)? else {
            return Ok(None);
        };
        let explain = |error| open_error::explain(database_url, error);
        let database = file_user::resolve(&path).map_err(explain)?;
        let file = lock_file(&database, "-lock").map_err(explain)?;
        locked(file.try_lock(), || {
            if database.exists() {
                StorageError::InUse(database.clone())
            } else {
                StorageError::File(rescue_text(&database))
            }
        })
        .map_err(explain)?;
        Ok(Some(Self {
            _file: file,
            database,
        }))
    }

    /// Whether a service has run on this database, whose file is gone or empty now. Ask before
    /// [`Self::acquire`], which leaves the file that shows it.
    pub fn database_is_gone(database_url: &str) -> bool {
        let Ok(Some(path)) = open_error::sqlite_file(database_url) else {
            return false;
        };
        let Ok(database) = file_user::resolve(&path) else {
            return false;
        };
        let is_empty = std::fs::metadata(&database).map_or(true, |file| file.len() == 0);
        is_empty && file_user::with_suffix(&database, "-lock").exists()
    }

    /// Says what to do about a database that is not there while a process holds its lock. `None`
    /// for every other database.
    pub fn rescue(database_url: &str) -> Option<String> {
        let path = open_error::sqlite_file(database_url).ok()??;
        let database = file_user::resolve(&path).ok()?;
        let lock = File::open(file_user::with_suffix(&database, "-lock")).ok()?;
        let is_held = matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock));
        (is_held && !database.exists()).then(|| rescue_text(&database))
    }

    /// The path of the database, without symbolic links.
    pub(crate) fn database(&self) -> &Path {
        &self.database
    }
}

/// A lock on `NAME-open`. Every process that has the database open shares it, so that no restore
/// replaces the file meanwhile: what is written to a replaced file is lost.
#[derive(Debug)]
pub(crate) struct OpenLock {
    _file: File,
}

impl OpenLock {
    /// Take it before the database is opened.
    pub(crate) fn share(database: &Path) -> Result<Self> {
        let file = lock_file(database, "-open")?;
        locked(file.try_lock_shared(), || {
            StorageError::Open(format!(
                "a restore replaces the SQLite database {} at the moment: try again, or correct database.url",
                database.display()
            ))
        })?;
        Ok(Self { _file: file })
    }

    /// For the restore.
    pub(crate) fn exclude_others(database: &Path) -> Result<Self> {
        let file = lock_file(database, "-open")?;
        locked(file.try_lock(), || in_use(database))?;
        Ok(Self { _file: file })
    }
}

fn rescue_text(database: &Path) -> String {
    format!(
        "the SQLite database {} is not there, but another process holds its lock. If that is a restore, wait until it \
         ends. Else the file was deleted: its rows are only in the service that runs on it, {RESCUE}",
        database.display()
    )
}

/// Fails with `busy` if another process holds the lock.
fn locked(
    outcome: std::result::Result<(), TryLockError>,
    busy: impl FnOnce() -> StorageError,
) -> Result<()> {
    outcome.map_err(|error| match error {
        TryLockError::WouldBlock => busy(),
        TryLockError::Error(error) => StorageError::unavailable(error),
    })
}

/// The error of a restore beside another process.
pub(crate) fn in_use(database: &Path) -> StorageError {
    let database = database.display();
    StorageError::Backup(format!(
        "another process has {database} open: wait until it ends, and try again"
    ))
}

fn lock_file(database: &Path, end: &str) -> Result<File> {
    let path = file_user::with_suffix(database, end);
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let file = options.open(&path).map_err(|error| {
        if path.is_symlink() {
            file_user::link_error(&path, "in the place of a lock: delete it")
        } else {
            StorageError::unavailable(error)
        }
    })?;
    file_user::match_database(&file, database);
    Ok(file)
}
