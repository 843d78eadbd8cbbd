//! Backups of SQLite, and what a restore must not revive.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bellbird_domain::{ConnectionStatus, EventType, Plan};

use crate::job_kinds::REMOVAL;
use crate::tests::fixtures::{endpoint, new_link, register_provider_user, sealer_of, with_keys};
use crate::tests::support::{TestDb, at, both, key, new_account, on_postgres, on_sqlite, operator_key};
use crate::{CarriedOver, LostSince, ServiceLock, StagedBackup, Storage, StorageError, UserChange};

fn path(db: &TestDb) -> PathBuf {
    PathBuf::from(db.url.strip_prefix("sqlite:").unwrap())
}

fn beside(db: &TestDb, name: &str) -> PathBuf {
    path(db).with_file_name(name)
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

async fn stage(db: &TestDb, file: &Path) -> Result<StagedBackup, StorageError> {
    StagedBackup::new(file, ServiceLock::acquire(&db.url)?.unwrap(), db.sealer.clone()).await
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
    async fn only_a_copy_awaits_a_decision(db) {
        assert!(!db.backups().awaits_restore_decision().await.unwrap(), "new");
        let restore_id = async || db.texts("SELECT CAST(restore_id AS TEXT) FROM database_origin").await;
        assert_eq!(restore_id().await, ["0"]);
        db.backups().set_copy().await.unwrap();
        assert!(db.backups().awaits_restore_decision().await.unwrap());
        db.backups().set_restore_decided().await.unwrap();
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
                db.backups().set_restore_decided().await.unwrap();
            }
            for vacuum in ["VACUUM FREEZE", "VACUUM FULL", "VACUUM (FULL, FREEZE)"] {
                db.raw(&format!("{vacuum} database_origin")).await;
                assert!(!db.backups().awaits_restore_decision().await.unwrap(), "{vacuum}");
            }
        }
        // What pg_restore does: the same text in another row.
        db.raw("CREATE TABLE old AS SELECT * FROM database_origin; DELETE FROM database_origin").await;
        db.raw("INSERT INTO database_origin SELECT * FROM old").await;
        assert!(db.backups().awaits_restore_decision().await.unwrap());
    });
}

#[test]
fn backup_is_private_complete_and_new() {
    on_sqlite(async |db| {
        let file = beside(db, "backup.db");
        let user = db.user("a@x").await.id;
        db.connection(user, "c", &[new_account("acc", "Everyday")]).await;
        let contents = db.back_up(&file).await.unwrap();
        assert_eq!((contents.users, contents.connections, contents.bytes), (1, 1, fs::metadata(&file).unwrap().len()));
        assert_eq!(contents.secrets.by_key.into_iter().collect::<Vec<_>>(), [("random".to_owned(), 1)]);
        assert_eq!(mode(&file), 0o600);
        // One file that needs no other, and nothing unfinished.
        let mut names: Vec<_> = fs::read_dir(file.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["backup.db", "test.db", "test.db-open", "test.db-shm", "test.db-wal"]);
        let before = fs::read(&file).unwrap();
        assert!(reason(db.back_up(&file).await).contains("backup.db exists already"));
        assert_eq!(fs::read(&file).unwrap(), before);
        assert!(reason(db.back_up(&beside(db, "no/folder.db")).await).contains("could not create a file in"));
    });
}

#[test]
fn backup_under_write_load_is_of_one_moment() {
    on_sqlite(async |db| {
        let file = beside(db, "backup.db");
        let user = db.user("a@x").await.id;
        // So large that the copy takes many writes.
        db.raw(
            "CREATE TABLE ballast AS WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
            SELECT randomblob(1000) AS bytes FROM n",
        )
        .await;
        let mut written = 0;
        let mut backup = std::pin::pin!(db.back_up(&file));
        let contents = loop {
            let (consent, accounts) = (format!("c{written}"), [new_account("acc", "Everyday")]);
            let write = db.connection(user, &consent, &accounts);
            tokio::select! {
                contents = &mut backup => break contents.unwrap(),
                _ = write => written += 1,
            }
        };
        assert!(written > 2, "{written} writes beside the backup");
        let copy = TestDb::attach(format!("sqlite:{}", file.display()), db.sealer.clone()).await;
        let count =
            async |table: &str| copy.texts(&format!("SELECT CAST(COUNT(*) AS TEXT) FROM {table}")).await.remove(0);
        let connections = contents.connections.to_string();
        // One transaction writes a row of each.
        for table in ["connections", "accounts", "secrets WHERE purpose = 'credentials'", "jobs WHERE kind = 'refresh'"]
        {
            assert_eq!(count(table).await, connections, "{table}");
        }
    });
}

