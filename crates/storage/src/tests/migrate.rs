use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures_util::FutureExt as _;

use crate::digest::{hash, hex};
use crate::migrate::{MIGRATIONS, Migration, RetryBudget};
use crate::tests::fixtures::wait_for_lock_waiters;
use crate::tests::support::{
    TestDb, assert_contains, assert_fails, both, connect, on_empty_postgres, on_postgres, on_sqlite,
};
use crate::{Sealer, Storage, StorageError};

/// Table, column, type, whether it is nullable, and its position in the primary key (0: not part of
/// it).
type Column = (String, String, String, bool, i64);

async fn migrates_empty_database(storage: &Storage) {
    assert_fails!(storage.ping().await, Schema(_));
    let pending = storage.pending_migrations().await.unwrap();
    assert_eq!(
        pending,
        MIGRATIONS
            .iter()
            .map(|migration| migration.name)
            .collect::<Vec<_>>()
    );
    assert_eq!(storage.migrate().await.unwrap(), pending);
    let pending = storage.pending_migrations().await.unwrap();
    assert_eq!(pending, Vec::<String>::new());
    assert_eq!(storage.migrate().await.unwrap(), Vec::<String>::new());
    storage.ping().await.unwrap();
}

#[tokio::test]
async fn sqlite_migrates_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("new.db").display());
    migrates_empty_database(&Storage::open(&url, Sealer::random()).await.unwrap()).await;
}

#[test]
fn postgres_migrates_once() {
    on_empty_postgres(async |db| migrates_empty_database(db).await);
}

#[test]
fn postgres_migrations_at_once_apply_once() {
    on_empty_postgres(async |db| {
        let other = db.reopen().await;
        let (first, second) = tokio::join!(db.migrate(), other.migrate());
        assert!(first.unwrap().is_empty() ^ second.unwrap().is_empty());
    });
}

/// The version of this program.
fn own_version() -> i64 {
    MIGRATIONS.last().expect("a migration").version
}

/// A migration so many versions later, with which no older program works.
fn later(versions: i64, name: &'static str) -> Migration {
    let text = "CREATE TABLE IF NOT EXISTS later (id TEXT NOT NULL, number INTEGER) STRICT;";
    Migration {
        version: own_version() + versions,
        name,
        text,
    }
}

/// The next migration. It adds what this program does not need.
fn expand() -> Migration {
    let text = format!(
        "-- oldest-compatible: {}\nALTER TABLE users ADD COLUMN nickname TEXT;",
        own_version()
    );
    Migration {
        version: own_version() + 1,
        name: "expand",
        text: text.leak(),
    }
}

/// The one after it. It drops what this program needs.
fn contract() -> Migration {
    let text = format!(
        "-- oldest-compatible: {}\nALTER TABLE users DROP COLUMN timezone;",
        own_version() + 1
    );
    Migration {
        version: own_version() + 2,
        name: "contract",
        text: text.leak(),
    }
}

/// Short times, so that a try fails soon.
const RETRY_BUDGET: RetryBudget = RetryBudget {
    lock_timeout: Duration::from_millis(50),
    pause: Duration::from_millis(1),
    tries: 2,
};

async fn migrate_to(db: &Storage, migrations: &[Migration]) -> Result<Vec<String>, StorageError> {
    db.migrate_to(migrations, RETRY_BUDGET).await
}

fn schema_error(error: StorageError) -> String {
    let StorageError::Schema(text) = error else {
        panic!("{error:?}")
    };
    text
}

/// What each way to open a schema that is rejected says.
async fn rejections(db: &TestDb) -> [String; 2] {
    let migrated = db.migrate().await.map(drop);
    let pending = db.pending_migrations().await.map(drop);
    [migrated, pending].map(|rejected| schema_error(rejected.unwrap_err()))
}

#[test]
fn every_migration_says_which_programs_work_with_it() {
    for migration in MIGRATIONS {
        assert!(
            migration.text.starts_with("-- oldest-compatible: "),
            "{}",
            migration.name
        );
        assert!(
            (1..=migration.version).contains(&migration.oldest_compatible()),
            "{}",
            migration.name
        );
    }
}

/// The released migrations that are missing or were edited. `released` has lines of `sha256sum`.
fn edited<'r>(released: &'r str, migrations: &[Migration]) -> Vec<&'r str> {
    let lines = released.lines().filter(|line| !line.starts_with('#'));
    let files = lines.map(|line| {
        line.split_once("  migrations/")
            .expect("a digest and a file")
    });
    let is_kept = |digest: &str, file: &str| {
        let same = |one: &Migration| {
            format!("{}.sql", one.name) == file && hex(hash(one.text).as_ref()) == digest
        };
        migrations.iter().any(same)
    };
    files
        .filter(|(digest, file)| !is_kept(digest, file))
        .map(|(_, file)| file)
        .collect()
}

