//! Backups of SQLite, and what a restore cuts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bellbird_domain::{Actor, EndpointStatus, EventType};
use futures_util::FutureExt as _;

use crate::db::file_user::with_suffix;
use crate::tests::fixtures::{
    chunk, claimed_endpoint, connection_to_sync, console_session, endpoint, finish_sync_with,
    insert_setup_token, new_link, sealer_of, sign_in_link, start_session,
};
use crate::tests::support::{
    TestDb, assert_contains, assert_fails, at, both, key, new_account, on_postgres, on_sqlite,
    operator_key, setup_token,
};
use crate::{
    AccessCut, Identity, Sealer, ServiceLock, SetupTokenClaim, StagedBackup, Storage, StorageError,
    UserChange, in_tx,
};

fn operator() -> Actor {
    Actor::command("root")
}

fn beside(db: &TestDb, name: &str) -> PathBuf {
    db.path().with_file_name(name)
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

async fn stage(url: &str, file: &Path, sealer: &Sealer) -> Result<StagedBackup, StorageError> {
    let lock = ServiceLock::acquire_for_restore(url)?.unwrap();
    StagedBackup::new(file, lock, sealer.clone()).await
}

/// The reason for which a file is rejected.
fn reason<T>(result: Result<T, StorageError>) -> String {
    match result {
        Err(error @ (StorageError::Backup(_) | StorageError::Schema(_))) => error.to_string(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("accepted"),
    }
}

both! {
    async fn only_a_copy_awaits_a_decision_that_may_keep_access(db) {
        assert!(!db.backups().awaits_restore_decision().await.unwrap(), "new");
        let restore_id = async || db.texts("SELECT CAST(restore_id AS TEXT) FROM database_origin").await;
        assert_eq!(restore_id().await, ["0"]);
        let user = db.user("a@x").await.id;
        db.key(user, 1).await;
        in_tx!(db, links::insert(&new_link(user, "link", at(1_000)), at(0))).await.unwrap();
        db.backups().set_copy().await.unwrap();
        assert!(db.backups().awaits_restore_decision().await.unwrap());
        db.backups().keep_access(&operator(), at(1)).await.unwrap();
        assert!(db.keys().find_caller(&key(1), at(2)).await.unwrap().is_some());
        assert!(db.links().find("link").await.unwrap().is_some());
        assert_eq!(db.audit().list_before(None, None, 9).await.unwrap()[0].action, "database.keep_access");
        assert!(!db.reopen().await.backups().awaits_restore_decision().await.unwrap(), "decided");
        // So cursors of the history that was lost are known.
        assert_ne!(restore_id().await, ["0"], "another history");
        // Rows restored into a database that was migrated before.
        db.raw("INSERT INTO database_origin (origin) VALUES ('original')").await;
        assert!(db.backups().awaits_restore_decision().await.unwrap(), "a second row");
        db.raw("DELETE FROM database_origin").await;
        assert!(db.backups().awaits_restore_decision().await.unwrap(), "no row");
    }
}

#[test]
fn postgres_vacuum_is_no_restore() {
    on_postgres(async |db| {
        for decided in [false, true] {
            if decided {
                db.backups().keep_access(&operator(), at(0)).await.unwrap();
            }
            for vacuum in ["VACUUM FREEZE", "VACUUM FULL", "VACUUM (FULL, FREEZE)"] {
                db.raw(&format!("{vacuum} database_origin")).await;
                assert!(
                    !db.backups().awaits_restore_decision().await.unwrap(),
                    "{vacuum}"
                );
            }
        }
        // What pg_restore does: the same text in another row.
        db.raw("CREATE TABLE old AS SELECT * FROM database_origin; DELETE FROM database_origin")
            .await;
        db.raw("INSERT INTO database_origin SELECT * FROM old")
            .await;
        assert!(db.backups().awaits_restore_decision().await.unwrap());
    });
}

#[test]
fn backup_is_private_complete_and_new() {
    on_sqlite(async |db| {
        let file = beside(db, "backup.db");
        let user = db.user("a@x").await.id;
        db.connection(user, "c", &[new_account("acc", "Everyday")])
            .await;
        let contents = db.back_up(&file).await.unwrap();
        assert_eq!(
            (contents.users, contents.connections, contents.bytes),
            (1, 1, fs::metadata(&file).unwrap().len())
        );
        assert_eq!(
            contents.secrets.by_key.into_iter().collect::<Vec<_>>(),
            [("random".to_owned(), 1)]
        );
        assert_eq!(mode(&file), 0o600);
        // One file that needs no other, and nothing unfinished.
        let mut names: Vec<_> = fs::read_dir(file.parent().unwrap())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "backup.db",
                "test.db",
                "test.db-open",
                "test.db-shm",
                "test.db-wal"
            ]
        );
        let before = fs::read(&file).unwrap();
        assert!(reason(db.back_up(&file).await).contains("backup.db exists already"));
        assert_eq!(fs::read(&file).unwrap(), before);
        let error = reason(db.back_up(&beside(db, "no/folder.db")).await);
        assert_contains!(error, "could not create a file in");
    });
}

