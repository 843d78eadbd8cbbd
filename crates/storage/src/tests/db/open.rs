//! Accepted database URLs, and errors that do not repeat a URL.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::db::{Db, Sql};
use crate::tests::support::{assert_contains, assert_fails, on_postgres, on_sqlite};
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
        "postgres://me:x@hunter2@host/db",
        "postgres://me:x@hunter2/y@host/db",
    ] {
        let error = open_error(url).await;
        assert!(matches!(error, StorageError::BadUrl(_)), "{url}: {error:?}");
    }
}

/// The text of [`StorageError::Open`], for the operator.
async fn open_text(url: &str) -> String {
    match open_error(url).await {
        StorageError::Open(text) => text,
        other => panic!("{url}: {other:?}"),
    }
}

#[tokio::test]
async fn unreachable_server_is_named() {
    // Port 1 of this machine rejects connections at once, with and without TLS.
    for parameters in [
        "",
        "?sslmode=disable",
        "?sslmode=prefer",
        "?sslmode=require",
        "?sslmode=verify-full",
    ] {
        let text = open_text(&format!("postgres://me:hunter2@127.0.0.1:1/db{parameters}")).await;
        let expected = "could not open the PostgreSQL database db at 127.0.0.1, port 1 (connection refused): start \
            the server, or correct database.url";
        assert_eq!(text, expected, "{parameters}");
    }
    let text = open_text("postgres://me:x?hunter2@127.0.0.1:1/db").await;
    assert_contains!(text, "at 127.0.0.1, port 1 (connection refused)");
    let text = open_text("postgres://me:hunter2@no-such-host.invalid/db").await;
    assert_contains!(
        text,
        "at no-such-host.invalid, port 5432 (",
        "check the host name"
    );
    let text = open_text("postgres://me:hunter2@%2Fno%2Fsuch%2Ffolder/db").await;
    assert_contains!(
        text,
        "at /no/such/folder, port 5432 (no server has this socket)"
    );
}

/// The test server wants no password, so an unknown role stands for a wrong one.
#[test]
fn postgres_that_rejects_is_quoted() {
    on_postgres(async |db| {
        let url = db.url.as_str();
        let (server, _) = url.rsplit_once('/').unwrap();
        let text = open_text(&format!("{server}/no_such_database")).await;
        assert_contains!(
            text,
            "database \"no_such_database\" does not exist): create the database with"
        );
        let text = open_text(&url.replace("bellbird@", "stranger:hunter2@")).await;
        assert_contains!(
            text,
            "role \"stranger\" does not exist): correct user and password, or correct"
        );
        let (_, name) = url.rsplit_once('/').unwrap();
        let role = format!("full_{}", name.trim_end_matches('?'));
        db.raw(&format!("DROP ROLE IF EXISTS {role}")).await;
        db.raw(&format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 0"))
            .await;
        let text = open_text(&url.replace("bellbird@", &format!("{role}@"))).await;
        db.raw(&format!("DROP ROLE {role}")).await;
        assert_contains!(
            text,
            "too many connections for role",
            "lower database.pool_size or raise max_connections"
        );
        let text = open_text(&format!("{}?sslmode=require", url.trim_end_matches('?'))).await;
        assert_contains!(
            text,
            "server does not support TLS): enable TLS at the server, allow plain text"
        );
    });
}

#[tokio::test]
async fn unusable_file_is_named() {
    let text = open_text("sqlite:/no/such/folder/b.db").await;
    assert_eq!(
        text,
        "could not open the SQLite database /no/such/folder/b.db (the folder /no/such/folder does not exist): create \
         the folder, or correct database.url"
    );
    let folder = tempfile::tempdir().unwrap();
    let text = open_text(&format!("sqlite:{}", folder.path().display())).await;
    assert_contains!(text, "(it is a folder): name a file in it");
    let text = open_text(&format!(
        "sqlite:{}/a/../a/b.db",
        std::path::Path::new("/dev/null").display()
    ))
    .await;
    assert_contains!(text, "does not exist): create the folder");
    let path = folder.path().join("notes.txt");
    let notes = "this is no database, and it is long enough to be sure of it";
    std::fs::write(&path, notes.repeat(100)).unwrap();
    let text = open_text(&format!("sqlite:{}", path.display())).await;
    assert_contains!(
        text,
        "notes.txt (the file is not a SQLite database): name another file"
    );
}

#[tokio::test]
async fn existing_file_is_opened_and_a_missing_one_is_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.db");
    let url = format!("sqlite:{}", path.display());
    let open = async || Storage::open_existing(&url, Sealer::random(), Default::default()).await;
    let error = open().await.expect_err("no file").to_string();
    let expected = format!("there is no SQLite database {}", path.display());
    assert_eq!(error, expected);
    let mut files = folder.path().read_dir().unwrap();
    assert!(files.next().is_none(), "a file was created");
    let storage = Storage::open(&url, Sealer::random()).await.unwrap();
    storage.close().await;
    open().await.expect("a file").close().await;
}

