//! What a user's own file has, compared with the schema.

use bellbird_domain::UserId;

use crate::tests::fixtures::{console_session, sign_in_link};
use crate::tests::support::{TestDb, at, both, key};
use crate::{LEFT_OUT, OWN_TABLES, OwnTable, Storage, in_tx};

const SCHEMA: &str = include_str!("../../../migrations/0001_initial.sql");

/// Columns that are not in the file: digests, what only the program needs, and what is about
/// somebody else.
const COLUMNS_LEFT_OUT: [&str; 24] = [
    // SHA-256 of secrets, and digests of rows and of providers' ids.
    "key_hash",
    "token_hash",
    "browser_hash",
    "cookie_hash",
    "state_hash",
    "provider_user_digest",
    "known_consents",
    "removal_hints",
    "row_keys",
    "row_locator",
    "removed",
    // The user, who has the file.
    "user_id",
    "email_folded",
    // Counters and leases.
    "is_requested",
    "revision",
    "change_version",
    "lease_until",
    "holder",
    "fence",
    // Who did it, and whose endpoint it is.
    "actor_id",
    "owner_id",
    // Of a table that is left out.
    "purpose",
    "sealed",
    "entries",
];

/// The columns of each table of the schema that has rows about users.
fn tables_of_users() -> Vec<(&'static str, Vec<&'static str>)> {
    let tables = SCHEMA.split("CREATE TABLE ").skip(1).map(|rest| {
        let (name, rest) = rest.split_once(" (").unwrap();
        let body = rest.split_once("\n)").unwrap().0;
        let lines = body
            .lines()
            .filter_map(|line| line.strip_prefix("    "))
            .filter(|line| !line.starts_with(' '));
        let words = lines.filter_map(|line| line.split(' ').next());
        (
            name,
            words
                .filter(|word| word.chars().all(|c| c == '_' || c.is_ascii_lowercase()))
                .collect::<Vec<_>>(),
        )
    });
    tables
        .filter(|(name, columns)| *name == "users" || columns.contains(&"user_id"))
        .collect()
}

#[test]
fn every_column_about_a_user_is_in_the_file_or_left_out() {
    let tables = tables_of_users();
    assert!(tables.len() >= 25, "{tables:?}");
    for (name, columns) in &tables {
        if LEFT_OUT.iter().any(|(left_out, _)| left_out == name) {
            continue;
        }
        let table = OWN_TABLES
            .iter()
            .find(|table| table.name == *name)
            .unwrap_or_else(|| panic!("{name} is missing"));
        for column in columns {
            let is_shown = table.columns().any(|shown| shown == *column);
            assert!(
                is_shown || COLUMNS_LEFT_OUT.contains(column),
                "{name}.{column} is missing"
            );
        }
    }
    for OwnTable { name, .. } in OWN_TABLES {
        assert!(tables.iter().any(|(table, _)| table == name), "{name}");
    }
    for column in COLUMNS_LEFT_OUT {
        assert!(SCHEMA.contains(&format!("    {column} ")), "{column}");
    }
}

/// All rows of a table, as the file has them.
async fn rows(db: &Storage, name: &str, user: UserId) -> Vec<String> {
    let table = OWN_TABLES.iter().find(|table| table.name == name).unwrap();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let (rows, next) = db.own_rows(table, user, after.as_ref()).await.unwrap();
        found.extend(rows.iter().map(|row| serde_json::to_string(row).unwrap()));
        let Some(next) = next else { return found };
        after = Some(next);
    }
}

both! {
    async fn rows_are_those_of_the_user(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        for (user, number) in [(user, 1), (other, 2)] {
            in_tx!(db, keys::insert(user, &key(number), "laptop", None, at(1))).await.unwrap();
        }
        let found = rows(db, "api_keys", user).await;
        let [found] = &found[..] else { panic!("{found:?}") };
        let id = db.keys().list(user).await.unwrap()[0].id;
        let expected = format!(
            r#"{{"id":"{id}","name":"laptop","prefix":"bb_1111111","createdAt":"{}","lastUsedAt":null,{}}}"#,
            at(1),
            r#""expiresAt":null,"revokedAt":null,"replacedBy":null"#
        );
        assert_eq!(*found, expected);
        assert!(rows(db, "users", user).await[0].contains(r#""isOperator":false"#));
        db.sessions().insert_link(&sign_in_link(user, "link", 60), 1, at(0)).await.unwrap();
        db.sessions().sign_in("link", &console_session("t", "secret"), at(1)).await.unwrap().unwrap();
        assert_eq!(rows(db, "known_browsers", user).await, [format!(r#"{{"signedInAt":"{}"}}"#, at(1))]);
        // Pages follow each other.
        read_all_counts(db, user).await;
        for table in OWN_TABLES {
            rows(db, table.name, user).await;
        }
    }
}

/// More rows than a page has, with a key of three columns.
async fn read_all_counts(db: &TestDb, user: UserId) {
    let mut values = Vec::new();
    for key in 0..9 {
        for day in 0..9 {
            for route in 0..9 {
                values
                    .push(format!("('{user}', '00000000-0000-7000-8000-00000000000{key}', {day}, '/{route}', {key})"));
            }
        }
    }
    db.raw(&format!(
        "INSERT INTO key_reads (user_id, key_id, day, route, requests) VALUES {}",
        values.join(", ")
    ))
    .await;
    let mut found = rows(db, "key_reads", user).await;
    assert_eq!(found.len(), 729);
    assert!(
        found[0].contains(r#""day":"1970-01-01","route":"/0","requests":0"#),
        "{}",
        found[0]
    );
    found.dedup();
    assert_eq!(found.len(), 729);
}