#[test]
fn backup_under_write_load_is_of_one_moment() {
    on_sqlite(async |db| {
        let user = db.user("a@x").await.id;
        // So large that the copy takes many writes.
        db.raw(
            "CREATE TABLE ballast AS WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
            SELECT randomblob(1000) AS bytes FROM n",
        )
        .await;
        let (mut written, mut beside_backup, mut backups) = (0, 0, 0);
        // The disk may hold up the writes beside one backup, but not beside all.
        while beside_backup <= 2 {
            assert!(backups < 20, "no backup lets three writes through");
            let file = beside(db, &format!("backup{backups}.db"));
            (beside_backup, backups) = (0, backups + 1);
            let mut backup = std::pin::pin!(db.back_up(&file));
            let contents = loop {
                let (consent, accounts) = (format!("c{written}"), [new_account("acc", "Everyday")]);
                let write = db.connection(user, &consent, &accounts);
                tokio::select! {
                    contents = &mut backup => break contents.unwrap(),
                    _ = write => (written, beside_backup) = (written + 1, beside_backup + 1),
                }
            };
            let url = format!("sqlite:{}", file.display());
            let copy = TestDb::attach(url, db.sealer.clone()).await;
            // One transaction writes a row of each.
            for table in [
                "connections",
                "accounts",
                "secrets WHERE purpose = 'credentials'",
                "jobs WHERE kind = 'refresh'",
            ] {
                assert_eq!(
                    copy.rows(table).await as u64,
                    contents.connections,
                    "{table}"
                );
            }
        }
    });
}

#[test]
fn cancelled_backup_leaves_no_file() {
    on_sqlite(async |db| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.db");
        assert!(db.back_up(&file).now_or_never().is_none(), "it has begun");
        // If it copies already, the thread that does deletes its file.
        while fs::read_dir(folder.path()).unwrap().next().is_some() {
            tokio::task::yield_now().await;
        }
    });
}

#[tokio::test]
async fn restore_keeps_others_out() {
    let folder = tempfile::tempdir().unwrap();
    let (url, file, sealer) = closed(folder.path()).await;
    let [lock, open] = ["test.db-lock", "test.db-open"].map(|name| folder.path().join(name));
    fs::remove_file(&open).unwrap();
    drop(stage(&url, &file, &sealer).await.unwrap());
    assert!(!lock.exists() && !open.exists(), "given up");
    let staged = stage(&url, &file, &sealer).await.unwrap();
    assert_fails!(
        ServiceLock::acquire(&url),
        InUse(_),
        "no service starts meanwhile"
    );
    let opened = Storage::open(&url, sealer.clone()).await;
    assert_fails!(opened, Open(text) if text.contains("a restore replaces the SQLite database"));
    staged.put_in_place(at(0)).await.unwrap();
    assert!(lock.exists() && open.exists());
    let restored = Storage::open(&url, sealer).await.unwrap();
    assert_eq!(restored.users().list().await.unwrap().len(), 1);
}