#[test]
fn database_in_use_is_not_replaced() {
    on_sqlite(async |db| {
        let file = beside(db, "backup.db");
        db.back_up(&file).await.unwrap();
        db.user("later@x").await;
        // The test's own handle is open, as that of another command would be.
        let error = reason(stage(db, &file).await);
        assert!(error.contains("test.db open: wait until it ends"), "{error}");
        assert_eq!(db.users().list().await.unwrap().len(), 1);
    });
}

#[test]
fn restore_keeps_others_out() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let (url, file, sealer) = closed(folder.path()).await;
        let lock = ServiceLock::acquire(&url).unwrap().unwrap();
        let staged = StagedBackup::new(&file, lock, sealer.clone()).await.unwrap();
        assert!(matches!(ServiceLock::acquire(&url), Err(StorageError::InUse(_))), "no service starts meanwhile");
        match Storage::open(&url, sealer.clone()).await {
            Err(StorageError::Open(text)) => assert!(text.contains("a restore replaces the SQLite database"), "{text}"),
            _ => panic!("opened"),
        }
        let present = staged.open_present().await.unwrap();
        staged.put_in_place(present, true, at(0)).await.unwrap();
        let restored = Storage::open(&url, sealer).await.unwrap();
        assert_eq!(restored.users().list().await.unwrap().len(), 1);
    });
}

/// SQLite would apply the log of a lost database to the file that gets its name.
#[test]
fn log_of_a_lost_database_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let (url, file, sealer) = closed(folder.path()).await;
        let (database, log) = (folder.path().join("test.db"), folder.path().join("test.db-wal"));
        fs::rename(&database, folder.path().join("lost.db")).unwrap();
        fs::write(&log, "frames").unwrap();
        let lock = ServiceLock::acquire(&url).unwrap().unwrap();
        let staged = StagedBackup::new(&file, lock, sealer).await.unwrap();
        assert!(staged.open_present().await.unwrap().is_none());
        assert_eq!(staged.put_in_place(None, false, at(0)).await.unwrap(), None);
        assert!(database.exists() && !log.exists());
    });
}

/// A database whose handles are closed, with its folder, and a backup of it that is older than its last user.
async fn closed(folder: &Path) -> (String, PathBuf, crate::Sealer) {
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

fn block_on<T>(body: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body)
}

#[test]
fn restored_file_is_private_and_decided_or_not() {
    for is_decided in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        block_on(async {
            let (url, file, sealer) = closed(folder.path()).await;
            let database = folder.path().join("test.db");
            fs::set_permissions(&database, fs::Permissions::from_mode(0o640)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
            let lock = ServiceLock::acquire(&url).unwrap().unwrap();
            let staged = StagedBackup::new(&file, lock, sealer.clone()).await.unwrap();
            let present = staged.open_present().await.unwrap();
            let aside = staged.put_in_place(present, is_decided, at(0)).await.unwrap().unwrap();
            assert_eq!(aside, folder.path().join("test.db.replaced-20270115T080000Z"));
            assert_eq!((mode(&database), mode(&aside)), (0o600, 0o640));
            let users = async |file: &Path| {
                let db = Storage::open(&format!("sqlite:{}", file.display()), sealer.clone()).await.unwrap();
                (db.users().list().await.unwrap().len(), db.backups().awaits_restore_decision().await.unwrap())
            };
            assert_eq!(users(&database).await, (1, !is_decided));
            assert_eq!(users(&aside).await, (2, false));
            assert_eq!(users(&file).await, (1, true), "the backup itself stays");
        });
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
        rusqlite::Connection::open(file("other.db")).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
        fs::write(file("newer.db"), &good).unwrap();
        let newer = rusqlite::Connection::open(file("newer.db")).unwrap();
        newer.execute_batch("INSERT INTO schema_migrations VALUES (9999, '9999_later', 'x', 9999, 0)").unwrap();
        drop(newer);
        fs::write(file("older.db"), &good).unwrap();
        let older = rusqlite::Connection::open(file("older.db")).unwrap();
        older.execute_batch("ALTER TABLE schema_migrations DROP COLUMN oldest_compatible").unwrap();
        drop(older);
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
            let error = reason(stage(db, &file(name)).await);
            assert!(error.contains(message), "{name}: {error}");
        }
        // It is good, but the test has the database open.
        assert!(reason(stage(db, &file("good.db")).await).contains("another process"));
        let left = fs::read_dir(path(db).parent().unwrap()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!left.iter().any(|name| name.contains("partial")), "{left:?}");
    });
}

#[test]
fn another_or_undecided_database_is_not_compared() {
    on_sqlite(async |db| {
        let other = Storage::open(&format!("sqlite:{}", beside(db, "other.db").display()), db.sealer.clone()).await;
        let other = other.unwrap();
        other.migrate().await.unwrap();
        assert!(reason(other.backups().state_for(db.backups()).await).contains("it is another database"));
        let file = beside(db, "backup.db");
        db.back_up(&file).await.unwrap();
        let copy = Storage::open(&format!("sqlite:{}", file.display()), db.sealer.clone()).await.unwrap();
        assert!(reason(copy.backups().state_for(db.backups()).await).contains("without a decision since"));
        assert!(db.backups().state_for(copy.backups()).await.is_ok());
    });
}

