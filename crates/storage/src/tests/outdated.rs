//! Deletions of what is outdated.

use crate::tests::support::{at, on_postgres};

/// Tables, and what fills each with 500 outdated rows.
const FILLED: [(&str, &str); 4] = [
    (
        "audit",
        "INSERT INTO audit (id, actor_kind, actor_id, action, user_id, is_reported, recorded_at)
        SELECT gen_random_uuid(), 'command', 'root', 'user.create', gen_random_uuid(), 0, 0
        FROM generate_series(1, 500)",
    ),
    (
        "connection_audit",
        "INSERT INTO connection_audit (user_id, id, connection_id, changed_at, cause)
        SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 0, 'imported'
        FROM generate_series(1, 500)",
    ),
    (
        "key_reads",
        "INSERT INTO key_reads (user_id, key_id, day, route, requests)
        SELECT gen_random_uuid(), gen_random_uuid(), 0, '/v1/me', 1 FROM generate_series(1, 500)",
    ),
    (
        "known_browsers",
        "INSERT INTO known_browsers (user_id, cookie_hash, signed_in_at)
        SELECT u.id, decode(md5(CAST(n AS TEXT)), 'hex'), 0
        FROM users u CROSS JOIN generate_series(1, 500) n",
    ),
];

/// Fails a statement that deletes many rows, as the server's time limit does with millions.
const LIMIT: &str = "CREATE FUNCTION reject_many() RETURNS TRIGGER LANGUAGE plpgsql AS $$
    BEGIN
        IF (SELECT COUNT(*) FROM gone) > 200 THEN RAISE 'many rows'; END IF;
        RETURN NULL;
    END $$";

#[test]
fn postgres_deletes_few_rows_in_a_statement() {
    on_postgres(async |db| {
        db.user("a@x").await;
        db.raw(LIMIT).await;
        for (table, fill) in FILLED {
            db.raw(fill).await;
            db.raw(&format!(
                "CREATE TRIGGER few AFTER DELETE ON {table} REFERENCING OLD TABLE AS gone
                FOR EACH STATEMENT EXECUTE FUNCTION reject_many()"
            ))
            .await;
        }
        let deleted = [
            db.audit().delete_outdated(at(0)).await,
            db.connections().delete_outdated_audit(at(0)).await,
            db.key_reads().delete_outdated(at(0)).await,
            db.sessions().forget_browsers(at(0)).await,
        ];
        assert_eq!(deleted.map(Result::unwrap), [500; 4]);
    });
}
