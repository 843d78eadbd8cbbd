//! Brings the tables to this version of the program.
//!
//! Two folders hold scripts of the same names, one for each database. A table remembers which were applied, with the
//! SHA-256 of their text: an edited script or a database from a newer program is refused rather than guessed at.

use jiff::Timestamp;

use crate::db::{Db, Row, Tx, params, statements};
use crate::keys::{hash, hex};
use crate::{Storage, StorageError};

type Result<T> = std::result::Result<T, StorageError>;

struct Migration {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

macro_rules! migrations {
    ($($version:literal $name:literal,)*) => {
        &[$(Migration {
            version: $version,
            name: $name,
            sqlite: include_str!(concat!("../migrations/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("../migrations/postgres/", $name, ".sql")),
        },)*]
    };
}

/// All of them, oldest first. One that was released is never edited.
const MIGRATIONS: &[Migration] = migrations! {
    1 "0001_initial",
    2 "0002_removal",
    3 "0003_linking",
    4 "0004_sync",
};

const CREATE_TABLE_SQLITE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT";

const CREATE_TABLE_POSTGRES: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version BIGINT NOT NULL PRIMARY KEY,
    name TEXT COLLATE \"C\" NOT NULL,
    sha256 TEXT COLLATE \"C\" NOT NULL,
    applied_at BIGINT NOT NULL
)";

statements! {
    LIST_APPLIED = "SELECT version, name, sha256 FROM schema_migrations ORDER BY version";

    INSERT_APPLIED = "INSERT INTO schema_migrations (version, name, sha256, applied_at) VALUES ($1, $2, $3, $4)";
}

/// The error for tables that are not there.
pub(crate) fn needed() -> StorageError {
    StorageError::Schema("the database is not set up for this version: run `bellbird migrate`".to_owned())
}

impl Storage {
    /// Applies what is missing, in one transaction, while other copies wait. Gives the names applied now.
    ///
    /// # Errors
    /// [`StorageError::Schema`] when an applied migration differs from this program's, or is newer than it.
    pub async fn migrate(&self) -> Result<Vec<String>> {
        self.migrate_to(MIGRATIONS).await
    }

    /// As an older version would, which knew these only.
    #[cfg(test)]
    pub(crate) async fn migrate_as_of(&self, version: usize) -> Result<Vec<String>> {
        self.migrate_to(&MIGRATIONS[..version]).await
    }

    async fn migrate_to(&self, known: &[Migration]) -> Result<Vec<String>> {
        let mut tx = self.db.begin_migration().await?;
        tx.script(match self.db {
            Db::Sqlite(_) => CREATE_TABLE_SQLITE,
            Db::Postgres(_) => CREATE_TABLE_POSTGRES,
        })
        .await?;
        let applied = tx.all(LIST_APPLIED, params![], applied).await?;
        let missing = missing(&self.db, known, &applied)?;
        for migration in &missing {
            apply(&mut tx, migration, migration.text(&self.db)).await?;
        }
        tx.commit().await?;
        Ok(names(&missing))
    }

    /// The names of the migrations that [`Self::migrate`] would apply.
    ///
    /// # Errors
    /// As [`Self::migrate`].
    pub async fn pending_migrations(&self) -> Result<Vec<String>> {
        let applied = match self.db.all(LIST_APPLIED, params![], applied).await {
            // No table yet: nothing was ever applied.
            Err(StorageError::Schema(_)) => Vec::new(),
            other => other?,
        };
        Ok(names(&missing(&self.db, MIGRATIONS, &applied)?))
    }
}

impl Migration {
    fn text(&self, db: &Db) -> &'static str {
        match db {
            Db::Sqlite(_) => self.sqlite,
            Db::Postgres(_) => self.postgres,
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

/// What is not applied yet, after a check of what is.
fn missing<'m>(db: &Db, known: &'m [Migration], applied: &[Applied]) -> Result<Vec<&'m Migration>> {
    for done in applied {
        let Some(migration) = known.iter().find(|migration| migration.version == done.version) else {
            return Err(StorageError::Schema(format!(
                "the database was migrated by a newer version of this program: it has {}, which is unknown here",
                done.name
            )));
        };
        if migration.name != done.name || sha256(migration.text(db)) != done.sha256 {
            return Err(StorageError::Schema(format!(
                "the migration {} was applied from another text than this program's {}: restore the released files",
                done.name, migration.name
            )));
        }
    }
    let newest = applied.iter().map(|done| done.version).max().unwrap_or(0);
    let missing: Vec<_> =
        known.iter().filter(|migration| applied.iter().all(|done| done.version != migration.version)).collect();
    match missing.first() {
        Some(gap) if gap.version < newest => Err(StorageError::Schema(format!(
            "the migration {} is missing in the database, although later ones were applied",
            gap.name
        ))),
        _ => Ok(missing),
    }
}

async fn apply(tx: &mut Tx, migration: &Migration, text: &'static str) -> Result<()> {
    tx.script(text).await?;
    let sha256 = sha256(text);
    let values = params![migration.version, migration.name, sha256.as_str(), Timestamp::now()];
    tx.run(INSERT_APPLIED, values).await.map(|_| ())
}

fn names(migrations: &[&Migration]) -> Vec<String> {
    migrations.iter().map(|migration| migration.name.to_owned()).collect()
}

fn sha256(text: &str) -> String {
    hex(hash(text).as_ref())
}
