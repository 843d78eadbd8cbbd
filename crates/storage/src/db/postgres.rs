//! Runs statements on PostgreSQL, over a pool of connections that keep their prepared statements.
//!
//! A pooler in transaction mode must track prepared statements, as PgBouncer does from version 1.21
//! on with `max_prepared_statements`. For any other, each statement is sent whole
//! ([`PostgresOptions::prepared_statements`]), which a check at the start asks for: a name of a
//! statement could be another process's there.
//!
//! # Time limits
//!
//! The server ends a statement, a lock wait and an idle transaction by itself ([`SESSION`]),
//! because it may not notice for hours that a client is gone. The client's limit is a little
//! longer, for a server that does not respond. A statement that is given up, because of that limit
//! or because its caller left, keeps its connection out of the pool until it has ended or is
//! cancelled. So the server never has more sessions of this process than the pool allows.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use deadpool_postgres::{
    Hook, HookError, Manager, Object, Pool, PoolError, QueueMode, Runtime, TimeoutType,
};
use futures_util::TryStreamExt as _;
use futures_util::future::maybe_done;
use tokio::runtime::Handle;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_postgres::NoTls;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, WrongType};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use crate::db::postgres_url::{CONNECT_TIMEOUT, configure, tls};
use crate::db::row::{ReadRow, Row};
use crate::db::statement::{Bound, Param, Sql, numbered};
use crate::error::{Result, StorageError};
#[cfg(test)]
use crate::tests::postgres_steps::gate as step_gate;
#[cfg(test)]
use crate::tests::support::{has_product_limits, session_limits};

type PgResult<T> = std::result::Result<T, tokio_postgres::Error>;

/// What an error says of a connection that was not made in time.
pub(crate) const NO_RESPONSE: &str = "the server does not respond";
/// The longest wait of a request for a free connection.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
const RECYCLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Far longer than any statement takes. A server that does not respond in this time counts as
/// unavailable. Longer than the server's own limit, which leaves the connection usable.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limits at the server, where a client that vanished is not noticed otherwise.
/// docs/database.md has the same limits for a role, because a pooler does not pass settings of a
/// session on.
const SESSION: &str = "SET statement_timeout = '9s'; SET lock_timeout = '4s';
    SET idle_in_transaction_session_timeout = '15s'; SET tcp_user_timeout = '15s';
    SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3";
/// A pooler with one connection to the server lets the check wait: then nothing is known, and
/// nothing is lost.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The name of a statement is unknown, or there already.
const LOST_STATEMENT: [SqlState; 2] = [
    SqlState::INVALID_SQL_STATEMENT_NAME,
    SqlState::DUPLICATE_PSTATEMENT,
];
/// How long a statement that was given up may still end by itself. Nearly all do, and their
/// connections stay in use.
const SETTLE_GRACE: Duration = Duration::from_secs(1);
/// The advisory lock of a migration. The number is arbitrary, but the same in every version.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(4279165203816401)";

/// How an instance uses its PostgreSQL server. SQLite ignores it.
#[derive(Debug, Clone, Copy)]
pub struct PostgresOptions {
    /// The most connections.
    pub pool_size: u32,
    /// Whether a connection keeps its prepared statements. False for a pooler that does not track
    /// them.
    pub prepared_statements: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            pool_size: 16,
            prepared_statements: true,
        }
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Postgres {
    pool: Pool,
    cancel: Cancel,
    prepares: bool,
}

/// Cancels statements, over TLS if the connections use it.
#[derive(Clone)]
struct Cancel(Option<MakeRustlsConnect>);

impl Cancel {
    /// Returns after the server has passed the request on. Without a response the server's own
    /// limits end the statement.
    async fn send(&self, client: &Object) {
        let token = client.cancel_token();
        let sent = match &self.0 {
            Some(tls) => timeout(CONNECT_TIMEOUT, token.cancel_query(tls.clone())).await,
            None => timeout(CONNECT_TIMEOUT, token.cancel_query(NoTls)).await,
        };
        if !matches!(sent, Ok(Ok(()))) {
            tracing::warn!("could not cancel statement that was given up");
        }
    }
}