/// `scripts/release` adds the digests. A database knows the text of its migrations, so an edited
/// one locks it out.
#[test]
fn released_migrations_are_never_edited() {
    let released = include_str!("../../released.sha256");
    let edited_files = edited(released, MIGRATIONS);
    assert_eq!(
        edited_files, [""; 0],
        "restore the released file, and add a migration"
    );
    let digest = hex(hash(MIGRATIONS[0].text).as_ref());
    let frozen = format!("# Comment\n{digest}  migrations/0001_initial.sql\n");
    assert_eq!(edited(&frozen, MIGRATIONS), [""; 0]);
    assert_eq!(
        edited(
            &frozen,
            &[Migration {
                text: "another",
                ..MIGRATIONS[0]
            }]
        ),
        ["0001_initial.sql"]
    );
    assert_eq!(edited(&frozen, &[expand()]), ["0001_initial.sql"], "gone");
}

both! {
    async fn schema_of_no_known_version_is_rejected(db) {
        for (damage, what, repair) in [
            (
                "UPDATE schema_migrations SET sha256 = 'another' || sha256 WHERE version = 1",
                "(its migration 0001_initial is another one)",
                "UPDATE schema_migrations SET sha256 = substr(sha256, 8) WHERE version = 1",
            ),
            (
                "INSERT INTO schema_migrations VALUES (0, '0000_draft', 'x', 0, 0)",
                "(it has 0000_draft)",
                "DELETE FROM schema_migrations WHERE version = 0",
            ),
            (
                // As the databases of before the first release, some of which also have another
                // text of the first migration.
                "ALTER TABLE schema_migrations RENAME COLUMN oldest_compatible TO former",
                "(schema_migrations lacks a column)",
                "ALTER TABLE schema_migrations RENAME COLUMN former TO oldest_compatible",
            ),
            (
                "ALTER TABLE schema_migrations RENAME TO former",
                "(it has the tables accounts, api_keys, audit, ..., and no ",
                "ALTER TABLE former RENAME TO schema_migrations",
            ),
        ] {
            db.raw(damage).await;
            for text in rejections(db).await {
                let is_named = text.contains("made by an unreleased or older version") && text.contains(what);
                let says_what_to_do =
                    text.contains("restore a backup of this version") && !text.contains("bellbird migrate");
                assert!(is_named && says_what_to_do, "{what}: {text}");
            }
            db.raw(repair).await;
        }
        assert_eq!(db.pending_migrations().await.unwrap(), [""; 0], "nothing was applied");
        db.raw("INSERT INTO schema_migrations VALUES (9999, '9999_later', 'x', 9999, 0)").await;
        for text in rejections(db).await {
            assert_contains!(text, "newer version", "9999_later");
        }
        db.raw("ALTER TABLE users DROP COLUMN timezone").await;
        assert_fails!(db.users().list().await, Schema(text) if text.contains("bellbird migrate"));
    }

    // Instances are upgraded one after another: the older ones start, stay ready and write.
    async fn older_program_works_with_an_expanded_schema(db) {
        let (newer, before) = (db.reopen().await, db.user("before@x").await);
        let migrations = [MIGRATIONS, &[expand()]].concat();
        assert_eq!(migrate_to(&newer, &migrations).await.unwrap(), ["expand"]);
        assert_eq!(db.pending_migrations().await.unwrap(), [""; 0]);
        assert_eq!(db.migrate().await.unwrap(), [""; 0]);
        let user = db.user("a@x").await;
        assert_eq!(newer.users().list().await.unwrap(), [user, before]);
        assert_eq!(newer.pending_of(&migrations).await.unwrap(), [""; 0]);
    }

    async fn older_program_rejects_a_contracted_schema(db) {
        let migrations = [MIGRATIONS, &[expand(), contract()]].concat();
        migrate_to(db, &migrations).await.unwrap();
        for text in rejections(db).await {
            assert_contains!(text, "contract", "upgrade");
        }
        let expanded = &migrations[..=MIGRATIONS.len()];
        assert_eq!(migrate_to(db, expanded).await.unwrap(), [""; 0], "the version between works with it");
    }

    async fn gap_in_applied_migrations_is_rejected(db) {
        let (second, third) = (later(1, "second"), later(2, "third"));
        assert_eq!(migrate_to(db, &[MIGRATIONS, &[third]].concat()).await.unwrap(), ["third"]);
        let error = migrate_to(db, &[MIGRATIONS, &[second, third]].concat()).await.unwrap_err();
        let text = schema_error(error);
        assert_contains!(text, "later migrations than second");
    }
}