#[test]
fn restore_revives_nothing() {
    on_sqlite(async |db| {
        let (anna, ben, gone) = (db.user("anna@x").await.id, db.user("ben@x").await.id, db.user("gone@x").await.id);
        let mut keys = Vec::new();
        for number in 0..5 {
            let user = [anna, anna, anna, ben, gone][usize::from(number)];
            keys.push(db.keys().insert(user, &key(number), "k", None, at(0)).await.unwrap().id);
        }
        let mut operator_keys = Vec::new();
        for number in 0..3 {
            operator_keys.push(db.operator_keys().insert(&operator_key(number), "k", None, at(0)).await.unwrap().id);
        }
        let accounts = [new_account("acc", "Everyday")];
        let mut connections = Vec::new();
        for (user, consent) in [(anna, "stays"), (anna, "removed"), (ben, "hidden"), (ben, "began"), (gone, "gone")] {
            connections.push(db.connection(user, consent, &accounts).await.id);
        }
        let mut endpoints = Vec::new();
        for _ in 0..4 {
            endpoints.push(endpoint(db, anna, &[EventType::TransactionsSynced]).await);
        }
        register_provider_user(db, anna, "person", "credentials").await;
        register_provider_user(db, gone, "other person", "credentials").await;
        db.links().insert(&new_link(anna, "token", at(1_000)), at(0)).await.unwrap();
        // The backup is made while this removal waits.
        db.removals().begin(ben, connections[3], at(20), at(20)).await.unwrap().expect("hidden");

        let operator = |is_operator| UserChange { is_operator: Some(is_operator), ..UserChange::default() };
        db.users().update(ben, &operator(true)).await.unwrap();
        let file = beside(db, "backup.db");
        db.back_up(&file).await.unwrap();
        let copy = TestDb::attach(format!("sqlite:{}", file.display()), db.sealer.clone()).await;

        db.users().update(ben, &operator(false)).await.unwrap();
        db.users().update(anna, &operator(true)).await.unwrap();
        db.keys().revoke(keys[1], at(100)).await.unwrap();
        db.keys().expire(keys[2], at(200)).await.unwrap();
        db.operator_keys().revoke(operator_keys[1], at(100)).await.unwrap();
        db.operator_keys().expire(operator_keys[2], at(200)).await.unwrap();
        assert!(db.remove(anna, connections[1], at(100)).await);
        db.removals().begin(ben, connections[2], at(100), at(100)).await.unwrap().expect("hidden");
        let claim = db.claim(REMOVAL, ben, connections[3], at(100), at(200)).await.unwrap().expect("claimed");
        assert!(db.removals().finish(&claim, "removed", at(100)).await.unwrap());
        assert!(db.remove(gone, connections[4], at(100)).await);
        db.provider_users().delete(gone, "fiskil").await.unwrap();
        db.users().delete(gone, at(900)).await.unwrap();
        db.endpoints().delete(anna, endpoints[1]).await.unwrap();
        db.endpoints().disable(anna, endpoints[2], "address not allowed", at(100)).await.unwrap().expect("disabled");
        db.raw(&format!(
            "UPDATE webhook_endpoints SET url = 'https://new.example', event_types = 'trades.synced' WHERE id = '{}'",
            endpoints[3]
        ))
        .await;
        db.users().update(ben, &UserChange { plan: Some(Plan::Developer), ..UserChange::default() }).await.unwrap();
        // Only here.
        let new_user = db.user("new@x").await.id;
        db.keys().insert(new_user, &key(9), "k", None, at(100)).await.unwrap();
        db.operator_keys().insert(&operator_key(9), "k", None, at(100)).await.unwrap();
        db.connection(new_user, "new", &accounts).await;

        let state = db.backups().state_for(copy.backups()).await.unwrap();
        let (done, lost) = copy.backups().carry_over(&state, at(300)).await.unwrap();
        let expected = CarriedOver {
            keys_revoked: 1,
            keys_shortened: 1,
            operator_keys_revoked: 1,
            operator_keys_shortened: 1,
            connections_removed: 3,
            removals_continued: 1,
            users_removed: 1,
            plans_changed: 1,
            operators_removed: 1,
            endpoints_removed: 1,
            endpoints_disabled: 1,
            endpoints_changed: 1,
            registrations_removed: 1,
        };
        let expected_lost = LostSince { users: 1, keys: 1, operator_keys: 1, connections: 1, endpoints: 0 };
        assert_eq!((done, lost), (expected, expected_lost));
        assert!(copy.users().list().await.unwrap().iter().all(|user| !user.is_operator), "the flag revives nowhere");
        let revoked: Vec<_> = copy.keys().list(anna).await.unwrap().into_iter().map(|key| key.revoked_at).collect();
        assert_eq!(revoked, [None, Some(at(100)), None]);
        for (number, works) in [(0, true), (1, false), (2, false), (3, true), (4, false)] {
            assert_eq!(copy.keys().find_caller(&key(number), at(250)).await.unwrap().is_some(), works, "key {number}");
        }
        for (number, works) in [(0, true), (1, false), (2, false), (9, false)] {
            let found = copy.operator_keys().find_valid(&operator_key(number), at(250)).await.unwrap();
            assert_eq!(found.is_some(), works, "operator key {number}");
        }
        let left = copy.connections().list_all().await.unwrap();
        let mut left: Vec<_> = left.iter().map(|connection| (connection.id, connection.status)).collect();
        left.sort_by_key(|(id, _)| connections.iter().position(|other| other == id));
        assert_eq!(left, [(connections[0], ConnectionStatus::Active), (connections[2], ConnectionStatus::Deleting)]);
        assert!(copy.claim(REMOVAL, ben, connections[2], at(300), at(400)).await.unwrap().is_some(), "due at once");
        let left = copy.endpoints().list(anna).await.unwrap();
        let left: Vec<_> = left.iter().map(|e| (e.id, e.url.as_str(), e.disabled_reason.as_deref())).collect();
        assert_eq!(
            left,
            [
                (endpoints[0], "https://hooks.example.com/x", None),
                (endpoints[2], "https://hooks.example.com/x", Some("address not allowed")),
                (endpoints[3], "https://new.example", None),
            ]
        );
        let last = &copy.endpoints().list(anna).await.unwrap()[2];
        assert_eq!(last.event_types, [EventType::TradesSynced]);
        assert_eq!(copy.users().find(ben).await.unwrap().unwrap().plan, Plan::Developer);
        assert_eq!(copy.users().find(gone).await.unwrap(), None);
        assert_eq!(copy.provider_users().list(anna).await.unwrap().len(), 1);
        copy.backups().set_restore_decided().await.unwrap();
        assert_eq!(copy.texts("SELECT id FROM links").await, [""; 0]);
        // Secrets of what is left, and no others.
        assert_eq!((copy.secrets_for("credentials").await, copy.secrets_for("webhook").await), (2, 3));
        // A second time, nothing is left to do.
        let (done, _) = copy.backups().carry_over(&state, at(301)).await.unwrap();
        assert_eq!(done, CarriedOver::default());
        // The previous database has not changed.
        assert_eq!(db.users().list().await.unwrap().len(), 3);
    });
}

