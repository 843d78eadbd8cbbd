//! Runs statements on a SQLite file, over a few read connections and one writer.
//!
//! # Settings of every connection
//!
//! * `journal_mode = WAL`: readers and the writer do not wait for each other, in one process or
//!   several.
//! * `synchronous = FULL`: a commit is on disk before the call returns. With `NORMAL`, a power
//!   failure would keep the file intact but lose the commits since the last checkpoint. A revoked
//!   key would work again, and renewed credentials would be gone. Writes are rare here, so the wait
//!   for the disk is worth it.
//! * `fullfsync`, `checkpoint_fullfsync`: on macOS, `fsync` leaves the data in the disk's own
//!   cache, and these write it through. Other systems ignore them.
//! * `busy_timeout = 5000`: waits up to 5 s for another process that writes, such as the command
//!   line.
//! * `foreign_keys = ON`: SQLite checks them only on connections that ask for it.
//! * `cache_size = -8000`: 8 MB of pages for each connection, which holds the whole database of
//!   most installations.
//! * `mmap_size`: reads pages from the kernel's cache without copying them. 64 MiB is far more than
//!   the data.
//! * `temp_store = MEMORY`: sorting never creates a file.
//! * `secure_delete = ON`: deleted and overwritten bytes become zeros, so that a stolen file does
//!   not hold them in free pages. It sometimes writes an additional page, and writes are rare.
//! * query planner stability (`SQLITE_DBCONFIG_ENABLE_QPSG`): this build has STAT4, and would
//!   otherwise recompile a cached statement whenever its parameters change. A read of 4 µs would
//!   take 13 µs.
//! * `query_only = ON` on read connections: a mistake cannot write around the writer's lock.
//!
//! The planner gets no statistics (`ANALYZE`, `PRAGMA optimize`). Those of a small table would make
//! it scan the table once it has grown. Without them it takes the index that a statement is written
//! for.
//!
//! Closing the database runs a checkpoint.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, InterruptHandle, MAIN_DB, OpenFlags, ffi};
use tempfile::NamedTempFile;
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use crate::db::file_user;
use crate::db::opened_file::OpenedFile;
use crate::db::row::{ReadRow, Row};
use crate::db::service_lock::in_use;
use crate::db::simulated_link::{DatabaseStep, SimulatedLink};
use crate::db::statement::{Param, Sql};
use crate::error::{Result, StorageError};

/// More readers than request threads would only use memory.
const READERS_MAX: usize = 16;
const READERS_MIN: usize = 2;
/// Compiled statements that a connection keeps: more than there are.
const STATEMENT_CACHE_SIZE: usize = 256;
/// Longer in tests of many writers, because SQLite serves those that wait in no order.
const BUSY_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 90 } else { 5 });
/// The longest time for closing. A reader in another process can delay the checkpoint.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const PRAGMAS: &str = "PRAGMA synchronous = FULL;
    PRAGMA fullfsync = ON;
    PRAGMA checkpoint_fullfsync = ON;
    PRAGMA foreign_keys = ON;
    PRAGMA cache_size = -8000;
    PRAGMA mmap_size = 67108864;
    PRAGMA temp_store = MEMORY;
    PRAGMA secure_delete = ON;";

/// Without the URI flag, so that a path may contain any character. Paths have no symbolic links,
/// see `file_user`.
const OPEN_FLAGS: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NOFOLLOW);

type Writer = OwnedMutexGuard<Connection>;

/// What opening does if the file does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingFile {
    /// Creates it with mode 0600.
    Create,
    Fail,
}

/// One database file with several connections.
#[derive(Clone)]
pub(crate) struct Sqlite {
    readers: Arc<[Mutex<Connection>]>,
    writer: Arc<tokio::sync::Mutex<Connection>>,
    pub(crate) file: Arc<OpenedFile>,
    pub(crate) link: SimulatedLink,
}

