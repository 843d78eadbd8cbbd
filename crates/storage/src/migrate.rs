//! Applies pending migrations to the database.
//!
//! The table `schema_migrations` records the applied migrations with the SHA-256 of their text. An edited migration and
//! a database of a newer version are errors.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::db::{Db, Row, params, statements};
use crate::digest::{hash, hex};
use crate::error::Result;
use crate::{Storage, StorageError};

/// A script for both databases, written in SQLite's dialect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// Oldest first. Never edit a released migration.
pub(crate) const MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "0001_initial", text: include_str!("../migrations/0001_initial.sql") }];

const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;";

/// Replacements that turn SQLite's dialect into PostgreSQL's. Longer texts come first. The collation "C" sorts by
/// bytes, as SQLite does.
const POSTGRES_WORDS: [(&str, &str); 6] = [
    ("-- PostgreSQL: ", ""),
    (") STRICT, WITHOUT ROWID;", ");"),
    (") STRICT;", ");"),
    ("INTEGER", "BIGINT"),
    ("BLOB", "BYTEA"),
    ("TEXT", "TEXT COLLATE \"C\""),
];

statements! {
    LIST_APPLIED = "SELECT version, name, sha256 FROM schema_migrations ORDER BY version";

    INSERT_APPLIED = "INSERT INTO schema_migrations (version, name, sha256, applied_at) VALUES ($1, $2, $3, $4)";
}

impl Storage {
    /// Applies the pending migrations in one transaction, while other instances wait. Returns the names of the applied
    /// ones.
    ///
    /// # Errors
    /// [`StorageError::Schema`] if an applied migration differs from this program's, or is unknown to it.
    pub async fn migrate(&self) -> Result<Vec<String>> {
        self.migrate_to(MIGRATIONS).await
    }

    /// As [`Self::migrate`], with a given list.
    pub(crate) async fn migrate_to(&self, migrations: &[Migration]) -> Result<Vec<String>> {
        let mut tx = self.db.begin_migration().await?;
        tx.script(script(&self.db, CREATE_TABLE)).await?;
        let applied = tx.all(LIST_APPLIED, params![], applied).await?;
        let pending = pending(migrations, &applied)?;
        for migration in &pending {
            tx.script(script(&self.db, migration.text)).await?;
            let sha256 = sha256(migration.text);
            let values = params![migration.version, migration.name, sha256.as_str(), Timestamp::now()];
            tx.run(INSERT_APPLIED, values).await?;
        }
        tx.commit().await?;
        Ok(names(&pending))
    }

    /// The names of the migrations that [`Self::migrate`] would apply.
    pub async fn pending_migrations(&self) -> Result<Vec<String>> {
        let applied = match self.db.all(LIST_APPLIED, params![], applied).await {
            // The table does not exist yet, so no migration was ever applied.
            Err(StorageError::Schema(_)) => Vec::new(),
            other => other?,
        };
        Ok(names(&pending(MIGRATIONS, &applied)?))
    }
}

/// Translates a script into the dialect of the database.
fn script(db: &Db, text: &'static str) -> Cow<'static, str> {
    match db {
        Db::Sqlite(_) => Cow::Borrowed(text),
        Db::Postgres(_) => {
            let replace = |text: String, (sqlite, postgres): &(&str, &str)| text.replace(sqlite, postgres);
            Cow::Owned(POSTGRES_WORDS.iter().fold(text.to_owned(), replace))
        }
    }
}

struct Applied {
    version: i64,
    name: String,
    sha256: String,
}

fn applied(row: &Row<'_>) -> Result<Applied> {
    Ok(Applied { version: row.int(0)?, name: row.text(1)?.to_owned(), sha256: row.text(2)?.to_owned() })
}

/// Checks the applied migrations, then returns the pending ones.
fn pending<'m>(migrations: &'m [Migration], applied: &[Applied]) -> Result<Vec<&'m Migration>> {
    for entry in applied {
        let Some(migration) = migrations.iter().find(|migration| migration.version == entry.version) else {
            return Err(StorageError::Schema(format!(
                "the database was migrated by a newer version: it has {}, which this version does not know",
                entry.name
            )));
        };
        if migration.name != entry.name || sha256(migration.text) != entry.sha256 {
            return Err(StorageError::Schema(format!(
                "the migration {} was applied with another text than this version's {}: restore the released files",
                entry.name, migration.name
            )));
        }
    }
    let newest = applied.iter().map(|entry| entry.version).max().unwrap_or(0);
    let pending: Vec<_> =
        migrations.iter().filter(|migration| applied.iter().all(|entry| entry.version != migration.version)).collect();
    match pending.first() {
        Some(gap) if gap.version < newest => Err(StorageError::Schema(format!(
            "the migration {} is missing in the database, although later ones were applied: restore a backup",
            gap.name
        ))),
        _ => Ok(pending),
    }
}

fn names(migrations: &[&Migration]) -> Vec<String> {
    migrations.iter().map(|migration| migration.name.to_owned()).collect()
}

fn sha256(text: &str) -> String {
    hex(hash(text).as_ref())
}