impl Postgres {
    /// Parses the URL and connects once, so that a wrong password fails at startup.
    pub(crate) async fn open(url: &str, options: PostgresOptions) -> Result<Self> {
        let config = configure(url)?;
        let (manager, cancel) = if config.get_ssl_mode() == SslMode::Disable {
            (Manager::new(config, NoTls), Cancel(None))
        } else {
            let tls = MakeRustlsConnect::new(tls().map_err(StorageError::unavailable)?);
            (Manager::new(config, tls.clone()), Cancel(Some(tls)))
        };
        let set_limits = Hook::async_fn(|client, _| {
            Box::pin(async move {
                #[cfg(not(test))]
                let limits = SESSION;
                #[cfg(test)]
                let limits = session_limits(SESSION);
                client
                    .batch_execute(limits)
                    .await
                    .map_err(HookError::Backend)
            })
        });
        let pool = Pool::builder(manager)
            .max_size(options.pool_size as usize)
            .post_create(set_limits)
            // The connection used last has its statements prepared and its caches warm.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT_TIMEOUT))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .recycle_timeout(Some(RECYCLE_TIMEOUT))
            .build()
            .map_err(StorageError::unavailable)?;
        let db = Self {
            pool,
            cancel,
            prepares: options.prepared_statements,
        };
        drop(db.client().await?);
        if db.prepares
            && matches!(
                timeout(PROBE_TIMEOUT, db.loses_statements()).await,
                Ok(Ok(true))
            )
        {
            return Err(StorageError::BadUrl(
                "the PostgreSQL URL leads to a pooler that does not keep prepared statements: set \
                 database.prepared_statements = false, or its max_prepared_statements"
                    .to_owned(),
            ));
        }
        Ok(db)
    }

    /// Whether a statement that was prepared is not there later on the same connection. A pooler in
    /// transaction mode gives the second connection what the first one leaves, where its name may
    /// be unknown, or another process's.
    async fn loses_statements(&self) -> Result<bool> {
        let (mut first, mut second) = (self.begin().await?, self.client().await?);
        let token = Uuid::new_v4().to_string();
        let client = second.start()?;
        let found = async {
            let prepared = client.prepare(&format!("SELECT '{token}'")).await?;
            // Whatever becomes of it, the statement shows.
            let _ = first.commit().await;
            client
                .query_one(&prepared, &[])
                .await?
                .try_get::<_, String>(0)
        };
        let found = found.await;
        second.finish(Ok(Ok(())))?;
        Ok(match found {
            Ok(found) => found != token,
            Err(error) => error
                .code()
                .is_some_and(|code| LOST_STATEMENT.contains(code)),
        })
    }

