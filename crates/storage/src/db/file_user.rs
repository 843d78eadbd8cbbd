//! Names the files beside a database, and gives them to its user, also those that a command of root makes.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::{Path, PathBuf};

/// Gives a file to the user and group of the database, or of the folder if there is no database. Only root can do that.
/// Otherwise the file keeps its user, who could also create it here. Follows no symbolic link: the user of the folder
/// could point one anywhere.
pub(crate) fn match_database(file: &Path, database: &Path) {
    let Ok(model) = fs::metadata(database).or_else(|_| fs::metadata(folder_of(database))) else { return };
    let is_other = |own: fs::Metadata| (own.uid(), own.gid()) != (model.uid(), model.gid());
    if fs::symlink_metadata(file).is_ok_and(is_other) {
        let _ = lchown(file, Some(model.uid()), Some(model.gid()));
    }
}

pub(crate) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(suffix);
    PathBuf::from(path)
}
