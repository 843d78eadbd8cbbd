//! Applies pending migrations to the database.
//!
//! The table `schema_migrations` records the applied migrations with the SHA-256 of their text. An
//! edited migration is an error, and so is every schema that this program does not know: only a
//! database without tables is empty.
//!
//! The version of a program is that of its newest migration. Instances are upgraded one after
//! another, so an older program starts and stays ready on a newer schema, unless a migration needs
//! a newer program: see [`Migration::oldest_compatible`].

use std::time::Duration;

use bellbird_domain::Clock;

use crate::db::postgres::{ServerError, is_lock_conflict};
use crate::db::{Db, from_row, params, statements};
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

const HEADER: &str = "-- oldest-compatible: ";

impl Migration {
    /// The oldest version whose programs work with the schema after this migration, from the first
    /// line of its file. Without that line it is the migration's own version.
    pub(crate) fn oldest_compatible(&self) -> i64 {
        let header = self
            .text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix(HEADER));
        header
            .and_then(|version| version.trim().parse().ok())
            .unwrap_or(self.version)
    }
}

/// How long a migration waits for other sessions of PostgreSQL. While it waits for a table,
/// everything behind it waits for that table too, so one try is short. `tries` also bounds how long
/// an instance waits for another that migrates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryBudget {
    pub(crate) lock_timeout: Duration,
    pub(crate) pause: Duration,
    pub(crate) tries: u32,
}

/// Five minutes.
const RETRY_BUDGET: RetryBudget = RetryBudget {
    lock_timeout: Duration::from_secs(3),
    pause: Duration::from_secs(1),
    tries: 75,
};

/// Oldest first. Never edit a released migration: a test compares it with its digest in
/// released.sha256.
pub(crate) const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "0001_initial",
    text: include_str!("../migrations/0001_initial.sql"),
}];

const TABLE: &str = "schema_migrations";

/// Tables that an error lists.
const LISTED_MAX: usize = 3;

/// PostgreSQL: the role may not do this.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    oldest_compatible INTEGER NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;";

/// A migration's word for the type of an id. SQLite has no such type, and stores the text.
const SQLITE_WORDS: [(&str, &str); 1] = [("UUID", "TEXT")];

/// Replacements that turn SQLite's dialect into PostgreSQL's. Longer texts come first. The
/// collation "C" sorts by bytes, as SQLite does.
const POSTGRES_WORDS: [(&str, &str); 6] = [
    ("-- PostgreSQL: ", ""),
    (") STRICT, WITHOUT ROWID;", ");"),
    (") STRICT;", ");"),
    ("INTEGER", "BIGINT"),
    ("BLOB", "BYTEA"),
    ("TEXT", "TEXT COLLATE \"C\""),
];

statements! {
    LIST_APPLIED = "SELECT version, name, sha256, oldest_compatible FROM schema_migrations ORDER BY version";

    INSERT_APPLIED = "INSERT INTO schema_migrations (version, name, sha256, oldest_compatible, applied_at)
        VALUES ($1, $2, $3, $4, $5)";

    /// Names are quoted as a statement needs them.
    PERMISSIONS_ON_POSTGRES = "", on_postgres = "SELECT quote_ident(current_user), quote_ident(current_database()),
            quote_ident(pg_get_userbyid(d.datdba)),
            CAST(CASE WHEN has_schema_privilege(current_schema(), 'CREATE') THEN 1 ELSE 0 END AS BIGINT),
            (SELECT quote_ident(t.tableowner) FROM pg_tables t
                WHERE t.schemaname = current_schema() AND t.tablename = 'schema_migrations'
                    AND NOT pg_has_role(current_user, t.tableowner, 'USAGE'))
        FROM pg_database d WHERE d.datname = current_database()";
}

/// What the role of a PostgreSQL connection may do.
struct Permissions {
    role: String,
    database: String,
    database_owner: String,
    may_create: bool,
    /// The owner of the tables, if the role does not have its rights.
    table_owner: Option<String>,
}

from_row! {
    fn permissions(row) -> Permissions {
        role, database, database_owner, may_create, table_owner,
    }
}

