//! Reads and changes the database directly, without the service.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;

use crate::support::harness::App;

impl App {
    pub(crate) async fn query(&self, sql: &str) -> Vec<Vec<String>> {
        query(&self.shared.database, sql).await
    }
}

/// Runs a statement. `on_postgres` is appended to it on PostgreSQL.
pub(crate) async fn execute(database: &str, sql: &str, on_postgres: &str) {
    let Some(path) = database.strip_prefix("sqlite:") else {
        query(database, &format!("{sql}{on_postgres}")).await;
        return;
    };
    let (path, sql) = (path.to_owned(), sql.to_owned());
    // The service may hold the lock in a transaction that continues on this test's only thread.
    let executed = tokio::task::spawn_blocking(move || {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection
            .busy_timeout(std::time::Duration::from_secs(5))
            .unwrap();
        connection.execute_batch(&sql).unwrap();
    });
    executed.await.unwrap();
}

/// The rows of a statement, all columns as text; bytes in hex.
pub(crate) async fn query(database: &str, sql: &str) -> Vec<Vec<String>> {
    if let Some(path) = database.strip_prefix("sqlite:") {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection
            .busy_timeout(std::time::Duration::from_secs(5))
            .unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        let count = statement.column_count();
        let shown = |value: rusqlite::types::Value| match value {
            rusqlite::types::Value::Null => String::new(),
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Real(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            rusqlite::types::Value::Blob(bytes) => {
                bytes.iter().map(|byte| format!("{byte:02x}")).collect()
            }
        };
        let rows = statement
            .query_map([], |row| {
                (0..count).map(|at| row.get(at).map(shown)).collect()
            })
            .unwrap();
        return rows.map(Result::unwrap).collect();
    }
    let (client, connection) = tokio_postgres::connect(database, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let messages = client.simple_query(sql).await.unwrap();
    let rows = messages.into_iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| {
        (0..row.len())
            .map(|at| row.get(at).unwrap_or_default().to_owned())
            .collect()
    })
    .collect()
}

/// The tables of a database, each with its columns.
pub(crate) async fn tables(database: &str) -> Vec<(String, Vec<String>)> {
    let (all, columns) = if database.starts_with("sqlite:") {
        (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_stat%'",
            "SELECT name FROM pragma_table_info('{}') ORDER BY name",
        )
    } else {
        (
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()",
            "SELECT column_name FROM information_schema.columns WHERE table_name = '{}' ORDER BY column_name",
        )
    };
    let mut tables = Vec::new();
    for table in query(database, all).await.into_iter().flatten() {
        let columns = query(database, &columns.replace("{}", &table))
            .await
            .into_iter()
            .flatten()
            .collect();
        tables.push((table, columns));
    }
    tables
}

/// Every table that contains one of these texts in any column, as text or as bytes, with that text.
/// Between letters or digits, a number is none of these: random ids contain a short one by chance.
pub(crate) async fn tables_containing(
    database: &str,
    needles: &[String],
) -> BTreeSet<(String, String)> {
    // An id that is not stored as text has no hyphens.
    let forms_of = |needle: &String| {
        let hex = needle.bytes().map(|byte| format!("{byte:02x}")).collect();
        [needle.clone(), hex, needle.replace('-', "")]
    };
    let search = AhoCorasick::new(needles.iter().flat_map(forms_of)).unwrap();
    let mut found = BTreeSet::new();
    for (table, _) in tables(database).await {
        for value in query(database, &format!("SELECT * FROM {table}"))
            .await
            .iter()
            .flatten()
        {
            for form in search.find_overlapping_iter(value) {
                let at = form.pattern().as_usize();
                let (needle, is_hex) = (&needles[at / 3], at % 3 == 1);
                let is_number = needle.bytes().all(|byte| byte.is_ascii_digit());
                let (before, after) = (&value[..form.start()], &value[form.end()..]);
                let is_within = before.ends_with(char::is_alphanumeric)
                    || after.starts_with(char::is_alphanumeric);
                if is_hex || !is_number || !is_within {
                    found.insert((table.clone(), needle.clone()));
                }
            }
        }
    }
    found
}
