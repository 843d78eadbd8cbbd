//! Locks on a SQLite file, held by the operating system on files of their own beside it. PostgreSQL
//! needs none.
//!
//! They are no locks on the database file itself, because closing any handle of that file would
//! drop SQLite's own locks. The system frees a lock when its process ends, however it ends. The
//! empty files stay, except for those that a failed restore has made.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::db::opened_file::RESCUE;
use crate::db::{file_user, open_error};
use crate::error::{Result, StorageError};

/// The lock of a running service, on `NAME-lock`: one at a time. Commands beside the service do not
/// take it.
#[derive(Debug)]
pub struct ServiceLock {
    file: LockFile,
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
        let mut lock = Self::acquire_for_restore(database_url)?;
        if let Some(lock) = &mut lock {
            lock.keep();
        }
        Ok(lock)
    }

    /// As [`Self::acquire`]. Unless the restore succeeds, the file is deleted if this made it,
    /// because it would show that a service has run on a database that is not there.
    ///
    /// # Errors
    /// As [`Self::acquire`].
    pub fn acquire_for_restore(database_url: &str) -> Result<Option<Self>> {
        let Some(path) = open_error::sqlite_file(database_url)? else {
            return Ok(None);
        };
        let explain = |error| open_error::explain(database_url, error);
        let database = file_user::resolve(&path).map_err(explain)?;
        let file = LockFile::lock(&database, "-lock", File::try_lock, || {
            if database.exists() {
                StorageError::InUse(database.clone())
            } else {
                StorageError::File(rescue_text(&database))
            }
        })
        .map_err(explain)?;
        Ok(Some(Self { file, database }))
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
        let is_empty = fs::metadata(&database).map_or(true, |file| file.len() == 0);
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
    #[must_use]
    pub fn database(&self) -> &Path {
        &self.database
    }

    /// Leaves the file also if this made it.
    pub(crate) fn keep(&mut self) {
        self.file.keep();
    }
}

/// A lock on `NAME-open`. Every process that has the database open shares it, so that no restore
/// replaces the file meanwhile: what is written to a replaced file is lost.
#[derive(Debug)]
pub(crate) struct OpenLock {
    file: LockFile,
}

impl OpenLock {
    /// Take it before the database is opened.
    pub(crate) fn share(database: &Path) -> Result<Self> {
        let file = LockFile::lock(database, "-open", File::try_lock_shared, || {
            StorageError::Open(format!(
                "a restore replaces the SQLite database {} at the moment: try again, or correct database.url",
                database.display()
            ))
        })?;
        let mut lock = Self { file };
        lock.keep();
        Ok(lock)
    }

    /// For the restore. Unless it succeeds, the file is deleted if this made it.
    pub(crate) fn exclude_others(database: &Path) -> Result<Self> {
        let file = LockFile::lock(database, "-open", File::try_lock, || in_use(database))?;
        Ok(Self { file })
    }

    /// Leaves the file also if this made it.
    pub(crate) fn keep(&mut self) {
        self.file.keep();
    }
}

fn rescue_text(database: &Path) -> String {
    format!(
        "the SQLite database {} is not there, but another process holds its lock. If that is a restore, wait until it \
         ends. Else the file was deleted: its rows are only in the service that runs on it, {RESCUE}",
        database.display()
    )
}

/// The error of a restore beside another process.
pub(crate) fn in_use(database: &Path) -> StorageError {
    let database = database.display();
    StorageError::Backup(format!(
        "another process has {database} open: wait until it ends, and try again"
    ))
}

/// A locked file beside the database.
#[derive(Debug)]
struct LockFile {
    _file: File,
    path: PathBuf,
    /// Deleted when this is dropped.
    is_temporary: bool,
}

impl LockFile {
    /// Temporary if this has made the file. Fails with `busy` if another process holds the lock.
    fn lock(
        database: &Path,
        end: &str,
        try_lock: fn(&File) -> std::result::Result<(), TryLockError>,
        busy: impl FnOnce() -> StorageError,
    ) -> Result<Self> {
        let path = file_user::with_suffix(database, end);
        let is_temporary = !path.exists();
        let file = open(&path)?;
        file_user::match_database(&file, database);
        let is_locked = match try_lock(&file) {
            // A restore that failed meanwhile may have deleted it: another process would lock
            // another file of this name.
            Ok(()) => is_at(&file, &path),
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(StorageError::unavailable(error)),
        };
        if !is_locked {
            return Err(busy());
        }
        Ok(Self {
            _file: file,
            path,
            is_temporary,
        })
    }

    fn keep(&mut self) {
        self.is_temporary = false;
    }
}

/// While the file is still locked, so that nobody else has it.
impl Drop for LockFile {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options.open(path).map_err(|error| {
        if path.is_symlink() {
            file_user::link_error(path, "in the place of a lock: delete it")
        } else {
            StorageError::unavailable(error)
        }
    })
}

fn is_at(file: &File, path: &Path) -> bool {
    matches!(
        (file.metadata(), fs::symlink_metadata(path)),
        (Ok(own), Ok(there)) if (own.dev(), own.ino()) == (there.dev(), there.ino())
    )
}