/// SQLite would apply the log of a lost database to the file that gets its name.
#[tokio::test]
async fn log_of_a_lost_database_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let (url, file, sealer) = closed(folder.path()).await;
    let (database, log) = (
        folder.path().join("test.db"),
        folder.path().join("test.db-wal"),
    );
    fs::rename(&database, folder.path().join("lost.db")).unwrap();
    fs::write(&log, "frames").unwrap();
    let staged = stage(&url, &file, &sealer).await.unwrap();
    assert_eq!(staged.put_in_place(at(0)).await.unwrap(), None);
    assert!(database.exists() && !log.exists());
}

/// A database whose handles are closed, with its folder, and a backup of it that is older than its
/// last user.
async fn closed(folder: &Path) -> (String, PathBuf, Sealer) {
    let url = format!("sqlite:{}", folder.join("test.db").display());
    let db = TestDb::attach(url.clone(), sealer_of(&[1])).await;
    db.migrate().await.unwrap();
    db.user("kept@x").await;
    let file = folder.join("backup.db");
    db.back_up(&file).await.unwrap();
    db.user("later@x").await;
    drop(db);
    (url, file, sealer_of(&[1]))
}

#[tokio::test]
async fn restored_file_is_private_and_decided_or_not() {
    for is_decided in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (url, file, sealer) = closed(folder.path()).await;
        let database = folder.path().join("test.db");
        fs::set_permissions(&database, fs::Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let staged = stage(&url, &file, &sealer).await.unwrap();
        if is_decided {
            staged
                .storage()
                .backups()
                .keep_access(&operator(), at(0))
                .await
                .unwrap();
        }
        let aside = staged.put_in_place(at(0)).await.unwrap().unwrap();
        assert_eq!(
            aside,
            folder.path().join("test.db.replaced-20270115T080000.000Z")
        );
        assert!(
            !with_suffix(&aside, "-wal").exists(),
            "the file has all rows"
        );
        assert_eq!((mode(&database), mode(&aside)), (0o600, 0o640));
        let users = async |file: &Path| {
            let db = Storage::open(&format!("sqlite:{}", file.display()), sealer.clone())
                .await
                .unwrap();
            (
                db.users().list().await.unwrap().len(),
                db.backups().awaits_restore_decision().await.unwrap(),
            )
        };
        assert_eq!(users(&database).await, (1, !is_decided));
        assert_eq!(users(&aside).await, (2, false));
        assert_eq!(users(&file).await, (1, true), "the backup itself stays");
    }
}

#[test]
fn unusable_files_are_rejected() {
    on_sqlite(async |db| {
        let file = |name: &str| beside(db, name);
        db.back_up(&file("good.db")).await.unwrap();
        let good = fs::read(file("good.db")).unwrap();
        fs::write(file("text.db"), "no database").unwrap();
        fs::write(file("empty.db"), "").unwrap();
        // A page in the middle.
        let mut damaged = good.clone();
        let middle = damaged.len() / 2 / 4096 * 4096;
        damaged[middle..middle + 4096].fill(0xff);
        fs::write(file("damaged.db"), damaged).unwrap();
        for (name, before, change) in [
            ("other.db", b"".as_slice(), "CREATE TABLE t (a)"),
            (
                "newer.db",
                good.as_slice(),
                "INSERT INTO schema_migrations VALUES (9999, '9999_later', 'x', 9999, 0)",
            ),
            (
                "older.db",
                good.as_slice(),
                "ALTER TABLE schema_migrations DROP COLUMN oldest_compatible",
            ),
        ] {
            fs::write(file(name), before).unwrap();
            let database = rusqlite::Connection::open(file(name)).unwrap();
            database.execute_batch(change).unwrap();
        }
        fs::write(file("raw.db"), &good).unwrap();
        fs::write(file("raw.db-wal"), "committed rows").unwrap();
        for (name, message) in [
            ("missing.db", "No such file or directory"),
            ("text.db", "not a SQLite database"),
            ("empty.db", "not a SQLite database"),
            ("damaged.db", "integrity check failed"),
            ("other.db", "not a database of Bellbird"),
            ("newer.db", "it has 9999_later"),
            ("older.db", "made by an unreleased or older version"),
            ("raw.db", "a write-ahead log (-wal) is beside it"),
            ("test.db", "this is the database itself"),
        ] {
            let error = reason(stage(&db.url, &file(name), &db.sealer).await);
            assert!(error.contains(message), "{name}: {error}");
        }
        // It is good, but the test has the database open, as another command would.
        db.user("later@x").await;
        let error = reason(stage(&db.url, &file("good.db"), &db.sealer).await);
        assert_contains!(error, "another process", "test.db open: wait until it ends");
        assert_eq!(
            db.users().list().await.unwrap().len(),
            1,
            "it is not replaced"
        );
        let left = fs::read_dir(db.path().parent().unwrap()).unwrap();
        let left: Vec<_> = left
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(
            !left.iter().any(|name| name.contains("partial")),
            "{left:?}"
        );
    });
}

