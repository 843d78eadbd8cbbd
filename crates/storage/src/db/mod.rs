//! Two databases behind one face: one SQL text, one way to bind, one way to read a row.
//!
//! Rules that keep one text true on both: `$1` placeholders; ids and words are TEXT, times and counts are BIGINT,
//! secrets and hashes are bytes; no casts by `::`, no functions that only one of the two knows.

pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::str::FromStr;
use std::sync::Arc;

use bellbird_domain::{AccountId, ConnectionId, Currency, EndpointId, EventId, KeyId, SyncRunId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::StorageError;
use postgres::{Postgres, PostgresTx};
use sqlite::{Sqlite, SqliteTx};

type Result<T> = std::result::Result<T, StorageError>;

/// Reads one row into a value.
pub(crate) type Map<T> = fn(&Row<'_>) -> Result<T>;

/// A statement that is on its module's list, and so is prepared on both databases by a test.
///
/// Made by [`statements!`] only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sql {
    /// The constant's name, for the messages of that test.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the test that prepares every statement"))]
    pub(crate) name: &'static str,
    /// The text, for both databases unless [`Self::on_postgres`] said otherwise.
    pub(crate) text: &'static str,
    /// The text for PostgreSQL.
    pub(crate) postgres: &'static str,
}

impl Sql {
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, postgres: text }
    }

    /// The same statement as PostgreSQL needs it: with row locks, which SQLite has no words for.
    pub(crate) const fn on_postgres(self, postgres: &'static str) -> Self {
        Self { postgres, ..self }
    }
}

/// Declares the statements of a module, and the list of them all.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr $(, on_postgres = $postgres:expr)?;)*) => {
        $($(#[$doc])* const $name: $crate::db::Sql =
            $crate::db::Sql::new(stringify!($name), $text)$(.on_postgres($postgres))?;)*

        /// Every statement of this module.
        #[cfg(test)]
        pub(crate) const STATEMENTS: &[$crate::db::Sql] = &[$($name),*];
    };
}
pub(crate) use statements;

/// A value for a placeholder: `params![user, name]` is what `$1` and `$2` stand for.
#[derive(Clone, Copy)]
pub(crate) enum Param<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    Blob(&'a [u8]),
    /// Written as text, in lower case with hyphens, without a string on the heap.
    Id(Uuid),
}

macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::db::Param::from($value)),*] };
}
pub(crate) use params;

impl From<i64> for Param<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl<'a> From<&'a str> for Param<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Param<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Blob(value)
    }
}

impl From<Timestamp> for Param<'_> {
    fn from(value: Timestamp) -> Self {
        Self::Int(value.as_microsecond())
    }
}

impl<'a, T: Into<Param<'a>>> From<Option<T>> for Param<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<'a> From<&'a Currency> for Param<'a> {
    fn from(value: &'a Currency) -> Self {
        Self::Text(value.as_str())
    }
}

macro_rules! param_ids {
    ($($id:ty),*) => {$(
        impl From<$id> for Param<'_> {
            fn from(value: $id) -> Self {
                Self::Id(value.uuid())
            }
        }
    )*};
}
param_ids!(UserId, KeyId, ConnectionId, AccountId, EndpointId, EventId, SyncRunId);

/// A row of either database. Columns count from 0.
pub(crate) enum Row<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    Postgres(&'a tokio_postgres::Row),
}

const WRONG_TYPE: StorageError = StorageError::Corrupt("a column of an unexpected type");