/// A URL for another role, which is dropped at the end with what it owns. The server asks for no
/// password.
async fn with_role(db: &TestDb, body: impl AsyncFnOnce(&str, &str)) {
    let role = format!("role_{}", uuid::Uuid::now_v7().simple());
    let client = connect(&db.url).await;
    client
        .batch_execute(&format!("CREATE ROLE {role} LOGIN"))
        .await
        .unwrap();
    let (scheme, rest) = db.url.split_once("://").unwrap();
    let (_, address) = rest.split_once('@').unwrap();
    let outcome = AssertUnwindSafe(body(&role, &format!("{scheme}://{role}@{address}")))
        .catch_unwind()
        .await;
    client
        .batch_execute(&format!(
            "REASSIGN OWNED BY {role} TO CURRENT_USER; DROP ROLE {role}"
        ))
        .await
        .unwrap();
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// Since PostgreSQL 15, only the owner of a database may create tables in it.
#[test]
fn postgres_says_which_role_must_own_the_database() {
    on_empty_postgres(async |db| {
        with_role(db, async |role, url| {
            let storage = Storage::open(url, Sealer::random()).await.unwrap();
            let database = db.texts("SELECT CAST(current_database() AS TEXT)").await.remove(0);
            let statement = format!("ALTER DATABASE {database} OWNER TO {role}");
            for denied in [storage.migrate().await.map(drop), storage.check_may_migrate().await] {
                let Err(StorageError::Open(text)) = denied else { panic!("{denied:?}") };
                let reason =
                    format!("PostgreSQL's role {role} may not create tables in the database {database}, which ");
                assert!(text.starts_with(&reason) && text.contains(&format!("run `{statement}`")), "{text}");
            }
            db.raw(&statement).await;
            storage.check_may_migrate().await.unwrap();
            assert_eq!(storage.migrate().await.unwrap().len(), MIGRATIONS.len());
            // The role of the tests is a superuser, which needs not own them.
            db.check_may_migrate().await.unwrap();
        })
        .await;
    });
}

#[test]
fn postgres_says_which_role_owns_the_tables() {
    on_postgres(async |db| {
        with_role(db, async |role, url| {
            let storage = Storage::open(url, Sealer::random()).await.unwrap();
            for denied in [
                storage.migrate().await.map(drop),
                storage.pending_migrations().await.map(drop),
            ] {
                let Err(StorageError::Open(text)) = denied else {
                    panic!("{denied:?}")
                };
                let owner = db
                    .texts("SELECT CAST(current_user AS TEXT)")
                    .await
                    .remove(0);
                assert_contains!(
                    text,
                    &format!("which {owner} owns: connect as {owner}, or run `REASSIGN")
                );
                assert_contains!(text, &format!(" TO {role}`"));
            }
        })
        .await;
    });
}

/// A session holds a lock on `users`, as a long report does.
#[test]
fn postgres_migration_gives_way_and_tries_some_times() {
    on_postgres(async |db| {
        let holder = connect(&db.url).await;
        holder
            .batch_execute("BEGIN; LOCK TABLE users IN ACCESS SHARE MODE")
            .await
            .unwrap();
        let migrations = [MIGRATIONS, &[expand()]].concat();
        assert_fails!(migrate_to(db, &migrations).await, Unavailable(_));
        db.user("b@x").await;
        let other = db.reopen().await;
        let budget = RetryBudget {
            tries: u32::MAX,
            ..RETRY_BUDGET
        };
        let release = async {
            wait_for_lock_waiters(db, 1).await;
            // Behind a waiting migration, this waits too, until the try ends.
            db.user("a@x").await;
            holder.batch_execute("COMMIT").await.unwrap();
        };
        let (applied, ()) = tokio::join!(other.migrate_to(&migrations, budget), release);
        assert_eq!(applied.unwrap(), ["expand"]);
    });
}

const SQLITE_COLUMNS: &str = "SELECT t.name, c.name, c.type, c.\"notnull\" = 0, c.pk
    FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY t.name, c.name";

const POSTGRES_COLUMNS: &str = "SELECT CAST(t.relname AS TEXT), CAST(a.attname AS TEXT),
        CASE a.atttypid WHEN 25 THEN 'TEXT' WHEN 2950 THEN 'TEXT' WHEN 20 THEN 'INTEGER' WHEN 17 THEN 'BLOB'
            ELSE '?' END,
        NOT a.attnotnull, CAST(COALESCE(array_position(CAST(p.indkey AS SMALLINT[]), a.attnum) + 1, 0) AS BIGINT)
    FROM pg_class t
    JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_index p ON p.indrelid = t.oid AND p.indisprimary
    WHERE t.relnamespace = CAST('public' AS regnamespace) AND t.relkind = 'r'
    ORDER BY t.relname COLLATE \"C\", a.attname COLLATE \"C\"";

/// Index, its table and columns, whether it is unique.
const SQLITE_INDEXES: &str = "SELECT i.name || ' ' || t.name || ' ' || i.\"unique\" || ' '
        || (SELECT group_concat(COALESCE(name, 'expression'), ',')
            FROM (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno))
    FROM sqlite_schema t JOIN pragma_index_list(t.name) i
    WHERE t.type = 'table' AND i.origin = 'c' ORDER BY i.name";

const POSTGRES_INDEXES: &str = "SELECT n.relname || ' ' || t.relname || ' ' || CAST(CAST(i.indisunique AS INT) AS TEXT)
        || ' ' || (SELECT string_agg(COALESCE(a.attname, 'expression'), ',' ORDER BY k.place)
            FROM unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
            LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.attnum AND a.attnum > 0)
    FROM pg_index i JOIN pg_class n ON n.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
    WHERE t.relnamespace = CAST('public' AS regnamespace) AND NOT i.indisprimary ORDER BY n.relname COLLATE \"C\"";

#[test]
fn postgres_has_the_tables_of_sqlite() {
    let (mut sqlite, mut sqlite_indexes) = (Vec::new(), Vec::new());
    on_sqlite(async |db| {
        let connection = rusqlite::Connection::open(db.path()).unwrap();
        let mut statement = connection.prepare(SQLITE_COLUMNS).unwrap();
        let column = |row: &rusqlite::Row<'_>| {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
            ))
        };
        sqlite = statement
            .query_map([], column)
            .unwrap()
            .map(Result::unwrap)
            .collect::<Vec<Column>>();
        sqlite_indexes = db.texts(SQLITE_INDEXES).await;
        let loose = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0
            AND name NOT LIKE 'sqlite_%'";
        assert_eq!(db.texts(loose).await, Vec::<String>::new(), "not STRICT");
    });
    assert!(sqlite.len() > 40, "{sqlite:?}");
    on_postgres(async |db| {
        let rows = connect(&db.url)
            .await
            .query(POSTGRES_COLUMNS, &[])
            .await
            .unwrap();
        let postgres: Vec<Column> = rows
            .iter()
            .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4)))
            .collect();
        for (sqlite, postgres) in sqlite.iter().zip(&postgres) {
            assert_eq!(sqlite, postgres);
        }
        assert_eq!(sqlite.len(), postgres.len());
        assert_eq!(sqlite_indexes, db.texts(POSTGRES_INDEXES).await);
        let sorted_otherwise = "SELECT CAST(table_name || '.' || column_name AS TEXT) FROM information_schema.columns
            WHERE table_schema = 'public' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'";
        let columns = db.texts(sorted_otherwise).await;
        assert_eq!(columns, Vec::<String>::new(), "not in the order of bytes");
        let ids_as_text = "SELECT CAST(table_name || '.' || column_name AS TEXT) FROM information_schema.columns
            WHERE table_schema = 'public' AND data_type = 'text' AND column_name ~ '(^|_)id$' ORDER BY 1";
        // Of the provider and of the machine, and an actor may be a Unix user.
        let others = [
            "accounts.provider_account_id",
            "audit.actor_id",
            "connections.institution_id",
            "connections.provider_connection_id",
            "instances.boot_id",
            "webhook_events.institution_id",
        ];
        assert_eq!(db.texts(ids_as_text).await, others);
    });
}

#[test]
fn the_primary_key_begins_with_the_user() {
    on_sqlite(async |db| {
        let first =
            "SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
            WHERE t.type = 'table' AND c.pk = 1 ORDER BY t.name";
        for column in db.texts(first).await {
            let own = [
                "users.id",
                "schema_migrations.version",
                "provider_events.provider",
                "instances.id",
                "audit.id",
                "first_start.id",
                "provider_settings.provider",
            ];
            // Of operators, who are no users.
            let own = own.contains(&column.as_str()) || column.starts_with("operator_");
            assert!(own || column.ends_with(".user_id"), "{column}");
        }
    });
}