both! {
    async fn revoking_all_keys_keeps_the_first_time(db) {
        let user = db.user("a@x").await.id;
        for number in 0..3 {
            db.keys().insert(user, &key(number), "k", None, at(0)).await.unwrap();
        }
        let first = db.keys().list(user).await.unwrap()[0].id;
        db.keys().revoke(first, at(1)).await.unwrap();
        db.links().insert(&new_link(user, "token", at(1_000)), at(0)).await.unwrap();
        db.operator_keys().insert(&operator_key(1), "k", None, at(0)).await.unwrap();
        let operator = UserChange { is_operator: Some(true), ..UserChange::default() };
        assert!(db.users().update(user, &operator).await.unwrap().is_operator);
        assert_eq!(db.backups().revoke_all_keys(at(2)).await.unwrap(), (2, 1));
        assert!(!db.users().find(user).await.unwrap().unwrap().is_operator);
        assert_eq!(db.operator_keys().list().await.unwrap()[0].revoked_at, Some(at(2)));
        let times: Vec<_> = db.keys().list(user).await.unwrap().into_iter().map(|key| key.revoked_at).collect();
        assert_eq!(times, [Some(at(1)), Some(at(2)), Some(at(2))]);
        db.backups().set_restore_decided().await.unwrap();
        assert_eq!(db.texts("SELECT id FROM links").await, [""; 0]);
    }
}

#[test]
fn backup_names_keys_that_are_not_configured() {
    on_sqlite(async |db| {
        let user = db.user("a@x").await.id;
        let old = with_keys(db, &[1]).await;
        endpoint(&old, user, &[EventType::TransactionsSynced]).await;
        let new = with_keys(db, &[2]).await;
        endpoint(&new, user, &[EventType::TransactionsSynced]).await;
        let contents = new.back_up(&beside(db, "backup.db")).await.unwrap();
        let keys: Vec<_> = contents.secrets.by_key.into_iter().collect();
        assert_eq!(keys, [("k1".to_owned(), 1), ("k2".to_owned(), 1)]);
    });
}
