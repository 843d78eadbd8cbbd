//! The SQLite half: a few read connections, one writer.
//!
//! # Settings of every connection
//!
//! * `journal_mode = WAL`: readers and the writer do not wait for each other, in one process or several.
//! * `synchronous = FULL`: a commit is on the disk before the call returns. With `NORMAL` a power cut would lose the
//!   commits since the last checkpoint (never the file's integrity): a revoked key would work again, a provider's
//!   renewed credentials would be gone. Writes are rare here, so the wait for the disk is worth it.
//! * `busy_timeout = 5000`: another process that writes (the command line beside the service) is waited for.
//! * `foreign_keys = ON`: SQLite does not check them unless told, connection by connection.
//! * `cache_size = -8000`: 8 MB of pages a connection; the whole database of most installations.
//! * `mmap_size`: pages are read from the kernel's cache without copying them; 64 MiB is far more than the data.
//! * `temp_store = MEMORY`: sorting never makes a file.
//! * `secure_delete = ON`: what is deleted or overwritten is zeros in the file from then on, not bytes that a thief of
//!   the file reads in pages that nobody uses. It costs a page more to write here and there, and writes are rare.
//! * query planner stability (`SQLITE_DBCONFIG_ENABLE_QPSG`): without it this build of SQLite, which has STAT4,
//!   compiles a statement anew whenever other values are bound to it, though it is cached, and a read of 4 µs takes 13.
//! * `query_only = ON` on read connections: a mistake cannot write around the writer's lock.
//!
//! `PRAGMA optimize` and a checkpoint run when the database is closed.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, ffi};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use crate::db::row::{Map, Row};
use crate::db::statement::{Param, Sql};
use crate::error::{Result, StorageError};

/// More readers than threads that run requests would only hold memory.
const READERS_MAX: usize = 16;
const READERS_MIN: usize = 2;
/// Statements a connection keeps compiled: more than there are.
const STATEMENT_CACHE_SIZE: usize = 256;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long closing may take: a reader of another process can hold a checkpoint up.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const PRAGMAS: &str = "PRAGMA synchronous = FULL;
    PRAGMA foreign_keys = ON;
    PRAGMA cache_size = -8000;
    PRAGMA mmap_size = 67108864;
    PRAGMA temp_store = MEMORY;
    PRAGMA secure_delete = ON;";

type Writer = OwnedMutexGuard<Connection>;

/// One database file, opened several times.
pub(crate) struct Sqlite {
    readers: Box<[Mutex<Connection>]>,
    writer: Arc<tokio::sync::Mutex<Connection>>,
}

impl Sqlite {
    /// Opens the file, making it if it is missing, readable by its owner only.
    pub(crate) async fn open(path: PathBuf) -> Result<Self> {
        blocking(move || {
            create_private(&path)?;
            let writer = connect(&path)?;
            let count = std::thread::available_parallelism().map_or(READERS_MIN, usize::from);
            let readers = (0..count.clamp(READERS_MIN, READERS_MAX)).map(|_| {
                let reader = connect(&path)?;
                reader.execute_batch("PRAGMA query_only = ON;").map_err(failed)?;
                Ok(Mutex::new(reader))
            });
            let readers = readers.collect::<Result<_>>()?;
            Ok(Self { readers, writer: Arc::new(tokio::sync::Mutex::new(writer)) })
        })
        .await
    }

