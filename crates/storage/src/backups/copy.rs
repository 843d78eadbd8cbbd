//! Copies SQLite files: a database to a backup, and a backup to the place of a database.
//!
//! A copy is first a file with mode 0600 and a random name in the target's folder. It gets its name
//! once it is complete and checked.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rusqlite::ErrorCode;
use tempfile::{Builder, NamedTempFile};

use crate::backups::access;
use crate::db::Db;
use crate::db::file_user::{folder_of, match_database, with_suffix};
use crate::db::service_lock::OpenLock;
use crate::db::sqlite::{MissingFile, Sqlite, leave_wal};
use crate::error::{Result, StorageError};
use crate::secrets::store::SealedSecrets;
use crate::{Sealer, ServiceLock, Storage};

/// The first bytes of every SQLite file.
const SQLITE_HEADER: &[u8; 16] = b"SQLite format 3\0";

/// How the names of incomplete copies begin and end, around six random characters.
const PARTIAL: [&str; 2] = [".bellbird-", ".partial"];
/// How the names of a copy and of what SQLite writes beside it go on.
const BESIDE_PARTIAL: [&str; 4] = ["", "-wal", "-shm", "-journal"];
/// No copy takes so long.
const CUT_OFF_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// What a backup holds.
#[derive(Debug)]
pub struct BackupContents {
    pub bytes: u64,
    pub users: u64,
    pub connections: u64,
    pub secrets: SealedSecrets,
}

impl Storage {
    /// Copies this SQLite database to a new file, as it is at one moment, while others read and
    /// write it. The copy is checked by opening it, and awaits a decision when it is restored.
    ///
    /// # Errors
    /// [`StorageError::Backup`] if the file exists, or if this is PostgreSQL.
    pub async fn back_up(&self, file: &Path) -> Result<BackupContents> {
        let Db::Sqlite(db) = &self.db else {
            return Err(StorageError::Backup(
                "only SQLite is backed up to a file".to_owned(),
            ));
        };
        if file.exists() {
            return Err(file_exists(file));
        }
        let copy = db.vacuum_into(new_file_beside(file)?).await?;
        let opened = Self::open_file(copy.path(), self.sealer.clone()).await?;
        let contents = opened.mark_and_check().await;
        opened.close().await;
        let contents = contents?;
        leave_wal(copy.path().to_owned()).await?;
        let bytes = sync(copy.as_file())?;
        copy.persist_noclobber(file)
            .map_err(|error| match error.error.kind() {
                ErrorKind::AlreadyExists => file_exists(file),
                _ => StorageError::unavailable(error.error),
            })?;
        sync_folder_of(file)?;
        Ok(BackupContents { bytes, ..contents })
    }

    async fn mark_and_check(&self) -> Result<BackupContents> {
        self.backups().set_copy().await?;
        // They run on the original.
        self.instances().delete_all().await?;
        self.check_backup().await?;
        let mut tx = self.db.begin().await?;
        let (users, connections) = access::count_users_and_connections(&mut tx).await?;
        tx.rollback().await;
        Ok(BackupContents {
            bytes: 0,
            users,
            connections,
            secrets: self.secrets().sealed().await?,
        })
    }

    /// Checks that the file is intact, and a database that this version of Bellbird can use,
    /// perhaps after a migration.
    async fn check_backup(&self) -> Result<()> {
        let Db::Sqlite(db) = &self.db else {
            return Ok(());
        };
        if !db.is_intact().await? {
            return Err(StorageError::Backup(
                "the file is damaged: SQLite's integrity check failed".to_owned(),
            ));
        }
        match self.ping().await {
            Err(StorageError::Schema(_)) => {
                return Err(StorageError::Backup(
                    "the file is not a database of Bellbird".to_owned(),
                ));
            }
            other => other?,
        }
        self.pending_migrations().await.map(|_| ())
    }

    async fn open_file(path: &Path, sealer: Sealer) -> Result<Self> {
        Ok(Self::new(
            Db::Sqlite(
                Sqlite::open(path.to_owned(), MissingFile::Fail)
                    .await?
                    .into(),
            ),
            sealer,
            None,
        ))
    }
}