impl Permissions {
    /// Says what the role lacks, and how it gets that. None if it lacks nothing.
    fn advice(&self) -> Option<String> {
        let Self {
            role,
            database,
            database_owner,
            may_create,
            table_owner,
        } = self;
        let (reason, statement) = match table_owner {
            Some(owner) => (
                format!(
                    "may not use the tables of the database {database}, which {owner} owns: connect as {owner}"
                ),
                format!("REASSIGN OWNED BY {owner} TO {role}"),
            ),
            None if *may_create => return None,
            None if database_owner == role => (
                format!("may not create tables in the database {database}"),
                format!("GRANT USAGE, CREATE ON SCHEMA public TO {role}"),
            ),
            None => (
                format!(
                    "may not create tables in the database {database}, which {database_owner} owns"
                ),
                format!("ALTER DATABASE {database} OWNER TO {role}"),
            ),
        };
        let link = if table_owner.is_some() { ", or" } else { ":" };
        Some(format!(
            "PostgreSQL's role {role} {reason}{link} run `{statement}` there as a superuser"
        ))
    }
}

impl Storage {
    /// Applies the pending migrations in one transaction, while other instances wait. Returns the
    /// names of the applied ones. On PostgreSQL, it tries again for minutes if other sessions hold
    /// locks.
    ///
    /// # Errors
    /// [`StorageError::Schema`] if the schema is not known, or needs a newer program.
    /// [`StorageError::Open`] if PostgreSQL denies it.
    pub async fn migrate(&self) -> Result<Vec<String>> {
        self.migrate_to(MIGRATIONS, RETRY_BUDGET).await
    }

    /// As [`Self::migrate`], with a given list.
    pub(crate) async fn migrate_to(
        &self,
        migrations: &[Migration],
        budget: RetryBudget,
    ) -> Result<Vec<String>> {
        let mut tries = 1;
        // Takes no lock if nothing is pending, which is so for all instances but the first of a new
        // version.
        while !self.pending_of(migrations).await?.is_empty() {
            match self.try_migrate(migrations, budget.lock_timeout).await {
                Err(error) if is_lock_conflict(&error) && tries < budget.tries => {
                    tracing::warn!(tries, "migration waits for other sessions");
                    tokio::time::sleep(budget.pause).await;
                    tries += 1;
                }
                Err(error) => return Err(self.explain_denied(error).await),
                done => return done,
            }
        }
        Ok(Vec::new())
    }

    async fn try_migrate(
        &self,
        migrations: &[Migration],
        lock_timeout: Duration,
    ) -> Result<Vec<String>> {
        let mut tx = self.db.begin_migration(lock_timeout).await?;
        tx.script(script(&self.db, CREATE_TABLE)).await?;
        let applied = tx.all(LIST_APPLIED, params![], applied).await?;
        let pending = pending(migrations, &applied)?;
        for migration in &pending {
            tx.script(script(&self.db, migration.text)).await?;
            let sha256 = sha256(migration.text);
            let oldest = migration.oldest_compatible();
            let values = params![
                migration.version,
                migration.name,
                &sha256,
                oldest,
                Clock::system().now()
            ];
            tx.run(INSERT_APPLIED, values).await?;
        }
        tx.commit().await?;
        Ok(names(&pending))
    }

    /// The names of the migrations that [`Self::migrate`] would apply.
    pub async fn pending_migrations(&self) -> Result<Vec<String>> {
        self.pending_of(MIGRATIONS).await
    }

    /// Whether pending migrations are those of an empty database.
    pub fn is_first_migration(pending: &[String]) -> bool {
        pending.first().map(String::as_str) == MIGRATIONS.first().map(|migration| migration.name)
    }

    /// Fails if PostgreSQL would deny [`Self::migrate`], and says what to grant.
    pub async fn check_may_migrate(&self) -> Result<()> {
        if matches!(self.db, Db::Sqlite(_)) {
            return Ok(());
        }
        let found = self
            .db
            .one(PERMISSIONS_ON_POSTGRES, params![], permissions)
            .await?;
        match found.and_then(|permissions| permissions.advice()) {
            Some(advice) => Err(StorageError::Open(advice)),
            None => Ok(()),
        }
    }

    /// Turns a denial of PostgreSQL into one that says what to grant. Leaves other errors as they
    /// are.
    async fn explain_denied(&self, error: StorageError) -> StorageError {
        let StorageError::Unavailable(source) = &error else {
            return error;
        };
        if source
            .downcast_ref::<ServerError>()
            .is_none_or(|error| error.code != INSUFFICIENT_PRIVILEGE)
        {
            return error;
        }
        self.check_may_migrate()
            .await
            .err()
            .filter(|error| matches!(error, StorageError::Open(_)))
            .unwrap_or(error)
    }