/// Tables whose rows let somebody in, or to whose URLs events go.
const CUT: [&str; 10] = [
    "api_keys",
    "consent_sessions",
    "first_start",
    "identities",
    "links",
    "operator_keys",
    "sessions",
    "setup_tokens",
    "sign_in_links",
    "webhook_endpoints",
];

/// Tables whose rows let nobody in. A user is let in by a row of another table only, unless the
/// user is an operator.
const LET_NOBODY_IN: [&str; 24] = [
    "accounts",
    "audit",
    "connection_audit",
    "connections",
    "database_origin",
    "fingerprints",
    "instances",
    "jobs",
    "key_audit",
    "key_reads",
    "known_browsers",
    "operator_requests",
    "provider_events",
    "provider_settings",
    "provider_users",
    "schema_migrations",
    "secrets",
    "sent_emails",
    "syncs",
    "users",
    "webhook_attempts",
    "webhook_deliveries",
    "webhook_events",
    "webhook_queues",
];

/// Hashes in tables that let nobody in: of a cookie that signs nobody in, of an `Idempotency-Key`,
/// of the id of an event.
const OTHER_HASHES: [&str; 3] = [
    "known_browsers.cookie_hash",
    "operator_requests.idempotency_hash",
    "provider_events.event_hash",
];

