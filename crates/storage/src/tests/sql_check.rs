//! Every statement of the crate is understood by both databases, and alike.

use super::{at, both, key, new_account, on_sqlite};
use crate::db::{Db, Sql};

fn statements() -> impl Iterator<Item = &'static Sql> {
    [
        crate::STATEMENTS,
        crate::accounts::STATEMENTS,
        crate::adoptions::STATEMENTS,
        crate::audit::STATEMENTS,
        crate::connections::STATEMENTS,
        crate::deliveries::STATEMENTS,
        crate::delivery_log::STATEMENTS,
        crate::endpoints::STATEMENTS,
        crate::events::STATEMENTS,
        crate::keys::STATEMENTS,
        crate::link_claims::STATEMENTS,
        crate::link_sessions::STATEMENTS,
        crate::links::STATEMENTS,
        crate::looks::STATEMENTS,
        crate::marks::STATEMENTS,
        crate::merging::STATEMENTS,
        crate::migrate::STATEMENTS,
        crate::outdated::STATEMENTS,
        crate::outgoing::STATEMENTS,
        crate::provider_users::STATEMENTS,
        crate::redeliveries::STATEMENTS,
        crate::removals::STATEMENTS,
        crate::secrets::STATEMENTS,
        crate::sync_overview::STATEMENTS,
        crate::syncs::STATEMENTS,
        crate::users::STATEMENTS,
    ]
    .into_iter()
    .flatten()
}

both! {
    async fn prepares_every_statement(db) {
        for sql in statements() {
            let count = match &db.db {
                Db::Sqlite(db) => db.check(*sql),
                Db::Postgres(db) => db.check(*sql).await,
            };
            assert_eq!(count.expect(sql.name), placeholders(sql.text), "{}: {}", sql.name, sql.text);
        }
    }
}

/// Compiling takes longer than most reads: other values for a cached statement must not cause it.
#[test]
fn sqlite_compiles_a_read_once() {
    on_sqlite(async |db| {
        for number in 0..5 {
            let user = db.user(&format!("{number}@x")).await.id;
            db.insert_key(user, &key(number), "k", None, at(0)).await.unwrap();
            db.connection(user, &format!("c{number}"), &[new_account("acc", "Name")]).await;
            assert!(db.find_caller(&key(number), at(1)).await.unwrap().is_some());
            let (accounts, _) = db.list_accounts(user, 10, 0).await.unwrap();
            db.find_accounts(user, &[accounts[0].id]).await.unwrap();
            db.list_connections(user).await.unwrap();
        }
        let Db::Sqlite(sqlite) = &db.db else { panic!("SQLite") };
        for sql in statements() {
            assert_eq!(sqlite.recompiled(*sql), 0, "{}", sql.name);
        }
    });
}

#[test]
fn no_statement_speaks_one_dialect() {
    for sql in statements() {
        for word in ["::", "?", "ILIKE", "jsonb", "lower(", "now()", "INSERT OR", "FOR UPDATE"] {
            assert!(!sql.text.contains(word), "{} has {word}", sql.name);
        }
        // The one that takes numbers out of bytes has to say in each database's words how.
        if sql.name == "UPSERT" && sql.text.contains("packed(digests)") {
            continue;
        }
        assert_eq!(
            sql.postgres.replace(" FOR UPDATE SKIP LOCKED", ""),
            sql.text,
            "{}: only the locks differ",
            sql.name
        );
    }
}

/// The highest number among `$1`, `$2`, ...; none between may be missing.
fn placeholders(text: &str) -> usize {
    let numbers = text.split('$').skip(1).map(|rest| {
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<usize>().expect("a number after $")
    });
    let numbers: std::collections::BTreeSet<usize> = numbers.collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len()), "{text}");
    numbers.len()
}
