//! Accepted database URLs, and errors that do not repeat a URL.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::db::{Db, Sql};
use crate::tests::support::on_sqlite;
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

/// 0.0.0.0 reaches this machine and is no loopback address.
#[tokio::test]
async fn server_elsewhere_gets_nothing_in_plain_text() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://me:hunter2@0.0.0.0:{}/db", listener.local_addr().unwrap().port());
    let received = async || {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 8];
        stream.read_exact(&mut request).await.unwrap();
        assert_eq!(request[4..], [4, 210, 22, 47], "SSLRequest");
        stream.write_all(b"N").await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.map(|_| rest).unwrap_or_default()
    };
    // A password may look like a parameter.
    for url in [&url, &url.replace("hunter2", "hunter2sslmode=disable")] {
        let (error, rest) = tokio::join!(open_error(url), received());
        assert!(matches!(error, StorageError::Unavailable(_)), "{error:?}");
        assert_eq!(rest, b"", "a startup message in plain text");
    }
}

#[tokio::test]
async fn other_file_format_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "this is no database, and it is long enough to be sure of it".repeat(100)).unwrap();
    let error = open_error(&format!("sqlite:{}", path.display())).await;
    assert!(matches!(error, StorageError::Unavailable(_)), "{error:?}");
}

/// `fullfsync` makes macOS write through the disk's own cache. Other systems ignore it.
#[test]
fn sqlite_commits_are_on_disk() {
    on_sqlite(async |db| {
        let Db::Sqlite(sqlite) = &db.db else { panic!("SQLite") };
        let tx = sqlite.begin("BEGIN IMMEDIATE").await.unwrap();
        for (pragma, value) in [("PRAGMA synchronous", 2), ("PRAGMA fullfsync", 1), ("PRAGMA checkpoint_fullfsync", 1)]
        {
            assert_eq!(tx.all(Sql::new("PRAGMA", pragma), &[], |row| row.int(0)).unwrap(), [value], "{pragma}");
        }
    });
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