impl Row<'_> {
    pub(crate) fn opt_text(&self, column: usize) -> Result<Option<&str>> {
        match self {
            Self::Sqlite(row) => {
                row.get_ref(column).ok().and_then(|value| value.as_str_or_null().ok()).ok_or(WRONG_TYPE)
            }
            Self::Postgres(row) => row.try_get(column).map_err(|_| WRONG_TYPE),
        }
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str> {
        self.opt_text(column)?.ok_or(WRONG_TYPE)
    }

    pub(crate) fn opt_int(&self, column: usize) -> Result<Option<i64>> {
        match self {
            Self::Sqlite(row) => {
                row.get_ref(column).ok().and_then(|value| value.as_i64_or_null().ok()).ok_or(WRONG_TYPE)
            }
            Self::Postgres(row) => row.try_get(column).map_err(|_| WRONG_TYPE),
        }
    }

    pub(crate) fn int(&self, column: usize) -> Result<i64> {
        self.opt_int(column)?.ok_or(WRONG_TYPE)
    }

    /// An integer of a smaller range; one beyond it is corrupt, and `what` says which.
    pub(crate) fn number<T: TryFrom<i64>>(&self, column: usize, what: &'static str) -> Result<T> {
        T::try_from(self.int(column)?).map_err(|_| StorageError::Corrupt(what))
    }

    /// As [`Self::number`], where there may be none.
    pub(crate) fn opt_number<T: TryFrom<i64>>(&self, column: usize, what: &'static str) -> Result<Option<T>> {
        let read = |value| T::try_from(value).map_err(|_| StorageError::Corrupt(what));
        self.opt_int(column)?.map(read).transpose()
    }

    pub(crate) fn blob(&self, column: usize) -> Result<&[u8]> {
        match self {
            Self::Sqlite(row) => row.get_ref(column).ok().and_then(|value| value.as_bytes().ok()).ok_or(WRONG_TYPE),
            Self::Postgres(row) => row.try_get(column).map_err(|_| WRONG_TYPE),
        }
    }

    pub(crate) fn opt_time(&self, column: usize) -> Result<Option<Timestamp>> {
        self.opt_int(column)?.map(timestamp).transpose()
    }

    pub(crate) fn time(&self, column: usize) -> Result<Timestamp> {
        self.int(column).and_then(timestamp)
    }

    pub(crate) fn id<T: From<Uuid>>(&self, column: usize) -> Result<T> {
        Uuid::try_parse(self.text(column)?).map(T::from).map_err(|_| StorageError::Corrupt("an id"))
    }

    /// As [`Self::id`], where there may be none.
    pub(crate) fn opt_id<T: From<Uuid>>(&self, column: usize) -> Result<Option<T>> {
        let read = |text| Uuid::try_parse(text).map(T::from).map_err(|_| StorageError::Corrupt("an id"));
        self.opt_text(column)?.map(read).transpose()
    }

    /// One of a closed set of words; an unknown one is corrupt, and `what` says which.
    pub(crate) fn word<T: FromStr>(&self, column: usize, what: &'static str) -> Result<T> {
        self.text(column)?.parse().map_err(|_| StorageError::Corrupt(what))
    }

    /// As [`Self::word`], where there may be none.
    pub(crate) fn opt_word<T: FromStr>(&self, column: usize, what: &'static str) -> Result<Option<T>> {
        self.opt_text(column)?.map(|word| word.parse().map_err(|_| StorageError::Corrupt(what))).transpose()
    }
}

fn timestamp(microseconds: i64) -> Result<Timestamp> {
    Timestamp::from_microsecond(microseconds).map_err(|_| StorageError::Corrupt("a time"))
}

