//! Dispatches reads, writes and transactions to SQLite or PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use crate::db::postgres::{PooledClient, Postgres};
use crate::db::row::{Column, ReadRow, scalar};
use crate::db::simulated_link::DatabaseStep;
use crate::db::sqlite::{Sqlite, SqliteTx};
use crate::db::statement::{Bound, Param, Sql};
use crate::error::{Result, StorageError};

/// Cheap to clone.
#[derive(Clone)]
pub(crate) enum Db {
    Sqlite(Arc<Sqlite>),
    Postgres(Postgres),
}

impl Db {
    /// Returns all rows of a read.
    ///
    /// On SQLite it runs on the calling thread: it takes microseconds, bounded by the `LIMIT` or by
    /// the rows of one user. The PostgreSQL future is boxed, because it is large and the SQLite
    /// path would carry it along.
    pub(crate) async fn all<T>(
        &self,
        sql: Sql,
        params: &[Param<'_>],
        map: ReadRow<T>,
    ) -> Result<Vec<T>> {
        match self {
            Self::Sqlite(db) => {
                db.link.pass(DatabaseStep::Read).await?;
                db.all(sql, params, map)
            }
            Self::Postgres(db) => Box::pin(db.all(sql, params, map)).await,
        }
    }

    /// Returns the first row of a read, if any.
    pub(crate) async fn one<T>(
        &self,
        sql: Sql,
        params: &[Param<'_>],
        map: ReadRow<T>,
    ) -> Result<Option<T>> {
        self.all(sql, params, map).await.map(first)
    }

    /// Whether a read finds a row.
    pub(crate) async fn exists(&self, sql: Sql, params: &[Param<'_>]) -> Result<bool> {
        Ok(self.one(sql, params, |_| Ok(())).await?.is_some())
    }

    /// The first column of the first row of a read. None: NULL, or no row.
    pub(crate) async fn value<T: Column>(
        &self,
        sql: Sql,
        params: &[Param<'_>],
    ) -> Result<Option<T>> {
        Ok(self.one(sql, params, scalar::<Option<T>>).await?.flatten())
    }

    /// What a `COUNT(*)` returns.
    pub(crate) async fn count(&self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        Ok(self.value(sql, params).await?.unwrap_or_default())
    }

    /// Begins a transaction for writing. Dropping it rolls back.
    pub(crate) async fn begin(&self) -> Result<Tx> {
        let tx = match self {
            Self::Sqlite(db) => OpenTx::Sqlite(db.begin("BEGIN IMMEDIATE").await?),
            Self::Postgres(db) => OpenTx::Postgres(Box::pin(db.begin()).await?),
        };
        Ok(Tx(tx))
    }

    /// Begins a transaction that excludes other migrations. On PostgreSQL, it waits up to
    /// `lock_timeout` for each lock.
    pub(crate) async fn begin_migration(&self, lock_timeout: Duration) -> Result<Tx> {
        let tx = match self {
            Self::Sqlite(db) => OpenTx::Sqlite(db.begin("BEGIN EXCLUSIVE").await?),
            Self::Postgres(db) => {
                OpenTx::Postgres(Box::pin(db.begin_migration(lock_timeout)).await?)
            }
        };
        Ok(Tx(tx))
    }

    /// Runs statements in one transaction, on PostgreSQL with one round trip. Returns the first
    /// number of each statement's first row.
    ///
    /// All of them run, whatever the first ones find. So each write states what must hold, such as
    /// the fence of a claim. On PostgreSQL, each statement sees what others committed before it
    /// began. So a lock comes first, as a statement of its own, because a single one would see the
    /// moment before it waited.
    pub(crate) async fn batch(&self, statements: &[Bound<'_>]) -> Result<Vec<Option<i64>>> {
        if let Self::Postgres(db) = self {
            return Box::pin(db.batch(statements)).await;
        }
        let mut tx = self.begin().await?;
        let numbers = tx.batch(statements).await?;
        tx.commit().await?;
        Ok(numbers)
    }

    /// Whether a claim may find a row that is due. On SQLite, `is_due` finds out, because a claim
    /// takes the one writer even if nothing is due.
    pub(crate) async fn may_be_due(&self, is_due: Sql, params: &[Param<'_>]) -> Result<bool> {
        match self {
            Self::Sqlite(_) => self.exists(is_due, params).await,
            Self::Postgres(_) => Ok(true),
        }
    }

    /// Runs one write in a transaction of its own. Returns the rows that it returns.
    pub(crate) async fn write<T>(
        &self,
        sql: Sql,
        params: &[Param<'_>],
        map: ReadRow<T>,
    ) -> Result<Vec<T>> {
        match self {
            Self::Sqlite(_) => {
                let mut tx = self.begin().await?;
                let rows = tx.all(sql, params, map).await?;
                tx.commit().await?;
                Ok(rows)
            }
            Self::Postgres(db) => Box::pin(db.all(sql, params, map)).await,
        }
    }

    /// As [`Self::write`]. Returns the first row, if any.
    pub(crate) async fn write_one<T>(
        &self,
        sql: Sql,
        params: &[Param<'_>],
        map: ReadRow<T>,
    ) -> Result<Option<T>> {
        self.write(sql, params, map).await.map(first)
    }

    /// Runs one write in a transaction of its own. Returns the number of rows it touched.
    pub(crate) async fn run(&self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        match self {
            Self::Sqlite(_) => {
                let mut tx = self.begin().await?;
                let touched = tx.run(sql, params).await?;
                tx.commit().await?;
                Ok(touched)
            }
            Self::Postgres(db) => Box::pin(db.run(sql, params)).await,
        }
    }

    /// As [`Self::run`]. Returns whether it touched a row.
    pub(crate) async fn changes(&self, sql: Sql, params: &[Param<'_>]) -> Result<bool> {
        Ok(self.run(sql, params).await? > 0)
    }

    /// As [`Self::run`], however many rows it touches.
    pub(crate) async fn execute(&self, sql: Sql, params: &[Param<'_>]) -> Result<()> {
        self.run(sql, params).await.map(|_| ())
    }
}

/// A transaction. SQLite runs one writing transaction at a time. PostgreSQL runs them at READ
/// COMMITTED, and the lock on the user's row puts those of one user in order.
pub struct Tx(OpenTx);

enum OpenTx {
    Sqlite(SqliteTx),
    Postgres(Box<PooledClient>),
}

impl Tx {
    pub(crate) async fn all<T>(
        &mut self,
        sql: Sql,
        params: &[Param<'_>],
        map: ReadRow<T>,
    ) -> Result<Vec<T>> {
        match &mut self.0 {
            OpenTx::Sqlite(tx) => tx.all(sql, params, map),
            OpenTx::Postgres(tx) => Box::pin(tx.all(sql, params, map)).await,
        }
    }

    pub(crate) async fn one<T>(
        &mut self,
        sql: Sql,
        params: &[Param<'_>],
        map: ReadRow<T>,
    ) -> Result<Option<T>> {
        self.all(sql, params, map).await.map(first)
    }

    /// Whether a read finds a row.
    pub(crate) async fn exists(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<bool> {
        Ok(self.one(sql, params, |_| Ok(())).await?.is_some())
    }

    /// The first column of the first row. None: NULL, or no row.
    pub(crate) async fn value<T: Column>(
        &mut self,
        sql: Sql,
        params: &[Param<'_>],
    ) -> Result<Option<T>> {
        Ok(self.one(sql, params, scalar::<Option<T>>).await?.flatten())
    }

    /// What a `COUNT(*)` returns.
    pub(crate) async fn count(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        Ok(self.value(sql, params).await?.unwrap_or_default())
    }

    /// Returns the number of rows it touched.
    pub(crate) async fn run(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        match &mut self.0 {
            OpenTx::Sqlite(tx) => tx.run(sql, params),
            OpenTx::Postgres(tx) => Box::pin(tx.run(sql, params)).await,
        }
    }

    /// As [`Self::run`]. Returns whether it touched a row.
    pub(crate) async fn changes(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<bool> {
        Ok(self.run(sql, params).await? > 0)
    }

    /// As [`Self::run`], however many rows it touches.
    pub(crate) async fn execute(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<()> {
        self.run(sql, params).await.map(|_| ())
    }

    /// As [`Self::execute`]. `what` names the row that is not there.
    pub(crate) async fn execute_or_not_found(
        &mut self,
        sql: Sql,
        params: &[Param<'_>],
        what: &'static str,
    ) -> Result<()> {
        match self.run(sql, params).await? {
            0 => Err(StorageError::NotFound(what)),
            _ => Ok(()),
        }
    }

    /// As [`Self::execute`]. `what` names the row of a violated constraint.
    pub(crate) async fn execute_or_conflict(
        &mut self,
        sql: Sql,
        params: &[Param<'_>],
        what: &'static str,
    ) -> Result<()> {
        let done = self.execute(sql, params).await;
        done.map_err(|error| error.or_conflict(what))
    }

    /// Returns the first number of each statement's first row.
    pub(crate) async fn batch(&mut self, statements: &[Bound<'_>]) -> Result<Vec<Option<i64>>> {
        let mut numbers = Vec::with_capacity(statements.len());
        for (sql, values) in statements {
            numbers.push(self.value(*sql, values).await?);
        }
        Ok(numbers)
    }

    /// Runs several statements without parameters, on a thread that may block.
    pub(crate) async fn script(&mut self, text: String) -> Result<()> {
        match &mut self.0 {
            OpenTx::Sqlite(tx) => tx.script(text).await,
            OpenTx::Postgres(tx) => Box::pin(tx.script(&text)).await,
        }
    }

    pub(crate) async fn commit(self) -> Result<()> {
        match self.0 {
            OpenTx::Sqlite(tx) => tx.commit().await,
            OpenTx::Postgres(mut tx) => Box::pin(tx.commit()).await,
        }
    }

    /// Rolls back when that is an expected outcome. After an error, dropping the transaction is
    /// enough.
    pub(crate) async fn rollback(self) {
        match self.0 {
            OpenTx::Sqlite(tx) => drop(tx),
            OpenTx::Postgres(mut tx) => Box::pin(tx.rollback()).await,
        }
    }
}

fn first<T>(rows: Vec<T>) -> Option<T> {
    rows.into_iter().next()
}
