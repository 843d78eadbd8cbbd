//! One service at a time runs on a SQLite file.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::{ServiceLock, StorageError};

#[test]
fn second_lock_is_rejected_until_the_first_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("b.db"), folder.path().join("link.db"));
    fs::write(&file, "").unwrap();
    symlink(&file, &link).unwrap();
    let url = format!("sqlite:{}", file.display());
    let lock = ServiceLock::acquire(&url).unwrap();
    assert!(lock.is_some());
    // The same file by another name.
    for url in [&url, &format!("sqlite://{}", link.display())] {
        let error = ServiceLock::acquire(url).unwrap_err();
        assert!(matches!(error, StorageError::InUse(_)), "{error}");
    }
    drop(lock);
    ServiceLock::acquire(&url).unwrap();
    let mode = fs::metadata(folder.path().join("b.db-lock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn only_sqlite_needs_a_lock() {
    assert!(ServiceLock::acquire("postgres://localhost/bellbird").unwrap().is_none());
}