/// The instant as the database will give it back: whole microseconds.
pub(crate) fn stored(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

/// A database, cheap to clone.
#[derive(Clone)]
pub(crate) enum Db {
    Sqlite(Arc<Sqlite>),
    Postgres(Postgres),
}

impl Db {
    /// All rows of a read.
    ///
    /// On SQLite it runs on this very thread: microseconds, bounded by the statement's `LIMIT` or by what one user
    /// owns. The PostgreSQL half is boxed, so that the other does not carry its large future around.
    pub(crate) async fn all<T>(&self, sql: Sql, params: &[Param<'_>], map: Map<T>) -> Result<Vec<T>> {
        match self {
            Self::Sqlite(db) => db.all(sql, params, map),
            Self::Postgres(db) => Box::pin(db.all(sql, params, map)).await,
        }
    }

    /// The first row of a read, if any.
    pub(crate) async fn one<T>(&self, sql: Sql, params: &[Param<'_>], map: Map<T>) -> Result<Option<T>> {
        match self {
            Self::Sqlite(db) => db.one(sql, params, map),
            Self::Postgres(db) => Box::pin(db.all(sql, params, map)).await.map(first),
        }
    }

    /// Begins a transaction that will write. Dropping it undoes everything.
    pub(crate) async fn begin(&self) -> Result<Tx> {
        match self {
            Self::Sqlite(db) => db.begin("BEGIN IMMEDIATE").await.map(Tx::Sqlite),
            Self::Postgres(db) => Box::pin(db.begin()).await.map(Tx::Postgres),
        }
    }

    /// Begins a transaction while nobody else migrates.
    pub(crate) async fn begin_migration(&self) -> Result<Tx> {
        match self {
            Self::Sqlite(db) => db.begin("BEGIN EXCLUSIVE").await.map(Tx::Sqlite),
            Self::Postgres(db) => Box::pin(db.begin_migration()).await.map(Tx::Postgres),
        }
    }

    /// Claims a few rows that are due, in a transaction of its own. `is_due` is asked first, with the present moment
    /// alone: `claim` takes SQLite's one writer, also when there is nothing.
    pub(crate) async fn claim_due<T>(
        &self,
        (is_due, claim): (Sql, Sql),
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
        map: Map<T>,
    ) -> Result<Vec<T>> {
        if self.one(is_due, params![now], |_| Ok(())).await?.is_none() {
            return Ok(Vec::new());
        }
        let mut tx = self.begin().await?;
        let claims = tx.all(claim, params![now, lease_until, i64::from(limit)], map).await?;
        tx.commit().await?;
        Ok(claims)
    }

    /// One write that stands alone. Gives the number of rows touched.
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
}

/// A transaction. On SQLite the only one that writes; on PostgreSQL at READ COMMITTED, made orderly by taking the
/// user's row first.
pub(crate) enum Tx {
    Sqlite(SqliteTx),
    Postgres(Box<PostgresTx>),
}

impl Tx {
    pub(crate) async fn all<T>(&mut self, sql: Sql, params: &[Param<'_>], map: Map<T>) -> Result<Vec<T>> {
        match self {
            Self::Sqlite(tx) => tx.all(sql, params, map),
            Self::Postgres(tx) => Box::pin(tx.all(sql, params, map)).await,
        }
    }

    pub(crate) async fn one<T>(&mut self, sql: Sql, params: &[Param<'_>], map: Map<T>) -> Result<Option<T>> {
        self.all(sql, params, map).await.map(first)
    }

    /// Gives the number of rows touched.
    pub(crate) async fn run(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        match self {
            Self::Sqlite(tx) => tx.run(sql, params),
            Self::Postgres(tx) => Box::pin(tx.run(sql, params)).await,
        }
    }

    /// Runs a script of several statements without parameters, on a thread where it may take its time.
    pub(crate) async fn script(&mut self, text: &'static str) -> Result<()> {
        match self {
            Self::Sqlite(tx) => tx.script(text).await,
            Self::Postgres(tx) => Box::pin(tx.script(text)).await,
        }
    }

    pub(crate) async fn commit(self) -> Result<()> {
        match self {
            Self::Sqlite(tx) => tx.commit().await,
            Self::Postgres(tx) => Box::pin(tx.commit()).await,
        }
    }

    /// Undoes everything, when that is the expected outcome. After an error, dropping does the same.
    pub(crate) async fn rollback(self) {
        match self {
            Self::Sqlite(tx) => drop(tx),
            Self::Postgres(tx) => Box::pin(tx.rollback()).await,
        }
    }
}

fn first<T>(rows: Vec<T>) -> Option<T> {
    rows.into_iter().next()
}
