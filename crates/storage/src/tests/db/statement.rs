//! Both databases accept every statement of the crate.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::db::statement::{names, numbered};
use crate::db::{Db, Param, Sql};
use crate::tests::support::{at, both, connect, key, new_account, on_postgres, on_sqlite};

/// The first column of each unique index.
const UNIQUE_OVER_ALL_USERS: [&str; 13] = [
    "api_keys (id)",
    "api_keys (key_hash)",
    "audit (id)",
    "connections (id)",
    "connections (provider)",
    "consent_sessions (state_hash)",
    "identities (issuer)",
    "links (id)",
    "links (token_hash)",
    "operator_requests (operator_key_id)",
    "sessions (token_hash)",
    "setup_tokens (token_hash)",
    "sign_in_links (token_hash)",
];

fn statements() -> impl Iterator<Item = &'static Sql> {
    [
        crate::STATEMENTS,
        crate::backups::access::STATEMENTS,
        crate::backups::origin::STATEMENTS,
        crate::contents::STATEMENTS,
        crate::management::first_start::STATEMENTS,
        crate::management::provider_settings::STATEMENTS,
        crate::connections::accounts::STATEMENTS,
        crate::connections::imports::STATEMENTS,
        crate::connections::audit::STATEMENTS,
        crate::connections::connection::STATEMENTS,
        crate::webhooks::deliveries::STATEMENTS,
        crate::instances::STATEMENTS,
        crate::connections::overview::STATEMENTS,
        crate::webhooks::delivery_log::STATEMENTS,
        crate::webhooks::endpoints::STATEMENTS,
        crate::linking::provider_events::STATEMENTS,
        crate::users::caller_lookups::STATEMENTS,
        crate::users::keys::STATEMENTS,
        crate::users::emails::STATEMENTS,
        crate::users::identities::STATEMENTS,
        crate::users::key_reads::STATEMENTS,
        crate::users::own_data::STATEMENTS,
        crate::users::sessions::STATEMENTS,
        crate::users::setup_tokens::STATEMENTS,
        crate::linking::consent_session_claims::STATEMENTS,
        crate::linking::consent_sessions::STATEMENTS,
        crate::linking::links::STATEMENTS,
        crate::connections::refreshes::STATEMENTS,
        crate::connections::events::STATEMENTS,
        crate::connections::consent_notices::STATEMENTS,
        crate::connections::fingerprints::STATEMENTS,
        crate::connections::account_merge::STATEMENTS,
        crate::locks::STATEMENTS,
        crate::jobs::STATEMENTS,
        crate::jobs::overview::STATEMENTS,
        crate::migrate::STATEMENTS,
        crate::management::audit::STATEMENTS,
        crate::management::operator_keys::STATEMENTS,
        crate::management::requests::STATEMENTS,
        crate::linking::cleanup::STATEMENTS,
        crate::webhooks::webhook_events::STATEMENTS,
        crate::linking::provider_users::STATEMENTS,
        crate::webhooks::redeliveries::STATEMENTS,
        crate::webhooks::queues::STATEMENTS,
        crate::connections::removals::STATEMENTS,
        crate::secrets::store::STATEMENTS,
        crate::connections::syncs::STATEMENTS,
        crate::users::removal::STATEMENTS,
        crate::users::user::STATEMENTS,
    ]
    .into_iter()
    .flatten()
}

/// Whether a statement names the user of the rows that it finds.
fn is_of_one_user(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let names_user = words.windows(3).any(|words| {
        let column = words[0].rsplit(['.', '(']).next().unwrap_or_default();
        column == "user_id" && words[1] == "=" && words[2].starts_with(['$', ':'])
    });
    names_user || text.starts_with("INSERT") || text.contains("users WHERE id = $")
}

/// Cells would need a directory for each of them that serves a request
/// (`docs/several-instances.md`). A new one shows here.
#[test]
fn statements_that_are_not_of_one_user_are_known() {
    let line = |sql: &Sql| {
        let text = sql
            .postgres
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let text: String = text.chars().take(150).collect();
        format!("{}: {text}", sql.name)
    };
    let found: BTreeSet<String> = statements()
        .filter(|sql| !is_of_one_user(sql.postgres))
        .map(line)
        .collect();
    insta::assert_snapshot!(Vec::from_iter(found).join("\n"));
}

/// Rows of a user can move to another database as long as a value is unique within one user only.
#[test]
fn postgres_has_few_values_that_are_unique_over_all_users() {
    on_postgres(async |db| {
        let sql = "SELECT t.relname || ' (' || pg_get_indexdef(i.indexrelid, 1, true) || ')'
            FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
            JOIN pg_attribute u ON u.attrelid = t.oid AND u.attname = 'user_id'
            WHERE i.indisunique AND pg_get_indexdef(i.indexrelid, 1, true) <> 'user_id' ORDER BY 1";
        let client = connect(&db.url).await;
        let found: Vec<String> = client
            .query(sql, &[])
            .await
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert_eq!(found, UNIQUE_OVER_ALL_USERS);
    });
}