#[test]
fn location_names_everything_but_the_user() {
    for (url, location) in [
        (
            "postgres://me:hunter2@db.example.com/bellbird",
            "PostgreSQL database bellbird at db.example.com, port 5432",
        ),
        (
            "postgres://me:hunter2@a:1,b:2/x?sslmode=require",
            "PostgreSQL database x at a, port 1 or b, port 2",
        ),
        (
            "postgresql://me@host?hostaddr=10.0.0.1",
            "PostgreSQL database me at 10.0.0.1, port 5432",
        ),
        ("sqlite:///var/lib/b.db", "SQLite database /var/lib/b.db"),
        ("postgres://me:hunter2@host:port/db", "database"),
    ] {
        assert_eq!(Storage::location(url), location, "{url}");
    }
    let here = std::env::current_dir().unwrap().join("b.db");
    let expected = format!("SQLite database {}", here.display());
    assert_eq!(Storage::location("sqlite:b.db"), expected);
}

/// 0.0.0.0 reaches this machine and is no loopback address.
#[tokio::test]
async fn server_elsewhere_gets_nothing_in_plain_text() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "postgres://me:hunter2@0.0.0.0:{}/db",
        listener.local_addr().unwrap().port()
    );
    let received = async || {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 8];
        stream.read_exact(&mut request).await.unwrap();
        assert_eq!(request[4..], [4, 210, 22, 47], "SSLRequest");
        stream.write_all(b"N").await.unwrap();
        let mut rest = Vec::new();
        stream
            .read_to_end(&mut rest)
            .await
            .map(|_| rest)
            .unwrap_or_default()
    };
    // A password may look like a parameter.
    for url in [&url, &url.replace("hunter2", "hunter2sslmode=disable")] {
        let (error, rest) = tokio::join!(open_error(url), received());
        assert!(
            matches!(&error, StorageError::Open(text) if text.contains("does not support TLS")),
            "{error:?}"
        );
        assert_eq!(rest, b"", "a startup message in plain text");
    }
}

/// `fullfsync` makes macOS write through the disk's own cache. Other systems ignore it.
#[test]
fn sqlite_commits_are_on_disk() {
    on_sqlite(async |db| {
        let Db::Sqlite(sqlite) = &db.db else {
            panic!("SQLite")
        };
        let tx = sqlite.begin("BEGIN IMMEDIATE").await.unwrap();
        for (pragma, value) in [
            ("PRAGMA synchronous", 2),
            ("PRAGMA fullfsync", 1),
            ("PRAGMA checkpoint_fullfsync", 1),
        ] {
            let found = tx.all(Sql::new("PRAGMA", pragma), &[], |row| row.get::<i64>(0));
            assert_eq!(found.unwrap(), [value], "{pragma}");
        }
    });
}

#[tokio::test]
async fn new_file_is_private() {
    let folder = tempfile::tempdir().unwrap();
    for (url, name) in [("sqlite:", "a b?mode=ro%20#.db"), ("sqlite://", "b.db")] {
        let path = folder.path().join(name);
        let storage = Storage::open(&format!("{url}{}", path.display()), Sealer::random())
            .await
            .unwrap();
        assert_eq!(
            (storage.kind(), format!("{storage:?}").as_str()),
            ("sqlite", "Storage(\"sqlite\")")
        );
        assert_fails!(storage.ping().await, Schema(_));
        storage.migrate().await.unwrap();
        storage.ping().await.unwrap();
        #[cfg(unix)]
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let mode = std::os::unix::fs::PermissionsExt::mode(
                &file.unwrap().metadata().unwrap().permissions(),
            );
            assert_eq!(mode & 0o777, 0o600);
        }
        storage.close().await;
        assert!(path.is_file());
    }
}