    /// Every thread has a favourite reader, whose pages and statements are warm in its cache. When that one is taken,
    /// any free one will do; when all are, the favourite is waited for: reads are short.
    fn reader(&self) -> MutexGuard<'_, Connection> {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        std::thread_local!(static FAVOURITE: usize = THREADS.fetch_add(1, Ordering::Relaxed));
        let count = self.readers.len();
        let favourite = FAVOURITE.with(|number| number % count);
        (0..count)
            .find_map(|step| self.readers[(favourite + step) % count].try_lock())
            .unwrap_or_else(|| self.readers[favourite].lock())
    }

    pub(crate) fn all<T>(&self, sql: Sql, params: &[Param<'_>], map: Map<T>) -> Result<Vec<T>> {
        all(&self.reader(), sql, params, map)
    }

    pub(crate) fn one<T>(&self, sql: Sql, params: &[Param<'_>], map: Map<T>) -> Result<Option<T>> {
        let reader = self.reader();
        let mut statement = bound(&reader, sql, params)?;
        let mut rows = statement.raw_query();
        rows.next().map_err(failed)?.map(|row| map(&Row::Sqlite(row))).transpose()
    }

    /// Waits for the writer, then for other processes, and begins. `how` takes the write lock at once: a transaction
    /// that read first and then wanted to write would fail without waiting for `busy_timeout`.
    pub(crate) async fn begin(&self, how: &'static str) -> Result<SqliteTx> {
        let writer = Arc::clone(&self.writer).lock_owned().await;
        blocking(move || {
            if !writer.is_autocommit() {
                writer.execute_batch("ROLLBACK").map_err(failed)?;
            }
            writer.execute_batch(how).map_err(failed)?;
            // Made in here: should the caller give up meanwhile, dropping the result rolls back.
            Ok(SqliteTx { writer: Some(writer) })
        })
        .await
    }

    /// Brings the planner's statistics up to date and moves the log into the file, if nobody holds it up.
    pub(crate) async fn close(&self) -> Result<()> {
        let optimize = async {
            let writer = Arc::clone(&self.writer).lock_owned().await;
            blocking(move || {
                writer.execute_batch("PRAGMA optimize;").map_err(failed)?;
                // Gives a row, and "busy" in it when a reader is in the way: the next opening will do it.
                writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(failed)
            })
            .await
        };
        tokio::time::timeout(CLOSE_TIMEOUT, optimize).await.map_err(StorageError::unavailable)?
    }

    /// Writes the whole file anew and empties the log, so that neither holds anything but what the rows say now. Gives
    /// false when somebody else's reading kept the log from being emptied.
    ///
    /// `secure_delete` sees to what this version deletes. An older one left deleted bytes in free pages, and pages
    /// that were written before stay in the log until it is used again from its start.
    pub(crate) async fn compact(&self) -> Result<bool> {
        let writer = Arc::clone(&self.writer).lock_owned().await;
        blocking(move || {
            if !writer.is_autocommit() {
                writer.execute_batch("ROLLBACK").map_err(failed)?;
            }
            writer.execute_batch("VACUUM").map_err(failed)?;
            // Waits for readers as long as `busy_timeout` says.
            let busy: i64 =
                writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(failed)?;
            Ok(busy == 0)
        })
        .await
    }

    /// How often the cached statement was compiled anew, over all readers.
    #[cfg(test)]
    pub(crate) fn recompiled(&self, sql: Sql) -> i32 {
        let count = |reader: &Mutex<Connection>| {
            let reader = reader.lock();
            let statement = reader.prepare_cached(sql.text).expect(sql.name);
            statement.get_status(rusqlite::StatementStatus::RePrepare)
        };
        self.readers.iter().map(count).sum()
    }

    /// Compiles a statement and gives its number of parameters.
    #[cfg(test)]
    pub(crate) fn check(&self, sql: Sql) -> Result<usize> {
        let reader = self.reader();
        let statement = reader.prepare(sql.text).map_err(failed)?;
        Ok(statement.parameter_count())
    }
}

/// A transaction on the one writer.
pub(crate) struct SqliteTx {
    /// None only once it is committed, or while another thread has it.
    writer: Option<Writer>,
}

impl SqliteTx {
    fn writer(&self) -> Result<&Connection> {
        self.writer.as_deref().ok_or_else(|| StorageError::unavailable("the transaction was given up"))
    }

    pub(crate) fn all<T>(&self, sql: Sql, params: &[Param<'_>], map: Map<T>) -> Result<Vec<T>> {
        all(self.writer()?, sql, params, map)
    }

    pub(crate) fn run(&self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        let touched = bound(self.writer()?, sql, params)?.raw_execute().map_err(failed)?;
        Ok(touched as u64)
    }

    pub(crate) async fn script(&mut self, text: Cow<'static, str>) -> Result<()> {
        let Some(writer) = self.writer.take() else { return self.writer().map(|_| ()) };
        let mut moved = Self { writer: Some(writer) };
        *self = blocking(move || {
            moved.writer()?.execute_batch(&text).map_err(failed)?;
            Ok(Self { writer: moved.writer.take() })
        })
        .await?;
        Ok(())
    }

    /// On a thread of its own: it waits for the disk. It is carried out even when the caller gives up.
    pub(crate) async fn commit(self) -> Result<()> {
        blocking(move || {
            let mut tx = self;
            tx.writer()?.execute_batch("COMMIT").map_err(failed)?;
            tx.writer = None;
            Ok(())
        })
        .await
    }
}

impl Drop for SqliteTx {
    fn drop(&mut self) {
        if let Some(writer) = &self.writer
            && let Err(error) = writer.execute_batch("ROLLBACK")
        {
            // The next transaction tries again before it begins.
            tracing::warn!(%error, "a transaction could not be rolled back");
        }
    }
}

fn all<T>(connection: &Connection, sql: Sql, params: &[Param<'_>], map: Map<T>) -> Result<Vec<T>> {
    let mut statement = bound(connection, sql, params)?;
    let mut rows = statement.raw_query();
    let mut values = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        values.push(map(&Row::Sqlite(row))?);
    }
    Ok(values)
}

/// Binds by the number in the placeholder's name.
///
/// To SQLite `$1` is a name, and names are numbered as they appear: by position, `SELECT $2, $1` would get its values
/// swapped. As all names of a statement differ, equal counts mean that every placeholder has its value.
fn bound<'c>(connection: &'c Connection, sql: Sql, params: &[Param<'_>]) -> Result<CachedStatement<'c>> {
    let mut statement = connection.prepare_cached(sql.text).map_err(failed)?;
    let count = statement.parameter_count();
    assert_eq!(count, params.len(), "placeholders and parameters of {}", sql.text);
    for index in 1..=count {
        let number = statement.parameter_name(index).and_then(|name| name.get(1..)?.parse::<usize>().ok());
        let param = number.and_then(|number| params.get(number.checked_sub(1)?));
        let Some(param) = param else { unreachable!("placeholders of {} are not $1 to ${count}", sql.text) };
        bind(&mut statement, index, *param).map_err(failed)?;
    }
    Ok(statement)
}

fn bind(statement: &mut CachedStatement<'_>, index: usize, param: Param<'_>) -> rusqlite::Result<()> {
    let mut buffer = Uuid::encode_buffer();
    let value = match param {
        Param::Null => ValueRef::Null,
        Param::Int(number) => ValueRef::Integer(number),
        Param::Text(text) => ValueRef::Text(text.as_bytes()),
        Param::Blob(bytes) => ValueRef::Blob(bytes),
        Param::Id(id) => ValueRef::Text(id.hyphenated().encode_lower(&mut buffer).as_bytes()),
    };
    statement.raw_bind_parameter(index, ToSqlOutput::Borrowed(value))
}

/// What an error of SQLite means to the caller.
fn failed(error: rusqlite::Error) -> StorageError {
    let (code, extended, message) = match &error {
        rusqlite::Error::SqliteFailure(error, message) => (error.code, error.extended_code, message.as_deref()),
        rusqlite::Error::SqlInputError { error, msg, .. } => (error.code, error.extended_code, Some(msg.as_str())),
        _ => return StorageError::unavailable(error),
    };
    match (code, extended) {
        (_, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => StorageError::Conflict("row"),
        (_, ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => StorageError::Conflict("reference"),
        (ErrorCode::Unknown, _) if message.is_some_and(|message| message.starts_with("no such ")) => {
            StorageError::migration_needed()
        }
        _ => StorageError::unavailable(error),
    }
}

/// A new file is for its owner only: what is sealed stays sealed, but names and times are nobody else's business.
fn create_private(path: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(StorageError::unavailable(error)),
        _ => Ok(()),
    }
}

fn connect(path: &Path) -> Result<Connection> {
    // Without the URI flag: a path is a path, whatever characters it has.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
    use_wal(&connection)?;
    connection.execute_batch(PRAGMAS).map_err(failed)?;
    Ok(connection)
}

/// Turns the write-ahead log on. When several processes do so to a new file at once, SQLite tells all but one that the
/// file is busy without waiting, so the waiting is done here.
fn use_wal(connection: &Connection) -> Result<()> {
    let pause = Duration::from_millis(20);
    let mut left = BUSY_TIMEOUT;
    loop {
        let mode = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(_) => return Err(StorageError::unavailable("the file system of the database has no write-ahead log")),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && !left.is_zero() => {
                left = left.saturating_sub(pause);
                std::thread::sleep(pause);
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Runs what may wait for the disk or for another process on a thread made for waiting.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(StorageError::unavailable)?
}