both! {
    async fn prepares_every_statement(db) {
        let mut rejected = Vec::new();
        for sql in statements() {
            let (count, text) = match &db.db {
                Db::Sqlite(_) if sql.text.is_empty() => continue,
                Db::Sqlite(db) => (db.check(*sql), sql.text),
                Db::Postgres(db) => (db.check(*sql).await, sql.postgres),
            };
            match count {
                Ok(count) => assert_eq!(count, placeholders(text), "{}: {text}", sql.name),
                Err(error) => rejected.push(format!("{}: {error:?}\n{text}\n", sql.name)),
            }
        }
        assert!(rejected.is_empty(), "{}", rejected.concat());
    }
}

/// Compiling takes longer than most reads, so new parameters must not recompile a cached statement.
#[test]
fn sqlite_compiles_a_read_once() {
    on_sqlite(async |db| {
        for number in 0..5 {
            let user = db.user(&format!("{number}@x")).await.id;
            db.key(user, number).await;
            db.connection(user, &format!("c{number}"), &[new_account("acc", "Name")])
                .await;
            assert!(
                db.keys()
                    .find_caller(&key(number), at(1))
                    .await
                    .unwrap()
                    .is_some()
            );
            let (accounts, _) = db.accounts().list(user, 10, 0).await.unwrap();
            db.accounts().find(user, &[accounts[0].id]).await.unwrap();
            db.connections().list(user).await.unwrap();
        }
        let Db::Sqlite(sqlite) = &db.db else {
            panic!("SQLite")
        };
        for sql in statements().filter(|sql| !sql.text.is_empty()) {
            assert_eq!(sqlite.recompiled(*sql), 0, "{}", sql.name);
        }
    });
}

/// Also where the tables had one row each when the program last ended.
#[test]
fn statements_that_scan_on_sqlite_are_known() {
    on_sqlite(async |db| {
        let user = db.user("a@x").await.id;
        db.key(user, 1).await;
        db.connection(user, "c", &[new_account("acc", "Name")])
            .await;
        db.storage().close().await;

        let file = rusqlite::Connection::open(db.path()).unwrap();
        let mut found = BTreeSet::new();
        for sql in statements().filter(|sql| !sql.text.is_empty()) {
            let mut plan = file
                .prepare(&format!("EXPLAIN QUERY PLAN {}", sql.text))
                .expect(sql.name);
            let mut steps = plan.raw_query();
            while let Some(step) = steps.next().unwrap() {
                let step: String = step.get("detail").unwrap();
                found.extend(
                    step.starts_with("SCAN")
                        .then(|| format!("{}: {step}", sql.name)),
                );
            }
        }
        insta::assert_snapshot!(Vec::from_iter(found).join("\n"));
    });
}

#[test]
fn statements_use_the_common_dialect() {
    const ONLY_ON_POSTGRES: [&str; 6] = [
        "TIME_ON_POSTGRES",
        "CONNECTIONS_MAX_ON_POSTGRES",
        "COUNT_ORIGINS",
        "INSERT_ORIGINAL",
        "LIST_TABLES",
        "PERMISSIONS_ON_POSTGRES",
    ];
    let mut only_on_postgres = 0;
    for sql in statements() {
        for word in [
            "::",
            "?",
            "ILIKE",
            "jsonb",
            "lower(",
            "now()",
            "INSERT OR",
            "FOR UPDATE",
        ] {
            assert!(!sql.text.contains(word), "{} has {word}", sql.name);
        }
        if ONLY_ON_POSTGRES.contains(&sql.name) {
            only_on_postgres += 1;
            continue;
        }
        assert_eq!(
            sql.postgres
                .replace(" FOR UPDATE SKIP LOCKED", "")
                .replace(" FOR SHARE OF p", "")
                .replace(" FOR NO KEY UPDATE", "")
                .replace(" FOR UPDATE", "")
                .replace("= ANY($1)", "= $1"),
            sql.text,
            "{}: only locks and arrays differ",
            sql.name
        );
    }
    // One reads the clock of the server and one its settings. Two are about the place of a row, two
    // read system tables.
    assert_eq!(only_on_postgres, ONLY_ON_POSTGRES.len());
}

#[test]
fn statement_takes_a_value_for_each_name() {
    let sql = Sql::new("NAME", "SELECT :user, :at_most, :user WHERE 1 = :at");
    let values = [
        ("at", 3_i64.into()),
        ("user", 1_i64.into()),
        ("at_most", 2_i64.into()),
    ];
    assert_eq!(names(sql.text), ["user", "at_most", "at"]);
    assert!(matches!(
        sql.with(&values).1[..],
        [Param::Int(1), Param::Int(2), Param::Int(3)]
    ));
    assert_eq!(numbered(sql.postgres), "SELECT $1, $2, $1 WHERE 1 = $3");
    let panics = |values: &[(&str, Param<'_>)]| {
        catch_unwind(AssertUnwindSafe(|| drop(sql.with(values)))).is_err()
    };
    assert!(
        !panics(&values)
            && panics(&values[1..])
            && panics(&[&values[..], &[("other", Param::Null)]].concat())
    );
}

/// The number of names, or of placeholders `$1`, `$2`, ... Panics if a number is missing.
fn placeholders(text: &str) -> usize {
    let names = names(text).len();
    if names > 0 {
        assert!(!text.contains('$'), "names and numbers: {text}");
        return names;
    }
    let numbers = text.split('$').skip(1).map(|rest| {
        rest.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
            .parse::<usize>()
            .expect("a number after $")
    });
    let numbers: BTreeSet<usize> = numbers.collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len()), "{text}");
    numbers.len()
}
