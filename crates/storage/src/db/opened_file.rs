//! The file of a SQLite database that this process has open: whether it is still the one at its
//! path, and whether its disk has space.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use crate::db::file_user::folder_of;
use crate::error::{Result, StorageError};

/// With less free space than this, the next sync of a large connection may fail to write.
const FREE_BYTES_MIN: u64 = 16 * MEBIBYTE;
const MEBIBYTE: u64 = 1024 * 1024;
/// What to do about a process whose database was deleted or replaced.
pub(crate) const RESCUE: &str =
    "so do not stop it before you have followed docs/alerts.md#when-the-database-file-is-gone";

pub(crate) struct OpenedFile {
    path: PathBuf,
    id: (u64, u64),
}

impl OpenedFile {
    pub(crate) fn of(path: PathBuf) -> Result<Self> {
        let id = id(&fs::metadata(&path).map_err(StorageError::unavailable)?);
        Ok(Self { path, id })
    }

    /// Bytes that are free on its disk.
    pub(crate) fn free_bytes(&self) -> Result<u64> {
        free_bytes(folder_of(&self.path))
    }

    /// Fails if what is written is lost, or will fail soon. Takes microseconds.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_for(FREE_BYTES_MIN)
    }

    fn check_for(&self, free_min: u64) -> Result<()> {
        let path = self.path.display();
        match fs::metadata(&self.path) {
            Ok(found) if id(&found) == self.id => {}
            Ok(_) => {
                let text = format!(
                    "another file has replaced the SQLite database {path} while it was open: its rows are only in this \
                     process, {RESCUE}"
                );
                return Err(StorageError::File(text));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(StorageError::File(format!(
                    "the SQLite database {path} was deleted: its rows are only in this process, {RESCUE}"
                )));
            }
            Err(error) => return Err(StorageError::unavailable(error)),
        }
        if self.free_bytes()? < free_min {
            // Without the bytes that are free: each change of the text is logged.
            let text = format!(
                "the disk of the SQLite database {path} is full (less than {} MiB are free): make space",
                free_min / MEBIBYTE
            );
            return Err(StorageError::File(text));
        }
        Ok(())
    }
}

fn id(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn free_bytes(folder: &Path) -> Result<u64> {
    let disk = statvfs(folder).map_err(StorageError::unavailable)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.db");
        fs::write(&path, "").unwrap();
        let file = OpenedFile::of(path).unwrap();
        file.check_for(0).unwrap();
        let error = file.check_for(u64::MAX).unwrap_err().to_string();
        assert!(
            error.contains("b.db is full (less than ")
                && error.ends_with(" MiB are free): make space"),
            "{error}"
        );
    }

    #[test]
    fn deleted_or_replaced_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.db");
        fs::write(&path, "").unwrap();
        let file = OpenedFile::of(path.clone()).unwrap();
        file.check().unwrap();
        fs::rename(&path, folder.path().join("moved.db")).unwrap();
        let error = file.check().unwrap_err().to_string();
        assert!(
            error.contains("b.db was deleted: its rows are only in this process"),
            "{error}"
        );
        fs::write(&path, "").unwrap();
        let error = file.check().unwrap_err().to_string();
        assert!(
            error.starts_with("another file has replaced the SQLite database "),
            "{error}"
        );
    }
}