/// A checked copy of a backup, beside the database that it is to replace.
#[derive(Debug)]
pub struct StagedBackup {
    /// Before the file: closed before that is deleted, so that SQLite also deletes its other files.
    storage: Storage,
    copy: NamedTempFile,
    lock: ServiceLock,
    alone: OpenLock,
}

impl StagedBackup {
    /// Copies a backup, checks the copy and applies pending migrations to it. The lock names the
    /// database, which no other process may have open from now on.
    ///
    /// # Errors
    /// [`StorageError::Backup`] or [`StorageError::Schema`] if the file cannot be used: the message
    /// says why.
    pub async fn new(file: &Path, lock: ServiceLock, sealer: Sealer) -> Result<Self> {
        check_header(file, lock.database())?;
        let copy = new_file_beside(lock.database())?;
        copy_content(file, copy.as_file()).map_err(StorageError::unavailable)?;
        let opened = async {
            let storage = Storage::open_file(copy.path(), sealer).await?;
            storage.check_backup().await?;
            storage.migrate().await?;
            Ok::<_, StorageError>(storage)
        };
        let storage = opened.await.map_err(|error| or_damaged(error, file))?;
        let alone = OpenLock::exclude_others(lock.database())?;
        Ok(Self {
            storage,
            copy,
            lock,
            alone,
        })
    }

    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Replaces the database, and keeps the replaced one beside it, under the returned path.
    ///
    /// # Errors
    /// [`StorageError::Backup`] if another process has the present database open.
    pub async fn put_in_place(self, now: Timestamp) -> Result<Option<PathBuf>> {
        let Self {
            storage,
            copy,
            mut lock,
            mut alone,
        } = self;
        let database = lock.database().to_owned();
        let has_database = database.exists();
        if has_database {
            // The file then has all of its rows without its log. One that SQLite cannot read is set
            // aside as it is.
            if let Err(error @ StorageError::Backup(_)) = leave_wal(database.clone()).await {
                return Err(error);
            }
        }
        storage.close().await;
        leave_wal(copy.path().to_owned()).await?;
        sync(copy.as_file())?;
        if has_database {
            // A failure from here on may leave none, and the locks show that there was one.
            lock.keep();
            alone.keep();
        }
        let replaced = set_aside(&database, now)?;
        match_database(copy.as_file(), &database);
        // The rename replaces the database in one step.
        copy.persist(&database)
            .map_err(|error| StorageError::unavailable(error.error))?;
        lock.keep();
        alone.keep();
        sync_folder_of(&database)?;
        Ok(replaced)
    }
}

/// Gives the database a second name. Its logs move along: SQLite would apply them to any file that
/// gets its name. They are left if SQLite cannot read them, or if the database was lost. Returns
/// None if there was no database.
fn set_aside(database: &Path, now: Timestamp) -> Result<Option<PathBuf>> {
    // Milliseconds, so that two restores of a second have names of their own.
    let aside = with_suffix(
        database,
        &format!(".replaced-{}", now.strftime("%Y%m%dT%H%M%S%.3fZ")),
    );
    if aside.exists() {
        return Err(file_exists(&aside));
    }
    for end in ["-wal", "-shm", "-journal"] {
        match fs::rename(with_suffix(database, end), with_suffix(&aside, end)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(StorageError::unavailable(error));
            }
            _ => {}
        }
    }
    if !database.exists() {
        return Ok(None);
    }
    // Some file systems have no hard links. Then there is no database for a moment.
    if fs::hard_link(database, &aside).is_err() {
        fs::rename(database, &aside).map_err(StorageError::unavailable)?;
    }
    Ok(Some(aside))
}

/// Rejects what is not a finished copy of another database.
fn check_header(file: &Path, database: &Path) -> Result<()> {
    let reject = |why: &str| Err(StorageError::Backup(format!("{}: {why}", file.display())));
    let real = match file.canonicalize() {
        Ok(real) if real.is_file() => real,
        Ok(_) => return reject("not a file"),
        Err(error) => return reject(&error.to_string()),
    };
    if real == database {
        return reject("this is the database itself, not a backup of it");
    }
    if fs::metadata(with_suffix(&real, "-wal")).is_ok_and(|wal| wal.len() > 0) {
        return reject(
            "a write-ahead log (-wal) is beside it, so it is not a finished backup. Make one with `bellbird backup`",
        );
    }
    let mut header = Vec::new();
    let read = File::open(&real).and_then(|file| file.take(16).read_to_end(&mut header));
    match read {
        Ok(_) if header == SQLITE_HEADER => Ok(()),
        Ok(_) => reject("not a SQLite database"),
        Err(error) => reject(&error.to_string()),
    }
}