impl Sqlite {
    pub(crate) async fn open(path: PathBuf, missing: MissingFile) -> Result<Self> {
        blocking(move || {
            match missing {
                MissingFile::Create => create_private(&path)?,
                // For an error that says so: SQLite's is the same as without permission.
                MissingFile::Fail => std::fs::metadata(&path)
                    .map(|_| ())
                    .map_err(StorageError::unavailable)?,
            }
            let writer = connect(&path)?;
            let count = std::thread::available_parallelism().map_or(READERS_MIN, usize::from);
            let readers = (0..count.clamp(READERS_MIN, READERS_MAX)).map(|_| {
                let reader = connect(&path)?;
                reader.execute_batch("PRAGMA query_only = ON;")?;
                Ok(Mutex::new(reader))
            });
            let readers = readers.collect::<Result<_>>()?;
            let (writer, file) = (
                Arc::new(tokio::sync::Mutex::new(writer)),
                Arc::new(OpenedFile::of(path)?),
            );
            Ok(Self {
                readers,
                writer,
                file,
                link: SimulatedLink::default(),
            })
        })
        .await
    }

    /// Shares the connections of `other`.
    #[cfg(feature = "test-support")]
    pub(crate) fn simulated_by(
        other: &Self,
        simulation: Arc<dyn crate::db::simulated_link::DatabaseSimulation>,
    ) -> Self {
        let link = SimulatedLink {
            simulation: Some(simulation),
        };
        Self {
            link,
            ..other.clone()
        }
    }

