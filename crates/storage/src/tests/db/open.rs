//! Accepted database URLs, and errors that do not repeat a URL.

use crate::{Sealer, Storage, StorageError};

async fn open_error(url: &str) -> StorageError {
    let error = Storage::open(url, Sealer::random()).await.expect_err(url);
    let text = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
    assert!(!text.contains("hunter2"), "{text}");
    error
}

#[tokio::test]
async fn url_errors_do_not_show_passwords() {
    for url in [
        "",
        "bellbird.db",
        "mysql://me:hunter2@host/db",
        "POSTGRES://me:hunter2@host/db",
        "me:hunter2@host",
        "hunter2://x",
        "sqlite:",
        "sqlite::memory:",
        "postgres://me:hunter2@host:port/db",
        "postgres://me:x@host/db?sslmode=hunter2",
        "postgres://me:x@host/db?hunter2=1",
        "postgres:///db?password=hunter2",
    ] {
        let error = open_error(url).await;
        assert!(matches!(error, StorageError::BadUrl(_)), "{url}: {error:?}");
    }
}

#[tokio::test]
async fn unreachable_server_is_unavailable() {
    // Port 1 of this machine rejects connections at once, with and without TLS.
    for parameters in ["", "?sslmode=disable", "?sslmode=prefer", "?sslmode=require", "?sslmode=verify-full"] {
        let error = open_error(&format!("postgres://me:hunter2@127.0.0.1:1/db{parameters}")).await;
        assert!(matches!(error, StorageError::Unavailable(_)), "{parameters}: {error:?}");
    }
    let error = open_error("postgres://me:x?hunter2@127.0.0.1:1/db").await;
    assert!(matches!(error, StorageError::Unavailable(_)), "{error:?}");
    let error = open_error("sqlite:/no/such/folder/hunter2.db").await;
    assert!(matches!(error, StorageError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn other_file_format_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "this is no database, and it is long enough to be sure of it".repeat(100)).unwrap();
    let error = open_error(&format!("sqlite:{}", path.display())).await;
    assert!(matches!(error, StorageError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn new_file_is_private() {
    let folder = tempfile::tempdir().unwrap();
    for (url, name) in [("sqlite:", "a b?mode=ro%20#.db"), ("sqlite://", "b.db")] {
        let path = folder.path().join(name);
        let storage = Storage::open(&format!("{url}{}", path.display()), Sealer::random()).await.unwrap();
        assert_eq!((storage.kind(), format!("{storage:?}").as_str()), ("sqlite", "Storage(\"sqlite\")"));
        assert!(matches!(storage.ping().await, Err(StorageError::Schema(_))));
        storage.migrate().await.unwrap();
        storage.ping().await.unwrap();
        #[cfg(unix)]
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let mode = std::os::unix::fs::PermissionsExt::mode(&file.unwrap().metadata().unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
        storage.close().await;
        assert!(path.is_file());
    }
}