/// SQLite reports a file that was cut off as an error, before its integrity check.
fn or_damaged(error: StorageError, file: &Path) -> StorageError {
    let code = match &error {
        StorageError::Unavailable(source) => source
            .downcast_ref::<rusqlite::Error>()
            .and_then(rusqlite::Error::sqlite_error_code),
        _ => None,
    };
    match code {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StorageError::Backup(
            format!("{} is damaged: restore another backup", file.display()),
        ),
        _ => error,
    }
}

/// An empty file with mode 0600 in the folder of `target`. Dropping it deletes it. Drop it when
/// SQLite has closed it: closing any handle of a file drops SQLite's locks.
fn new_file_beside(target: &Path) -> Result<NamedTempFile> {
    let folder = folder_of(target).canonicalize();
    let [begin, end] = PARTIAL;
    let file =
        folder.and_then(|folder| Builder::new().prefix(begin).suffix(end).tempfile_in(folder));
    file.map_err(|error| {
        let folder = folder_of(target).display();
        // The file has a random name, which says nothing to anybody.
        let reason = match error.kind() {
            ErrorKind::NotFound => "it does not exist".to_owned(),
            other => other.to_string(),
        };
        StorageError::Backup(format!(
            "could not create a file in the folder {folder}: {reason}"
        ))
    })
}

/// Deletes the copies in a folder that were cut off, as by a power failure. One that cannot be
/// deleted is no reason to make no backup.
pub fn delete_partial_copies(folder: &Path, now: Timestamp) {
    let now = SystemTime::from(now);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_partial)
            && let Ok(written) = entry.metadata().and_then(|file| file.modified())
            && let Ok(age) = now.duration_since(written)
            && age > CUT_OFF_AFTER
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_partial(name: &str) -> bool {
    let [begin, end] = PARTIAL;
    let rest = name
        .strip_prefix(begin)
        .and_then(|rest| rest.split_once(end));
    rest.is_some_and(|(random, beside)| {
        random.len() == 6
            && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && BESIDE_PARTIAL.contains(&beside)
    })
}

fn file_exists(file: &Path) -> StorageError {
    StorageError::Backup(format!(
        "{} exists already, and nothing is overwritten: choose another name",
        file.display()
    ))
}

/// Copies the bytes only. `fs::copy` would give the copy the mode of the file. Not to a name, which
/// could be that of another file by now.
fn copy_content(from: &Path, mut to: &File) -> io::Result<()> {
    io::copy(&mut File::open(from)?, &mut to).map(|_| ())
}

/// Writes a file or folder through to the disk. Returns its size.
fn sync(file: &File) -> Result<u64> {
    let synced = file.sync_all().and_then(|()| Ok(file.metadata()?.len()));
    synced.map_err(StorageError::unavailable)
}

fn sync_folder_of(file: &Path) -> Result<u64> {
    sync(&File::open(folder_of(file)).map_err(StorageError::unavailable)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn link_in_the_place_of_a_copy_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [backup, victim] = ["backup.db", "victim.conf"].map(|name| folder.path().join(name));
        fs::write(&backup, "rows").unwrap();
        fs::write(&victim, "").unwrap();
        let copy = new_file_beside(&backup).unwrap();
        fs::remove_file(copy.path()).unwrap();
        std::os::unix::fs::symlink(&victim, copy.path()).unwrap();
        copy_content(&backup, copy.as_file()).unwrap();
        assert_eq!(sync(copy.as_file()).unwrap(), 4);
        assert!(
            Storage::open_file(copy.path(), Sealer::random())
                .await
                .is_err()
        );
        assert!(leave_wal(copy.path().to_owned()).await.is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"");
    }
}
