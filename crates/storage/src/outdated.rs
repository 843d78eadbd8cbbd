//! Deletes what is outdated, a few rows in each transaction. One for all of them would hold up
//! other writers, and never succeed once they take longer than PostgreSQL lets a statement run.

use crate::db::{Db, Param, Sql};
use crate::error::Result;

/// Rows deleted in one transaction: few enough that other writers hardly wait.
pub(crate) const DELETE_BATCH_SIZE: i64 = 200;

/// Deletes up to `$2` rows. On PostgreSQL, `$lock` skips rows that another transaction has locked,
/// and a later cleanup deletes them. `MATERIALIZED` picks the rows once, as in `jobs/mod.rs`.
macro_rules! delete_some {
    ($table:literal, $key:literal, $rest:expr, $lock:literal) => {
        concat!(
            "WITH old AS MATERIALIZED (SELECT ",
            $key,
            " FROM ",
            $table,
            " WHERE ",
            $rest,
            " LIMIT $2",
            $lock,
            ") DELETE FROM ",
            $table,
            " WHERE (",
            $key,
            ") IN (SELECT ",
            $key,
            " FROM old)"
        )
    };
}
pub(crate) use delete_some;

/// Deletes all rows with a statement of [`delete_some!`], but for those that others have locked.
/// Returns their number. `has_any` tells before each step whether a row is left, because a step
/// takes SQLite's one writer. `until` is `$1` of both.
pub(crate) async fn delete_in_steps(
    db: &Db,
    has_any: Sql,
    delete: Sql,
    until: Param<'_>,
) -> Result<u64> {
    let mut deleted = 0;
    while db.exists(has_any, &[until]).await? {
        let values = [until, DELETE_BATCH_SIZE.into()];
        match db.run(delete, &values).await? {
            // Another transaction has locked the rows that are left.
            0 => break,
            rows => deleted += rows,
        }
    }
    Ok(deleted)
}
