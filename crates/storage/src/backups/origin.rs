//! Knows whether a database was restored from a backup, and whether the operator has decided about
//! that since.
//!
//! The table `database_origin` has one row. A backup of SQLite is marked in it. A row of PostgreSQL
//! names its own `xmin` and `tableoid`: `pg_restore` inserts it in another transaction and another
//! table, so they differ. `VACUUM FREEZE` and `VACUUM FULL` keep both. A physical copy has them
//! too, so it cannot be noticed.
//!
//! The row also names the restore by a random number. What clients keep from another history has
//! another one.

use crate::Backups;
use crate::db::{Tx, pair, params, statements};
use crate::error::Result;

/// Counts all rows, and those that were written here.
macro_rules! count_origins {
    ($here:literal) => {
        concat!(
            "SELECT COUNT(*), COUNT(CASE WHEN origin = ",
            $here,
            " THEN 1 END) FROM database_origin"
        )
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

    INSERT_COPY = "INSERT INTO database_origin (origin) VALUES ('copy')";
}

impl Backups<'_> {
    /// Whether this database was restored from a backup, and the operator has not decided about
    /// that yet.
    pub async fn awaits_restore_decision(self) -> Result<bool> {
        let counts = self
            .db
            .one(COUNT_ORIGINS, params![], pair::<i64, i64>)
            .await?;
        Ok(counts != Some((1, 1)))
    }

    /// Makes the database wait for a decision.
    pub(crate) async fn set_copy(self) -> Result<()> {
        self.db
            .batch(&[DELETE_ORIGIN, INSERT_COPY].map(|sql| sql.with(&[])))
            .await
            .map(|_| ())
    }
}

/// Ends the wait for a decision.
pub(super) async fn set_decided(tx: &mut Tx) -> Result<()> {
    tx.batch(&[DELETE_ORIGIN, INSERT_ORIGINAL].map(|sql| sql.with(&[])))
        .await
        .map(|_| ())
}
