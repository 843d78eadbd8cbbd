//! Makes backups of the SQLite database, as `bellbird backup` and the service do.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use bellbird_domain::Actor;
use bellbird_storage::{AuditAction, BackupContents, Storage, StorageError, delete_partial_copies};
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};

/// The name of a backup in a folder. With milliseconds, so that two of a second have names of their
/// own.
const NAME: &str = "bellbird-%Y%m%dT%H%M%S%.3fZ.db";
/// The service makes a backup when the last one, of whoever made it, is this old.
const DUE_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// A folder in which the newest backups stay.
#[derive(Debug, Clone)]
pub struct BackupFolder {
    pub path: PathBuf,
    /// How many stay, with the new one.
    pub keep: usize,
}

/// A backup that was made and recorded.
#[derive(Debug)]
pub struct MadeBackup {
    pub file: PathBuf,
    pub contents: BackupContents,
    /// The names of the older ones that were deleted.
    pub deleted: Vec<String>,
}

impl BackupFolder {
    /// The backup that is made there at this time.
    pub fn file(&self, now: Timestamp) -> PathBuf {
        self.path.join(now.strftime(NAME).to_string())
    }

    /// Makes one if a day has passed since the last one, or else since the database was created: as
    /// `bellbird_backup_age_seconds` counts. Also if it was created more than a day from now, under
    /// a clock that was ahead: else there would be none for as long.
    pub async fn back_up_if_due(
        &self,
        storage: &Storage,
        now: Timestamp,
    ) -> Result<Option<MadeBackup>, StorageError> {
        let since = storage.audit().unsaved_since(now).await?;
        if since.is_some_and(|since| now.duration_since(since).abs() < DUE_AFTER) {
            return Ok(None);
        }
        self.back_up(storage, Actor::settings(), now)
            .await
            .map(Some)
    }

    /// Makes the folder if needed, and deletes the oldest backups in it.
    pub async fn back_up(
        &self,
        storage: &Storage,
        by: Actor,
        now: Timestamp,
    ) -> Result<MadeBackup, StorageError> {
        // A container has no other program that could make it.
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path);
        made.map_err(|error| {
            let folder = self.path.display();
            StorageError::Backup(format!("could not make the folder {folder}: {error}"))
        })?;
        delete_partial_copies(&self.path, now);
        let backup = back_up(storage, self.file(now), by, now).await?;
        let deleted = delete_older(&backup.file, self.keep).map_err(|error| {
            let file = backup.file.display();
            StorageError::Backup(format!(
                "{file} is complete, but an older one could not be deleted: {error}"
            ))
        })?;
        Ok(MadeBackup { deleted, ..backup })
    }
}

/// Makes a backup, which is a new file, and records it.
pub async fn back_up(
    storage: &Storage,
    file: PathBuf,
    by: Actor,
    now: Timestamp,
) -> Result<MadeBackup, StorageError> {
    let contents = storage.back_up(&file).await?;
    record(storage, by, now).await?;
    Ok(MadeBackup {
        file,
        contents,
        deleted: Vec::new(),
    })
}

/// The start of `bellbird_backup_age_seconds`.
pub async fn record(storage: &Storage, by: Actor, now: Timestamp) -> Result<(), StorageError> {
    let mut change = storage.begin_change(by, now).await?;
    let action = AuditAction::of_installation("database.backup");
    change.record(&action).await?;
    change.commit().await
}

/// Deletes all but the newest backups that were made in the folder of `new`, which stays. Another
/// file stays too. Their names sort by time. Names later than that of `new` are from a wrong clock,
/// then or now, and go first, again the earliest of them before the others.
fn delete_older(new: &Path, keep: usize) -> io::Result<Vec<String>> {
    let (Some(folder), Some(new)) = (new.parent(), new.file_name().and_then(OsStr::to_str)) else {
        return Ok(Vec::new());
    };
    let mut own = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file()
            && let Ok(name) = entry.file_name().into_string()
            && name != new
            && is_own(&name)
        {
            own.push(name);
        }
    }
    own.sort_by_cached_key(|name| (name.as_str() < new, name.clone()));
    own.truncate((own.len() + 1).saturating_sub(keep));
    for name in &own {
        fs::remove_file(folder.join(name))?;
    }
    Ok(own)
}

/// Whether [`NAME`] makes this name.
fn is_own(name: &str) -> bool {
    DateTime::strptime(NAME, name).is_ok_and(|time| time.strftime(NAME).to_string() == name)
}

#[cfg(test)]
mod tests {
    use bellbird_storage::Sealer;

    use super::*;

    #[tokio::test]
    async fn backup_is_due_a_day_after_the_last_one_or_the_creation() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("own.db").display());
        let storage = Storage::open(&url, Sealer::random()).await.unwrap();
        storage.migrate().await.unwrap();
        let audit = storage.audit();
        let created = audit.unsaved_since(Timestamp::MAX).await.unwrap().unwrap();
        let after = |hours| created + SignedDuration::from_hours(hours);
        let backups = BackupFolder {
            path: folder.path().join("new/backups"),
            keep: 1,
        };
        let mut made = Vec::new();
        for hours in [0, 23, 24, 25, 47, 48, 50] {
            let backup = backups.back_up_if_due(&storage, after(hours)).await;
            made.extend(backup.unwrap().map(|backup| (hours, backup)));
        }
        let hours: Vec<_> = made.iter().map(|(hours, _)| *hours).collect();
        assert_eq!(hours, [24, 48]);
        assert!(!made[0].1.file.exists() && made[1].1.file.exists());
        assert_eq!(made[1].1.deleted.len(), 1);
        // A backup of another program counts too.
        let by = Actor::command("root");
        record(&storage, by, after(71)).await.unwrap();
        let backup = backups.back_up_if_due(&storage, after(72)).await;
        assert!(backup.unwrap().is_none());
        let backup = backups.back_up_if_due(&storage, after(-48)).await;
        assert!(backup.unwrap().is_some(), "the clock was ahead");
        storage.close().await;
    }

    #[test]
    fn only_partial_copies_that_are_a_day_old_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let partial = [".bellbird-aB3dE6.partial", ".bellbird-aB3dE6.partial-wal"];
        let others = [
            ".bellbird-.partial",
            ".bellbird-aB3dE6.partial.db",
            ".bellbird-my.notes.partial",
            "bellbird-20260101T000000.000Z.db",
        ];
        for name in partial.iter().chain(&others) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let left = |hours| {
            let now = Timestamp::now() + SignedDuration::from_hours(hours);
            delete_partial_copies(folder.path(), now);
            fs::read_dir(folder.path()).unwrap().count()
        };
        assert_eq!([left(-48), left(23), left(25)], [6, 6, 4]);
        assert!(others.iter().all(|name| folder.path().join(name).exists()));
        delete_partial_copies(&folder.path().join("none"), Timestamp::now());
    }
}
