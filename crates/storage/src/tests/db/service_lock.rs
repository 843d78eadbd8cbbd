//! One service at a time runs on a SQLite file.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::tests::support::{assert_contains, assert_fails};
use crate::{Sealer, ServiceLock, Storage};

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
        assert_fails!(ServiceLock::acquire(url), InUse(_));
    }
    assert!(ServiceLock::rescue(&url).is_none());
    // Now whoever holds it alone has the rows.
    fs::remove_file(&file).unwrap();
    assert_fails!(ServiceLock::acquire(&url), File(_));
    assert!(ServiceLock::rescue(&url).is_some());
    drop(lock);
    assert!(ServiceLock::rescue(&url).is_none());
    ServiceLock::acquire(&url).unwrap();
    let mode = fs::metadata(folder.path().join("b.db-lock"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn lock_of_a_failed_restore_is_not_that_of_a_lost_database() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/b.db", folder.path().display());
    ServiceLock::acquire_for_restore(&url).unwrap();
    assert!(!ServiceLock::database_is_gone(&url));
    ServiceLock::acquire(&url).unwrap();
    ServiceLock::acquire_for_restore(&url).unwrap();
    assert!(ServiceLock::database_is_gone(&url), "of a service");
}

#[test]
fn link_in_the_place_of_a_lock_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (url, outside) = (
        format!("sqlite:{}/b.db", folder.path().display()),
        folder.path().join("outside"),
    );
    for end in ["-lock", "-open"] {
        symlink(&outside, folder.path().join(format!("b.db{end}"))).unwrap();
    }
    let opened = tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(Storage::open(&url, Sealer::random()));
    for (error, end) in [
        (ServiceLock::acquire(&url).err(), "-lock"),
        (opened.err(), "-open"),
    ] {
        let text = error.expect("a link was followed").to_string();
        assert_contains!(
            text,
            &format!("b.db{end} is a symbolic link in the place of a lock: delete it")
        );
    }
    assert!(!outside.exists() && !folder.path().join("b.db").exists());
}

#[test]
fn only_sqlite_needs_a_lock() {
    assert!(
        ServiceLock::acquire("postgres://localhost/bellbird")
            .unwrap()
            .is_none()
    );
}
