//! Names the files beside a database, and gives them to its user, also those that a command of root
//! makes.
//!
//! The user of the folder could point a symbolic link anywhere, so nothing that root writes there
//! goes through one of theirs: names are resolved once, and then opened without following links.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use crate::error::{Result, StorageError};

/// The path of the database, through symbolic links, so that all of its names have the same locks.
/// If the file itself is a link, this user or root must have made it.
pub(crate) fn resolve(database: &Path) -> Result<PathBuf> {
    resolve_for(rustix::process::geteuid().as_raw(), database)
}

fn resolve_for(own_uid: u32, database: &Path) -> Result<PathBuf> {
    let Some(name) = database.file_name() else {
        return Ok(database.to_owned());
    };
    let file = folder_of(database)
        .canonicalize()
        .map_err(StorageError::unavailable)?
        .join(name);
    match fs::symlink_metadata(&file) {
        Ok(link) if link.is_symlink() => {
            if ![own_uid, 0].contains(&link.uid()) {
                return Err(link_error(
                    &file,
                    "of another user: put the file in its place",
                ));
            }
            file.canonicalize()
                .map_err(|_| link_error(&file, "to a file that does not exist: delete it"))
        }
        _ => Ok(file),
    }
}

pub(crate) fn link_error(file: &Path, whose: &str) -> StorageError {
    StorageError::Open(format!(
        "{} is a symbolic link {whose}, or correct database.url",
        file.display()
    ))
}

/// Gives a file to the user and group of the database, or of the folder if there is no database.
/// Only root can do that. Otherwise the file keeps its user, who could also create it here.
pub(crate) fn match_database(file: &File, database: &Path) {
    if let Ok(model) = fs::metadata(database).or_else(|_| fs::metadata(folder_of(database))) {
        give(file, &model);
    }
}

/// Gives a new database to the user and group of its folder, as [`match_database`] does.
pub(crate) fn match_folder(file: &File, database: &Path) {
    if let Ok(model) = fs::metadata(folder_of(database)) {
        give(file, &model);
    }
}

fn give(file: &File, model: &fs::Metadata) {
    let is_other = |own: fs::Metadata| (own.uid(), own.gid()) != (model.uid(), model.gid());
    if file.metadata().is_ok_and(is_other) {
        let _ = fchown(file, Some(model.uid()), Some(model.gid()));
    }
}

pub(crate) fn folder_of(file: &Path) -> &Path {
    file.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(suffix);
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn link_of_another_user_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (
            folder.path().join("victim.conf"),
            folder.path().join("b.db"),
        );
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        // Tests may run as root, whose links are followed.
        let _ = lchown(&link, Some(65_534), None);
        let uid = fs::symlink_metadata(&link).unwrap().uid();
        assert_eq!(
            resolve_for(uid, &link).unwrap(),
            file.canonicalize().unwrap()
        );
        let error = resolve_for(uid + 1, &link).unwrap_err().to_string();
        assert!(
            error.contains("b.db is a symbolic link of another user: put the file in its place"),
            "{error}"
        );
        fs::remove_file(&file).unwrap();
        let error = resolve_for(uid, &link).unwrap_err().to_string();
        assert!(
            error.contains("b.db is a symbolic link to a file that does not exist: delete it"),
            "{error}"
        );
    }
}
