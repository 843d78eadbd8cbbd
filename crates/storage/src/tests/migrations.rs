use bellbird_domain::{ConnectionId, UserId};
use secrecy::ExposeSecret as _;

use super::{GRANT, TestDb, at, both, connect, on_empty_postgres, on_empty_sqlite, on_postgres, on_sqlite};
use crate::{SealedFor, Sealer, Storage, StorageError};

/// Table, column, kind, whether it may be null, place in the primary key (0: none).
type Column = (String, String, String, bool, i64);

async fn first_time(storage: &Storage) {
    assert!(matches!(storage.ping().await, Err(StorageError::Schema(_))));
    let pending = storage.pending_migrations().await.unwrap();
    assert_eq!(pending.first().map(String::as_str), Some("0001_initial"));
    assert_eq!(storage.migrate().await.unwrap(), pending);
    assert_eq!(storage.pending_migrations().await.unwrap(), Vec::<String>::new());
    assert_eq!(storage.migrate().await.unwrap(), Vec::<String>::new());
    storage.ping().await.unwrap();
}

#[tokio::test]
async fn sqlite_migrates_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("new.db").display());
    first_time(&Storage::open(&url, Sealer::random()).await.unwrap()).await;
}

#[test]
fn postgres_migrates_once() {
    on_empty_postgres(async |db| first_time(db).await);
}

#[test]
fn postgres_migrates_once_even_if_two_begin() {
    on_empty_postgres(async |db| {
        let other = db.again().await;
        let (first, second) = tokio::join!(db.migrate(), other.migrate());
        assert!(first.unwrap().is_empty() ^ second.unwrap().is_empty());
    });
}

/// Fills the tables as the version did that knew two migrations, and migrates on.
async fn grants_move(db: &TestDb) {
    assert_eq!(db.migrate_as_of(2).await.unwrap().len(), 2);
    let user = UserId::new();
    db.raw(&format!("INSERT INTO users VALUES ('{user}', 'a@x', 'a@x', 'saver', NULL, 7, 0)")).await;
    let statuses = ["active", "revoked", "deleting"];
    let ids = statuses.map(|_| ConnectionId::new());
    for (id, status) in ids.iter().zip(statuses) {
        let row = (user.to_string(), id.to_string());
        let sealed = SealedFor { purpose: "grant", row: &[&row.0, &row.1] };
        let sealed = db.bytes(&db.sealer.seal(sealed, GRANT.as_bytes()).unwrap());
        db.raw(&format!(
            "INSERT INTO connections (user_id, id, provider, category, provider_connection_id, institution_id,
                institution_name, status, created_at)
            VALUES ('{user}', '{id}', 'akahu', 'banking', 'c_{status}', 'bank_1', 'First Bank', '{status}', 5);
            INSERT INTO connection_grants VALUES ('{user}', '{id}', {sealed})"
        ))
        .await;
    }
    assert_eq!(db.migrate().await.unwrap().first().map(String::as_str), Some("0003_linking"));
    for id in ids {
        assert_eq!(db.find_grant(user, id).await.unwrap().expect("moved").expose_secret(), GRANT);
    }
    assert_eq!(db.sealed_secrets().await.unwrap().opened_by.into_values().sum::<u64>(), 3);
    let syncs = db.texts("SELECT COALESCE(CAST(sync_at AS TEXT), '') FROM connections ORDER BY status").await;
    assert_eq!(syncs, ["5", "", "5"], "as soon as there are syncs, but not of what goes");
    let due = db.claim_due_syncs(at(0), at(1), 9).await.unwrap();
    assert!(due.len() == 2 && due.iter().all(|claim| claim.synced_at.is_none() && claim.attempts == 0));
    let due = db.claim_due_looks(at(0), at(1), 9).await.unwrap();
    assert_eq!(due.len(), 2, "nobody has looked at them, and the third is going");
    assert_eq!(db.revision(user).await, 7);
    let removal = db.claim_due_removals(at(0), at(1), 9).await.unwrap().remove(0);
    assert!(db.finish_removal(&removal, "deleted", at(0)).await.unwrap());
    assert_eq!(db.secrets_for("grant").await, 2);
}

#[test]
fn sqlite_keeps_its_grants() {
    on_empty_sqlite(grants_move);
}

#[test]
fn postgres_keeps_its_grants() {
    on_empty_postgres(grants_move);
}