both! {
    // A new table belongs into one of the two lists. If it lets somebody in, `cut_access` has to
    // cut it.
    async fn every_table_is_cut_or_lets_nobody_in(db) {
        let columns = db.columns().await;
        let columns: Vec<_> = columns.iter().map(|column| column.split_once('.').unwrap()).collect();
        let mut tables: Vec<_> = columns.iter().map(|(table, _)| *table).collect();
        tables.dedup();
        let mut known: Vec<_> = CUT.iter().chain(&LET_NOBODY_IN).copied().collect();
        known.sort_unstable();
        assert_eq!(tables, known);
        for (table, column) in &columns {
            let is_known = CUT.contains(table) || OTHER_HASHES.contains(&format!("{table}.{column}").as_str());
            assert!(is_known || !column.ends_with("_hash"), "{table}.{column}: does it let somebody in?");
        }
    }

    async fn a_cut_ends_all_access(db) {
        let user = db.user("a@x").await.id;
        let other_operator = UserChange { is_operator: Some(true), ..UserChange::default() };
        db.change_user(user, &other_operator).await;
        let connection = db.connection(user, "consent", &[new_account("acc", "Everyday")]).await;
        for number in 0..3 {
            in_tx!(db, keys::insert(user, &key(number), "k", (number == 2).then(|| at(50)), at(0))).await.unwrap();
        }
        let first = db.keys().list(user).await.unwrap()[0].id;
        in_tx!(db, keys::revoke(first, at(1))).await.unwrap();
        in_tx!(db, operator_keys::insert(&operator_key(1), "k", None, at(0))).await.unwrap();
        in_tx!(db, links::insert(&new_link(user, "link", at(1_000)), at(0))).await.unwrap();
        insert_setup_token(db, user, 1, at(1_000)).await;
        start_session(db, user, "state").await;
        let session = console_session("cookie", "b");
        let identity = Identity { issuer: "https://id.example", subject: "1", email: "a@x" };
        db.sessions().sign_in_as(&identity, None, &session, at(0)).await.unwrap();
        let sign_in = sign_in_link(user, "sign in", 1_000);
        assert!(db.sessions().insert_link(&sign_in, 9, at(0)).await.unwrap());
        let own = endpoint(db, user, &[EventType::TransactionsSynced]).await;
        db.raw("INSERT INTO first_start (id) VALUES (1)").await;
        for table in CUT {
            assert_ne!(db.rows(table).await, 0, "{table} is not tested");
        }

        db.backups().set_copy().await.unwrap();
        let cut = db.backups().cut_access(&operator(), at(100)).await.unwrap();
        let expected = AccessCut {
            keys_revoked: 1,
            operator_keys_revoked: 1,
            operators_removed: 1,
            sign_ins_forbidden: 1,
            emails_forbidden: vec!["a@x".to_owned()],
            identities_forgotten: 1,
            sessions_ended: 1,
            links_deleted: 2,
            setup_tokens_deleted: 1,
            endpoints_paused: 1,
            users: 1,
            connections: 1,
        };
        assert_eq!(cut, expected);
        assert!(!db.backups().awaits_restore_decision().await.unwrap());
        for number in 0..3 {
            assert_eq!(db.keys().find_caller(&key(number), at(101)).await.unwrap(), None, "key {number}");
        }
        let revoked: Vec<_> = db.keys().list(user).await.unwrap().into_iter().map(|key| key.revoked_at).collect();
        assert_eq!(revoked, [Some(at(1)), Some(at(100)), None], "what ended before keeps its end");
        assert_eq!(db.operator_keys().find_valid(&operator_key(1), at(101)).await.unwrap(), None);
        let left = db.users().find(user).await.unwrap().unwrap();
        assert!(!left.is_operator && !left.console_sign_in);
        assert_eq!(db.sessions().find("cookie", at(101)).await.unwrap(), None);
        assert_eq!(db.sessions().find_link("sign in", None, at(101)).await.unwrap(), None);
        assert_eq!(db.rows("identities").await, 0);
        assert_eq!(db.links().find("link").await.unwrap(), None);
        let claim = db.setup_tokens().claim(&setup_token(1), &key(9), at(101)).await.unwrap();
        assert!(matches!(claim, SetupTokenClaim::Unknown));
        let paused = db.endpoints().find_any(own).await.unwrap().unwrap();
        assert_eq!(paused.disabled_reason.as_deref(), Some("database restored"));
        assert_eq!(db.column(connection.id, "status").await, "active");
        let audit = db.audit().list_before(None, None, 9).await.unwrap();
        assert_eq!((audit[0].action.as_str(), &audit[0].actor), ("database.cut_access", &operator()));
    }

    async fn endpoint_that_is_enabled_again_gets_its_pending_events(db) {
        let user = db.user("a@x").await.id;
        let own = endpoint(db, user, &[EventType::TransactionsSynced]).await;
        let id = connection_to_sync(db, user, "c", 0).await;
        finish_sync_with(db, (user, id), 2, &[chunk(1, 1)]).await;
        db.backups().cut_access(&operator(), at(3)).await.unwrap();
        let paused = db.endpoints().find_any(own).await.unwrap().unwrap();
        assert_eq!(paused.status, EndpointStatus::Disabled);
        assert!(in_tx!(db, endpoints::enable((user, own), at(100))).await.unwrap());
        claimed_endpoint(db, own, 100).await;
    }
}