    /// Each thread has a preferred reader, whose cache holds its pages and statements. If that one
    /// is busy, the thread takes any free reader. If all are busy, it waits for the preferred one,
    /// because reads are short.
    fn reader(&self) -> MutexGuard<'_, Connection> {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        std::thread_local!(static PREFERRED: usize = THREADS.fetch_add(1, Ordering::Relaxed));
        let count = self.readers.len();
        let preferred = PREFERRED.with(|number| number % count);
        (0..count)
            .find_map(|step| self.readers[(preferred + step) % count].try_lock())
            .unwrap_or_else(|| self.readers[preferred].lock())
    }

    async fn writer(&self) -> Writer {
        Arc::clone(&self.writer).lock_owned().await
    }

    pub(crate) fn all<T>(&self, sql: Sql, params: &[Param<'_>], map: ReadRow<T>) -> Result<Vec<T>> {
        all(&self.reader(), self.link.statement(sql), params, map)
    }

    /// Calls `visit` with each value of a query, and returns the number of rows.
    pub(crate) fn visit_values(&self, select: &str, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let reader = self.reader();
        let mut statement = reader.prepare(select)?;
        let columns = statement.column_count();
        let mut rows = statement.raw_query();
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += 1;
            for column in 0..columns {
                match row.get_ref(column)? {
                    ValueRef::Text(bytes) | ValueRef::Blob(bytes) => visit(bytes),
                    ValueRef::Integer(number) => visit(number.to_string().as_bytes()),
                    ValueRef::Null | ValueRef::Real(_) => {}
                }
            }
        }
        Ok(count)
    }

    /// Waits for the writer, then for other processes, and begins. `begin_statement` takes the
    /// write lock at once. A transaction that reads first and writes later would fail without
    /// waiting for `busy_timeout`.
    pub(crate) async fn begin(&self, begin_statement: &'static str) -> Result<SqliteTx> {
        self.link.pass(DatabaseStep::Begin).await?;
        let writer = self.writer().await;
        let link = self.link.clone();
        blocking(move || {
            if !writer.is_autocommit() {
                writer.execute_batch("ROLLBACK")?;
            }
            writer.execute_batch(begin_statement)?;
            // Created on this thread: if the caller is cancelled meanwhile, dropping the result
            // rolls back.
            Ok(SqliteTx {
                writer: Some(writer),
                link,
            })
        })
        .await
    }

    /// Moves the WAL into the file, unless a reader blocks that.
    pub(crate) async fn close(&self) -> Result<()> {
        let checkpoint = async {
            let writer = self.writer().await;
            blocking(move || {
                // Returns a row that says "busy" if a reader blocks the checkpoint. The next open
                // then does it.
                writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
                Ok(())
            })
            .await
        };
        tokio::time::timeout(CLOSE_TIMEOUT, checkpoint)
            .await
            .map_err(StorageError::unavailable)?
    }

    /// Rewrites the whole file and empties the WAL, so that neither holds deleted data. Returns
    /// false if a reader kept the WAL from being emptied.
    ///
    /// `secure_delete` covers what this version deletes. Older versions left deleted bytes in free
    /// pages, and the WAL keeps old pages until it restarts.
    pub(crate) async fn compact(&self) -> Result<bool> {
        let writer = self.writer().await;
        blocking(move || {
            if !writer.is_autocommit() {
                writer.execute_batch("ROLLBACK")?;
            }
            writer.execute_batch("VACUUM")?;
            // Waits for readers up to `busy_timeout`.
            let busy: i64 =
                writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
            Ok(busy == 0)
        })
        .await
    }

    /// Copies the database as it is at one moment to an empty file. Others read and write
    /// meanwhile. If the caller is cancelled, copying ends early and the file is deleted.
    pub(crate) async fn vacuum_into(&self, copy: NamedTempFile) -> Result<NamedTempFile> {
        let path = self
            .reader()
            .path()
            .map(PathBuf::from)
            .ok_or_else(|| StorageError::unavailable("no path"))?;
        let target = copy.path().to_str().map(str::to_owned).ok_or_else(|| {
            StorageError::Backup("the path of the backup must be UTF-8".to_owned())
        })?;
        // Not on a reader, which cannot write, nor on the writer, which others wait for.
        let connection = blocking(move || connect(&path)).await?;
        let _interrupt = InterruptOnDrop(connection.get_interrupt_handle());
        blocking(move || {
            // It owns the file. SQLite would make a deleted one again, for others to read.
            connection.execute("VACUUM INTO ?1", [target])?;
            Ok(copy)
        })
        .await
    }

    /// Whether the file's structure and its references are in order.
    pub(crate) async fn is_intact(&self) -> Result<bool> {
        let writer = self.writer().await;
        blocking(move || {
            let ok = writer.query_row("PRAGMA integrity_check(1)", [], |row| {
                row.get::<_, String>(0)
            });
            let mut references = writer.prepare("PRAGMA foreign_key_check")?;
            let is_broken = references.exists([])?;
            Ok(ok? == "ok" && !is_broken)
        })
        .await
    }

    /// How often all readers together recompiled the cached statement.
    #[cfg(test)]
    pub(crate) fn recompiled(&self, sql: Sql) -> i32 {
        let count = |reader: &Mutex<Connection>| {
            let reader = reader.lock();
            let statement = reader.prepare_cached(sql.text).expect(sql.name);
            statement.get_status(rusqlite::StatementStatus::RePrepare)
        };
        self.readers.iter().map(count).sum()
    }

    /// Compiles a statement and returns its number of parameters.
    #[cfg(test)]
    pub(crate) fn check(&self, sql: Sql) -> Result<usize> {
        let reader = self.reader();
        let statement = reader.prepare(sql.text)?;
        Ok(statement.parameter_count())
    }
}

/// Ends what a connection executes. Has no effect once that is closed.
struct InterruptOnDrop(InterruptHandle);

impl Drop for InterruptOnDrop {
    fn drop(&mut self) {
        self.0.interrupt();
    }
}

/// A transaction on the writer.
pub(crate) struct SqliteTx {
    /// None after the commit, or while a blocking thread uses the connection.
    writer: Option<Writer>,
    link: SimulatedLink,
}

impl SqliteTx {
    fn writer(&self) -> Result<&Connection> {
        self.writer
            .as_deref()
            .ok_or_else(|| StorageError::unavailable("the transaction has ended"))
    }