both! {
    async fn a_changed_migration_is_refused(db) {
        db.raw("UPDATE schema_migrations SET sha256 = 'another' WHERE version = 1").await;
        for error in [db.migrate().await.unwrap_err(), db.pending_migrations().await.unwrap_err()] {
            let StorageError::Schema(text) = error else { panic!("{error:?}") };
            assert!(text.contains("0001_initial"), "{text}");
        }
    }

    async fn a_newer_database_is_refused(db) {
        db.raw("INSERT INTO schema_migrations VALUES (9999, '9999_later', 'x', 0)").await;
        for error in [db.migrate().await.unwrap_err(), db.pending_migrations().await.unwrap_err()] {
            let StorageError::Schema(text) = error else { panic!("{error:?}") };
            assert!(text.contains("newer version") && text.contains("9999_later"), "{text}");
        }
    }

    async fn a_missing_column_is_a_matter_of_migration(db) {
        db.raw("ALTER TABLE users DROP COLUMN timezone").await;
        assert!(matches!(db.list_users().await, Err(StorageError::Schema(_))));
    }
}

const SQLITE_COLUMNS: &str = "SELECT t.name, c.name, c.type, c.\"notnull\" = 0, c.pk
    FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY t.name, c.name";

const POSTGRES_COLUMNS: &str = "SELECT CAST(t.relname AS TEXT), CAST(a.attname AS TEXT),
        CASE a.atttypid WHEN 25 THEN 'TEXT' WHEN 20 THEN 'INTEGER' WHEN 17 THEN 'BLOB' ELSE '?' END,
        NOT a.attnotnull, CAST(COALESCE(array_position(CAST(p.indkey AS SMALLINT[]), a.attnum) + 1, 0) AS BIGINT)
    FROM pg_class t
    JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_index p ON p.indrelid = t.oid AND p.indisprimary
    WHERE t.relnamespace = CAST('public' AS regnamespace) AND t.relkind = 'r'
    ORDER BY t.relname COLLATE \"C\", a.attname COLLATE \"C\"";

/// Index, its table and columns, whether it is unique.
const SQLITE_INDEXES: &str = "SELECT i.name || ' ' || t.name || ' ' || i.\"unique\" || ' '
        || (SELECT group_concat(name, ',') FROM (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno))
    FROM sqlite_schema t JOIN pragma_index_list(t.name) i
    WHERE t.type = 'table' AND i.origin = 'c' ORDER BY i.name";

const POSTGRES_INDEXES: &str = "SELECT n.relname || ' ' || t.relname || ' ' || CAST(CAST(i.indisunique AS INT) AS TEXT)
        || ' ' || (SELECT string_agg(a.attname, ',' ORDER BY k.place)
            FROM unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
            JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.attnum)
    FROM pg_index i JOIN pg_class n ON n.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
    WHERE t.relnamespace = CAST('public' AS regnamespace) AND NOT i.indisprimary ORDER BY n.relname COLLATE \"C\"";

#[test]
fn both_databases_have_the_same_tables() {
    let (mut ours, mut our_indexes) = (Vec::new(), Vec::new());
    on_sqlite(async |db| {
        let connection = rusqlite::Connection::open(db.url.strip_prefix("sqlite:").unwrap()).unwrap();
        let mut statement = connection.prepare(SQLITE_COLUMNS).unwrap();
        let column = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
        ours = statement.query_map([], column).unwrap().map(Result::unwrap).collect::<Vec<Column>>();
        our_indexes = db.texts(SQLITE_INDEXES).await;
        let loose = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0
            AND name NOT LIKE 'sqlite_%'";
        assert_eq!(db.texts(loose).await, Vec::<String>::new(), "not STRICT");
    });
    assert!(ours.len() > 40, "{ours:?}");
    on_postgres(async |db| {
        let rows = connect(&db.url).await.query(POSTGRES_COLUMNS, &[]).await.unwrap();
        let theirs: Vec<Column> =
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))).collect();
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(ours.len(), theirs.len());
        assert_eq!(our_indexes, db.texts(POSTGRES_INDEXES).await);
        let sorted_otherwise = "SELECT CAST(table_name || '.' || column_name AS TEXT) FROM information_schema.columns
            WHERE table_schema = 'public' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'";
        assert_eq!(db.texts(sorted_otherwise).await, Vec::<String>::new(), "not in the order of bytes");
    });
}

#[test]
fn the_primary_key_begins_with_the_user() {
    on_sqlite(async |db| {
        let first = "SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
            WHERE t.type = 'table' AND c.pk = 1 ORDER BY t.name";
        for column in db.texts(first).await {
            let own = ["users.id", "schema_migrations.version", "provider_events.provider"].contains(&column.as_str());
            assert!(own || column.ends_with(".user_id"), "{column}");
        }
    });
}
