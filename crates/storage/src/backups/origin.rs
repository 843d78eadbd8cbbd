//! Knows whether a database was restored from a backup, and whether the operator has decided about that since.
//!
//! The table `database_origin` has one row. A backup of SQLite is marked in it. A row of PostgreSQL names its own
//! `xmin` and `tableoid`: `pg_restore` inserts it in another transaction and another table, so they differ. `VACUUM
//! FREEZE` and `VACUUM FULL` keep both. A physical copy has them too, so it cannot be noticed.
//!
//! The row also names the restore by a random number. What clients keep from another history has another one.

use jiff::Timestamp;

use crate::db::{params, statements};
use crate::error::Result;
use crate::{Backups, StorageError};

/// Counts all rows, and those that were written here.
macro_rules! count_origins {
    ($here:literal) => {
        concat!("SELECT COUNT(*), COUNT(CASE WHEN origin = ", $here, " THEN 1 END) FROM database_origin")
    };
}

statements! {
    COUNT_ORIGINS = count_origins!("'original'"),
        on_postgres = count_origins!("format('%s %s', xmin, tableoid)");

    DELETE_ORIGIN = "DELETE FROM database_origin";

    INSERT_ORIGINAL = "INSERT INTO database_origin (origin, restore_id) VALUES ('original', random())",
        on_postgres = "INSERT INTO database_origin (origin, restore_id)
            SELECT format('%s %s', txid_current() % 4294967296, oid), CAST(random() * 9007199254740992 AS BIGINT)
            FROM pg_class
            WHERE oid = CAST('database_origin' AS regclass)";

    DELETE_LINKS = "DELETE FROM links";

    /// They may have been claimed since the backup. A claimed one creates no key again.
    DELETE_UNCLAIMED_TOKENS = "DELETE FROM setup_tokens WHERE key_id IS NULL";

    /// A session may have ended since the backup.
    DELETE_SESSIONS = "DELETE FROM sessions";

    DELETE_SIGN_IN_LINKS = "DELETE FROM sign_in_links";

    INSERT_COPY = "INSERT INTO database_origin (origin) VALUES ('copy')";

    FIND_CREATED_AT = "SELECT applied_at FROM schema_migrations ORDER BY version LIMIT 1";
}

impl Backups<'_> {
    /// Whether this database was restored from a backup, and the operator has not decided yet what stays revoked.
    pub async fn awaits_restore_decision(self) -> Result<bool> {
        let counts = self.0.db.one(COUNT_ORIGINS, params![], |row| Ok((row.int(0)?, row.int(1)?))).await?;
        Ok(counts != Some((1, 1)))
    }

    /// Ends the wait for a decision. Link URLs and setup tokens of the backup never work again.
    pub async fn set_restore_decided(self) -> Result<()> {
        let statements = [
            DELETE_ORIGIN,
            INSERT_ORIGINAL,
            DELETE_LINKS,
            DELETE_UNCLAIMED_TOKENS,
            DELETE_SESSIONS,
            DELETE_SIGN_IN_LINKS,
        ];
        self.0.db.batch(&statements.map(|sql| sql.with(&[]))).await.map(|_| ())
    }

    /// Makes the database wait for a decision.
    pub(crate) async fn set_copy(self) -> Result<()> {
        self.0.db.batch(&[DELETE_ORIGIN, INSERT_COPY].map(|sql| sql.with(&[]))).await.map(|_| ())
    }

    /// When the database was first created. Its backups have the same time.
    pub(crate) async fn created_at(self) -> Result<Timestamp> {
        let created_at = self.0.db.one(FIND_CREATED_AT, params![], |row| row.time(0)).await?;
        created_at.ok_or_else(StorageError::migration_needed)
    }
}