    /// The name of the newest migration that was applied, perhaps by a newer program. `None` for an
    /// empty database.
    ///
    /// # Errors
    /// As [`Self::migrate`].
    pub async fn schema_version(&self) -> Result<Option<String>> {
        Ok(self.list_applied().await?.pop().map(|newest| newest.name))
    }

    /// As [`Self::pending_migrations`], with a given list.
    pub(crate) async fn pending_of(&self, migrations: &[Migration]) -> Result<Vec<String>> {
        Ok(names(&pending(migrations, &self.list_applied().await?)?))
    }

    /// The applied migrations, oldest first. None for an empty database.
    async fn list_applied(&self) -> Result<Vec<Applied>> {
        match self.db.all(LIST_APPLIED, params![], applied).await {
            Err(StorageError::Schema(_)) => {}
            Err(error) => return Err(self.explain_denied(error).await),
            done => return done,
        }
        let tables = self.tables().await?;
        if tables.iter().any(|table| table == TABLE) {
            // Another instance may have made it since.
            return match self.db.all(LIST_APPLIED, params![], applied).await {
                Err(StorageError::Schema(_)) => {
                    Err(unknown_schema(&format!("{TABLE} lacks a column")))
                }
                other => other,
            };
        }
        if tables.is_empty() {
            return Ok(Vec::new());
        }
        let listed = tables
            .iter()
            .take(LISTED_MAX)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        let more = if tables.len() > LISTED_MAX {
            ", ..."
        } else {
            ""
        };
        Err(unknown_schema(&format!(
            "it has the tables {listed}{more}, and no {TABLE}"
        )))
    }
}

/// For a schema that no released version of this program made. `what` is the difference.
fn unknown_schema(what: &str) -> StorageError {
    StorageError::Schema(format!(
        "the database was made by an unreleased or older version of Bellbird, or by another program, and this version \
         cannot upgrade it ({what}): go back to the version that made it, restore a backup of this version, or name an \
         empty database in database.url"
    ))
}

/// Translates a script into the dialect of the database.
fn script(db: &Db, text: &str) -> String {
    let words: &[(&str, &str)] = match db {
        Db::Sqlite(_) => &SQLITE_WORDS,
        Db::Postgres(_) => &POSTGRES_WORDS,
    };
    words.iter().fold(text.to_owned(), |text, (written, word)| {
        text.replace(written, word)
    })
}

struct Applied {
    version: i64,
    name: String,
    sha256: String,
    oldest_compatible: i64,
}

from_row! {
    fn applied(row) -> Applied {
        version, name, sha256, oldest_compatible,
    }
}

/// Checks the applied migrations, then returns the pending ones.
fn pending<'m>(migrations: &'m [Migration], applied: &[Applied]) -> Result<Vec<&'m Migration>> {
    let own_version = migrations
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0);
    for entry in applied {
        let Some(migration) = migrations
            .iter()
            .find(|migration| migration.version == entry.version)
        else {
            if entry.version <= own_version {
                return Err(unknown_schema(&format!("it has {}", entry.name)));
            }
            if entry.oldest_compatible <= own_version {
                continue;
            }
            return Err(StorageError::Schema(format!(
                "the database was migrated by a newer version: it has {}, with which this version does not work; \
                 upgrade this instance",
                entry.name
            )));
        };
        if migration.name != entry.name || sha256(migration.text) != entry.sha256 {
            return Err(unknown_schema(&format!(
                "its migration {} is another one",
                entry.name
            )));
        }
    }
    let newest = applied.iter().map(|entry| entry.version).max().unwrap_or(0);
    let pending: Vec<_> = migrations
        .iter()
        .filter(|migration| {
            applied
                .iter()
                .all(|entry| entry.version != migration.version)
        })
        .collect();
    match pending.first() {
        Some(gap) if gap.version < newest => Err(unknown_schema(&format!(
            "it has later migrations than {}, but not that one",
            gap.name
        ))),
        _ => Ok(pending),
    }
}

fn names(migrations: &[&Migration]) -> Vec<String> {
    migrations
        .iter()
        .map(|migration| migration.name.to_owned())
        .collect()
}

fn sha256(text: &str) -> String {
    hex(hash(text).as_ref())
}