    async fn client(&self) -> Result<PooledClient> {
        match self.pool.get().await {
            Ok(client) => Ok(PooledClient {
                client: Some(client),
                in_transaction: false,
                is_running: false,
                cancel: self.cancel.clone(),
                prepares: self.prepares,
            }),
            Err(
                PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)),
            ) => Err(to_storage_error(error)),
            Err(PoolError::Timeout(TimeoutType::Wait)) => {
                Err(StorageError::unavailable("no connection was free in time"))
            }
            Err(PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle)) => {
                Err(StorageError::unavailable(NO_RESPONSE))
            }
            Err(other) => Err(StorageError::unavailable(other.to_string())),
        }
    }

    pub(crate) async fn all<T>(
        &self,
        sql: Sql,
        params: &[Param<'_>],
        map: ReadRow<T>,
    ) -> Result<Vec<T>> {
        self.client().await?.all(sql, params, map).await
    }

    pub(crate) async fn run(&self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        self.client().await?.run(sql, params).await
    }

    /// Runs statements in one transaction, with one round trip. Returns the first number of each
    /// statement's first row.
    ///
    /// A dropped future does not roll back: its COMMIT may be on the way already.
    pub(crate) async fn batch(&self, statements: &[Bound<'_>]) -> Result<Vec<Option<i64>>> {
        let mut client = self.client().await?;
        let outcome = timeout(
            statement_timeout(),
            batch(client.start()?, self.prepares, statements),
        )
        .await;
        let results = client.finish(outcome)?;
        results
            .iter()
            .map(|rows| {
                rows.first()
                    .map_or(Ok(None), |row| Row::Postgres(row).opt_int(0))
            })
            .collect()
    }

    /// Calls `visit` with each value of a query while the rows arrive, and returns their number.
    /// Has no time limit: a table may be large.
    pub(crate) async fn visit_values(
        &self,
        select: &str,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<u64> {
        let mut tx = self.begin().await?;
        tx.script("SET LOCAL statement_timeout = 0").await?;
        let outcome = visit_values(tx.start()?, select, visit).await;
        let count = tx.finish(Ok(outcome))?;
        tx.rollback().await;
        Ok(count)
    }

    pub(crate) async fn begin(&self) -> Result<Box<PooledClient>> {
        // From here on, dropping `tx` rolls back.
        let mut tx = Box::new(self.client().await?);
        tx.simple("BEGIN", true).await?;
        Ok(tx)
    }

    /// Excludes other migrations until the transaction ends, and waits for any lock up to
    /// `lock_timeout` only. Has no other time limit: a migration may take long.
    pub(crate) async fn begin_migration(
        &self,
        lock_timeout: Duration,
    ) -> Result<Box<PooledClient>> {
        let mut tx = self.begin().await?;
        let lock_timeout = lock_timeout.as_millis();
        tx.script(&format!(
            "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {lock_timeout}"
        ))
        .await?;
        tx.script(MIGRATION_LOCK).await?;
        Ok(tx)
    }

    /// How many are used and idle, and how many callers wait for one.
    pub(crate) fn connections(&self) -> (u32, u32, u32) {
        let status = self.pool.status();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let idle = number(status.available);
        (
            number(status.size).saturating_sub(idle),
            idle,
            number(status.waiting),
        )
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }

    /// Prepares a statement and returns its number of parameters.
    #[cfg(test)]
    pub(crate) async fn check(&self, sql: Sql) -> Result<usize> {
        let mut client = self.client().await?;
        let outcome = timeout(
            statement_timeout(),
            client.start()?.prepare(&numbered(sql.postgres)),
        )
        .await;
        client
            .finish(outcome)
            .map(|statement| statement.params().len())
    }
}

/// A pooled connection, perhaps with a transaction on it. It returns to the pool once nothing is
/// open on it.
pub(crate) struct PooledClient {
    /// None only while it is dropped.
    client: Option<Object>,
    in_transaction: bool,
    /// A statement runs, or was given up.
    is_running: bool,
    cancel: Cancel,
    prepares: bool,
}

impl PooledClient {
    pub(crate) async fn all<T>(
        &mut self,
        sql: Sql,
        params: &[Param<'_>],
        map: ReadRow<T>,
    ) -> Result<Vec<T>> {
        let prepares = self.prepares;
        let outcome = timeout(
            statement_timeout(),
            query(self.start()?, prepares, sql, params),
        )
        .await;
        self.finish(outcome)?
            .iter()
            .map(|row| map(&Row::Postgres(row)))
            .collect()
    }

    pub(crate) async fn run(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        let prepares = self.prepares;
        let outcome = timeout(
            statement_timeout(),
            execute(self.start()?, prepares, sql, params),
        )
        .await;
        self.finish(outcome)
    }

    async fn simple(&mut self, text: &str, in_transaction: bool) -> Result<()> {
        #[cfg(test)]
        step_gate::pass_simple(text).await;
        // The caller may leave while BEGIN is on its way. A ROLLBACK too many does no harm.
        self.in_transaction |= in_transaction;
        let outcome = timeout(statement_timeout(), self.start()?.batch_execute(text)).await;
        self.finish(outcome)?;
        self.in_transaction = in_transaction;
        Ok(())
    }

    /// Has no time limit: a migration may take long.
    pub(crate) async fn script(&mut self, text: &str) -> Result<()> {
        let outcome = self.start()?.batch_execute(text).await;
        self.finish(Ok(outcome))
    }

    pub(crate) async fn commit(&mut self) -> Result<()> {
        self.simple("COMMIT", false).await
    }

    pub(crate) async fn rollback(&mut self) {
        // After an error, dropping the connection rolls back.
        let _ = self.simple("ROLLBACK", false).await;
    }

    /// The connection for one statement. Without [`Self::finish`], because the caller left, the
    /// statement is given up.
    fn start(&mut self) -> Result<&Object> {
        match &self.client {
            Some(client) if !self.is_running => {
                self.is_running = true;
                Ok(client)
            }
            _ => Err(StorageError::unavailable(
                "an earlier statement of this connection was given up",
            )),
        }
    }

    fn finish<T>(&mut self, outcome: std::result::Result<PgResult<T>, Elapsed>) -> Result<T> {
        let done = outcome.map_err(StorageError::unavailable)?;
        self.is_running = false;
        done.map_err(to_storage_error)
    }
}

impl Drop for PooledClient {
    fn drop(&mut self) {
        let is_open = self.is_running || self.in_transaction;
        let Some(client) = self.client.take().filter(|_| is_open) else {
            return;
        };
        let last = if self.in_transaction { "ROLLBACK" } else { "" };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(settle(client, last, self.cancel.clone()))),
            // The process ends.
            Err(_) => drop(Object::take(client)),
        }
    }
}

/// In tests it also covers the steps of others.
fn statement_timeout() -> Duration {
    #[cfg(test)]
    if !has_product_limits() {
        return Duration::from_secs(90);
    }
    STATEMENT_TIMEOUT
}

/// Returns a connection to the pool once its statement has ended and its transaction is rolled
/// back, or else cancels and closes it. Until then it counts as in use. `last` is sent after that
/// statement, and the server responds in order.
async fn settle(client: Object, last: &'static str, cancel: Cancel) {
    if !matches!(
        timeout(SETTLE_GRACE, client.batch_execute(last)).await,
        Ok(Ok(()))
    ) {
        cancel.send(&client).await;
        drop(Object::take(client));
    }
}

async fn query(
    client: &Object,
    prepares: bool,
    sql: Sql,
    params: &[Param<'_>],
) -> PgResult<Vec<tokio_postgres::Row>> {
    #[cfg(test)]
    let sql = step_gate::pass(sql).await;
    if !prepares {
        return client
            .query_typed(&numbered(sql.postgres), &typed(params))
            .await;
    }
    let statement = client.prepare_cached(&numbered(sql.postgres)).await?;
    client.query(&statement, &references(params)).await
}

async fn execute(client: &Object, prepares: bool, sql: Sql, params: &[Param<'_>]) -> PgResult<u64> {
    #[cfg(test)]
    let sql = step_gate::pass(sql).await;
    if !prepares {
        return client
            .execute_typed(&numbered(sql.postgres), &typed(params))
            .await;
    }
    let statement = client.prepare_cached(&numbered(sql.postgres)).await?;
    client.execute(&statement, &references(params)).await
}

async fn visit_values(
    client: &Object,
    select: &str,
    visit: &mut dyn FnMut(&[u8]),
) -> PgResult<u64> {
    let rows = client
        .query_typed_raw(select, std::iter::empty::<(&(dyn ToSql + Sync), Type)>())
        .await?;
    let mut rows = std::pin::pin!(rows);
    let mut count = 0;
    while let Some(row) = rows.try_next().await? {
        count += 1;
        for (at, column) in row.columns().iter().enumerate() {
            if *column.type_() == Type::INT8 {
                let number: Option<i64> = row.try_get(at)?;
                number.inspect(|number| visit(number.to_string().as_bytes()));
            } else if let Some(AsSent(bytes)) = row.try_get(at)? {
                visit(bytes);
            }
        }
    }
    Ok(count)
}

/// The bytes of a value of any type. Those of a text are its UTF-8, those of a BYTEA its content.
struct AsSent<'a>(&'a [u8]);

impl<'a> FromSql<'a> for AsSent<'a> {
    fn from_sql(
        _: &Type,
        bytes: &'a [u8],
    ) -> std::result::Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(bytes))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

async fn batch(
    client: &Object,
    prepares: bool,
    statements: &[Bound<'_>],
) -> PgResult<Vec<Vec<tokio_postgres::Row>>> {
    #[cfg(test)]
    if step_gate::is_stepped() {
        return batch_in_steps(client, prepares, statements).await;
    }
    if !prepares {
        return in_one_transaction(
            client,
            statements
                .iter()
                .map(|(sql, params)| query(client, false, *sql, params)),
        )
        .await;
    }
    let mut prepared = Vec::with_capacity(statements.len());
    for (sql, params) in statements {
        prepared.push((
            client.prepare_cached(&numbered(sql.postgres)).await?,
            references(params),
        ));
    }
    in_one_transaction(
        client,
        prepared
            .iter()
            .map(|(statement, params)| client.query(statement, params)),
    )
    .await
}

/// Waits for each result, as the server does between the statements of a batch.
#[cfg(test)]
async fn batch_in_steps(
    client: &Object,
    prepares: bool,
    statements: &[Bound<'_>],
) -> PgResult<Vec<Vec<tokio_postgres::Row>>> {
    let mut results = Ok(Vec::new());
    for text in ["BEGIN", "COMMIT"] {
        step_gate::pass_simple(text).await;
        client.batch_execute(text).await?;
        let statements = if text == "BEGIN" { statements } else { &[] };
        for (sql, params) in statements {
            let Ok(rows) = &mut results else { break };
            match query(client, prepares, *sql, params).await {
                Ok(found) => rows.push(found),
                Err(error) => results = Err(error),
            }
        }
    }
    results
}

async fn in_one_transaction<T>(
    client: &Object,
    queries: impl IntoIterator<Item = impl Future<Output = PgResult<T>>>,
) -> PgResult<Vec<T>> {
    // The server turns the COMMIT into a ROLLBACK if a statement failed.
    let mut begun = pin!(maybe_done(client.batch_execute("BEGIN")));
    let mut queries: Vec<_> = queries
        .into_iter()
        .map(|query| Box::pin(maybe_done(query)))
        .collect();
    let mut committed = pin!(maybe_done(client.batch_execute("COMMIT")));
    send_in_order(begun.as_mut(), &mut queries, committed.as_mut()).await;
    begun.take_output().transpose()?;
    let results = queries
        .iter_mut()
        .filter_map(|query| query.as_mut().take_output())
        .collect::<PgResult<Vec<_>>>()?;
    committed.take_output().transpose()?;
    Ok(results)
}

/// Sends messages and waits for their results. The first poll of each future sends its message, so
/// all of them are polled once, in this order, before a result is waited for: a future that is
/// dropped has sent nothing, or all up to the last. `join_all` stops early in a long list.
pub(crate) async fn send_in_order(
    mut first: Pin<&mut impl Future<Output = ()>>,
    others: &mut [Pin<Box<impl Future<Output = ()>>>],
    mut last: Pin<&mut impl Future<Output = ()>>,
) {
    poll_fn(|context| {
        let _ = first.as_mut().poll(context);
        for other in &mut *others {
            let _ = other.as_mut().poll(context);
        }
        let _ = last.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
    // The server responds in the same order, so this polls none in vain.
    first.await;
    for other in others {
        other.as_mut().await;
    }
    last.await;
}

/// Whether another session kept a lock for too long, so that a retry may succeed.
pub(crate) fn is_lock_conflict(error: &StorageError) -> bool {
    let StorageError::Unavailable(source) = error else {
        return false;
    };
    let conflicts = [
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::T_R_DEADLOCK_DETECTED,
    ];
    source
        .downcast_ref::<ServerError>()
        .is_some_and(|error| conflicts.iter().any(|state| state.code() == error.code))
}

/// The values with the types that they have in all statements. The server finds those of NULL, and
/// of ids, which some columns hold as text.
fn typed<'a>(params: &'a [Param<'_>]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    let type_of = |param: &Param<'_>| match param {
        Param::Null | Param::Id(_) => Type::UNKNOWN,
        Param::Int(_) => Type::INT8,
        Param::Text(_) => Type::TEXT,
        Param::Blob(_) => Type::BYTEA,
        Param::Blobs(_) => Type::BYTEA_ARRAY,
    };
    params
        .iter()
        .map(|param| (param as &(dyn ToSql + Sync), type_of(param)))
        .collect()
}

fn references<'a>(params: &'a [Param<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    params
        .iter()
        .map(|param| param as &(dyn ToSql + Sync))
        .collect()
}

impl fmt::Debug for Param<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Param(..)")
    }
}

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(number) => number.to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
            Self::Blob(bytes) => bytes.to_sql(ty, out),
            Self::Blobs(values) => values.to_sql(ty, out),
            Self::Id(id) => {
                (&*id.hyphenated().encode_lower(&mut Uuid::encode_buffer())).to_sql(ty, out)
            }
        }
    }

    /// The server reads an id from its text, for a column of either type.
    fn encode_format(&self, _: &Type) -> Format {
        if matches!(self, Self::Id(_)) {
            Format::Text
        } else {
            Format::Binary
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    /// The server knows the type of each placeholder, so NULL fits all of them. Other values must
    /// fit.
    fn to_sql_checked(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let fits = match self {
            Self::Null => true,
            Self::Int(_) => <i64 as ToSql>::accepts(ty),
            Self::Text(_) => <&str as ToSql>::accepts(ty),
            Self::Id(_) => [Type::UUID, Type::TEXT, Type::UNKNOWN].contains(ty),
            Self::Blob(_) => <&[u8] as ToSql>::accepts(ty),
            Self::Blobs(_) => <&[&[u8]] as ToSql>::accepts(ty),
        };
        if fits {
            self.to_sql(ty, out)
        } else {
            Err(Box::new(WrongType::new::<Self>(ty.clone())))
        }
    }
}

/// The server's message without its detail, which repeats the row.
#[derive(Debug, thiserror::Error)]
#[error("PostgreSQL error {code}{message}")]
pub(crate) struct ServerError {
    pub(crate) code: String,
    message: String,
}

/// Maps an error to the reaction that it needs.
fn to_storage_error(error: tokio_postgres::Error) -> StorageError {
    let Some(db_error) = error.as_db_error() else {
        return StorageError::unavailable(error);
    };
    let code = db_error.code();
    if *code == SqlState::UNIQUE_VIOLATION {
        return StorageError::Conflict("row");
    }
    if *code == SqlState::FOREIGN_KEY_VIOLATION {
        return StorageError::Conflict("reference");
    }
    if [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN].contains(code) {
        return StorageError::migration_needed();
    }
    // For data exceptions (class 22) and violated constraints (class 23), even the first line may
    // quote a value.
    let quotes = ["22", "23"]
        .iter()
        .any(|class| code.code().starts_with(class));
    let message = if quotes {
        String::new()
    } else {
        format!(": {}", db_error.message())
    };
    StorageError::unavailable(ServerError {
        code: code.code().to_owned(),
        message,
    })
}