    pub(crate) fn all<T>(&self, sql: Sql, params: &[Param<'_>], map: ReadRow<T>) -> Result<Vec<T>> {
        all(self.writer()?, self.link.statement(sql), params, map)
    }

    pub(crate) fn run(&self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        let touched =
            prepare_and_bind(self.writer()?, self.link.statement(sql), params)?.raw_execute()?;
        Ok(touched as u64)
    }

    pub(crate) async fn script(&mut self, text: String) -> Result<()> {
        let moved = Self {
            writer: self.writer.take(),
            link: self.link.clone(),
        };
        *self = blocking(move || {
            moved.writer()?.execute_batch(&text)?;
            Ok(moved)
        })
        .await?;
        Ok(())
    }

    /// Runs on a blocking thread, because it waits for the disk. It completes even if the caller is
    /// cancelled.
    pub(crate) async fn commit(self) -> Result<()> {
        let link = self.link.clone();
        link.pass(DatabaseStep::Commit).await?;
        blocking(move || {
            let mut tx = self;
            tx.writer()?.execute_batch("COMMIT")?;
            tx.writer = None;
            Ok(())
        })
        .await?;
        link.pass(DatabaseStep::Committed).await
    }
}

impl Drop for SqliteTx {
    fn drop(&mut self) {
        // SQLite has rolled back by itself after some errors, such as a full disk.
        if let Some(writer) = self
            .writer
            .as_ref()
            .filter(|writer| !writer.is_autocommit())
            && let Err(error) = writer.execute_batch("ROLLBACK")
        {
            // The next transaction rolls back again before it begins.
            tracing::warn!(%error, "could not roll back transaction");
        }
    }
}

fn all<T>(
    connection: &Connection,
    sql: Sql,
    params: &[Param<'_>],
    map: ReadRow<T>,
) -> Result<Vec<T>> {
    let mut statement = prepare_and_bind(connection, sql, params)?;
    let mut rows = statement.raw_query();
    let mut values = Vec::new();
    while let Some(row) = rows.next()? {
        values.push(map(&Row::Sqlite(row))?);
    }
    Ok(values)
}

/// Binds each value by the number in its placeholder's name, or else by its place among the names.
///
/// SQLite treats `$1` as a name and numbers names by first appearance. Binding by position would
/// swap the values of `SELECT $2, $1`. Names in a statement are distinct, so equal counts mean that
/// every placeholder has a value.
fn prepare_and_bind<'c>(
    connection: &'c Connection,
    sql: Sql,
    params: &[Param<'_>],
) -> Result<CachedStatement<'c>> {
    let mut statement = connection.prepare_cached(sql.text)?;
    let count = statement.parameter_count();
    assert_eq!(
        count,
        params.len(),
        "placeholders and parameters of {}",
        sql.text
    );
    for index in 1..=count {
        let number =
            statement
                .parameter_name(index)
                .and_then(|name| match name.strip_prefix('$') {
                    Some(number) => number.parse().ok(),
                    None => Some(index),
                });
        let param = number.and_then(|number| params.get(number.checked_sub(1)?));
        let Some(param) = param else {
            unreachable!("placeholders of {} are not $1 to ${count}", sql.text)
        };
        bind(&mut statement, index, *param)?;
    }
    Ok(statement)
}

fn bind(
    statement: &mut CachedStatement<'_>,
    index: usize,
    param: Param<'_>,
) -> rusqlite::Result<()> {
    let mut buffer = Uuid::encode_buffer();
    let value = match param {
        Param::Null => ValueRef::Null,
        Param::Int(number) => ValueRef::Integer(number),
        Param::Text(text) => ValueRef::Text(text.as_bytes()),
        Param::Blob(bytes) => ValueRef::Blob(bytes),
        Param::Id(id) => ValueRef::Text(id.hyphenated().encode_lower(&mut buffer).as_bytes()),
        Param::Blobs(_) => unreachable!("SQLite has no arrays"),
    };
    statement.raw_bind_parameter(index, ToSqlOutput::Borrowed(value))
}

impl From<rusqlite::Error> for StorageError {
    /// Maps an error to the reaction that it needs.
    fn from(error: rusqlite::Error) -> Self {
        let (code, extended, message) = match &error {
            rusqlite::Error::SqliteFailure(error, message) => {
                (error.code, error.extended_code, message.as_deref())
            }
            rusqlite::Error::SqlInputError { error, msg, .. } => {
                (error.code, error.extended_code, Some(msg.as_str()))
            }
            _ => return Self::unavailable(error),
        };
        match (code, extended) {
            (_, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
                Self::Conflict("row")
            }
            (_, ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => Self::Conflict("reference"),
            (ErrorCode::Unknown, _)
                if message.is_some_and(|message| message.starts_with("no such ")) =>
            {
                Self::migration_needed()
            }
            (ErrorCode::DiskFull, _) => {
                let kind = std::io::ErrorKind::StorageFull;
                Self::unavailable(std::io::Error::new(kind, "the disk is full: make space"))
            }
            // Its text has the whole statement, which of a migration are hundreds of lines.
            _ => match error {
                rusqlite::Error::SqlInputError { error, msg, .. } => {
                    Self::unavailable(rusqlite::Error::SqliteFailure(error, Some(msg)))
                }
                error => Self::unavailable(error),
            },
        }
    }
}

/// Creates the file with mode 0600, because names and times in it are not sealed.
fn create_private(path: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(file) => {
            // A command of root leaves the service a file that it may open.
            file_user::match_folder(&file, path);
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StorageError::unavailable(error)),
    }
}

fn connect(path: &Path) -> Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OPEN_FLAGS | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Without permission to write, SQLite opens the file for reading, and the first write would
    // fail.
    if connection.is_readonly(MAIN_DB)? {
        return Err(StorageError::unavailable(std::io::Error::from(
            std::io::ErrorKind::PermissionDenied,
        )));
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
    use_wal(&connection)?;
    connection.execute_batch(PRAGMAS)?;
    Ok(connection)
}

/// Makes a closed database one file without a write-ahead log, until it is opened again.
///
/// # Errors
/// [`StorageError::Backup`] if another process has it open.
pub(crate) async fn leave_wal(path: PathBuf) -> Result<()> {
    blocking(move || {
        let connection = Connection::open_with_flags(&path, OPEN_FLAGS)?;
        let mode = connection.query_row("PRAGMA journal_mode = DELETE", [], |row| {
            row.get::<_, String>(0)
        });
        match mode {
            Ok(mode) if mode == "delete" => Ok(()),
            Ok(_) => Err(in_use(&path)),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                Err(in_use(&path))
            }
            Err(error) => Err(error.into()),
        }
    })
    .await
}

/// Enables the write-ahead log. If several processes do so on a new file at once, SQLite reports
/// "busy" to all but one without waiting. So this function waits and retries.
fn use_wal(connection: &Connection) -> Result<()> {
    let pause = Duration::from_millis(20);
    let mut left = BUSY_TIMEOUT;
    loop {
        let mode = connection.query_row("PRAGMA journal_mode = WAL", [], |row| {
            row.get::<_, String>(0)
        });
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(_) => {
                return Err(StorageError::unavailable(
                    "the file system does not support SQLite's write-ahead log: move the database",
                ));
            }
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && !left.is_zero() =>
            {
                left = left.saturating_sub(pause);
                std::thread::sleep(pause);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Runs work that may wait for the disk or for another process on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    #[cfg(feature = "test-support")]
    if bellbird_domain::random::simulation::is_running() {
        return work();
    }
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || {
        let _span = span.entered();
        work()
    })
    .await
    .map_err(StorageError::unavailable)?
}
