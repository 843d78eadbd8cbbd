//! Runs statements on PostgreSQL, over a pool of connections that keep their prepared statements.
//!
//! PgBouncer in transaction mode works from version 1.21 on, with `max_prepared_statements` set.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use deadpool_postgres::{Manager, Object, Pool, QueueMode, Runtime};
use futures_util::future::{join_all, join3};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, WrongType};
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use crate::db::row::{ReadRow, Row};
use crate::db::statement::{Param, Sql};
use crate::error::{Result, StorageError};

type PgResult<T> = std::result::Result<T, tokio_postgres::Error>;

/// For one instance. PostgreSQL allows 100 connections by default.
const CONNECTIONS_MAX: usize = 16;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait of a request for a free connection.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
const RECYCLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Far longer than any statement takes. A server that does not answer in this time counts as unavailable.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Detects a server that vanished without closing the connection.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// The advisory lock of a migration. The number is arbitrary, but the same in every version.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(4279165203816401)";

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Postgres {
    pool: Pool,
}

impl Postgres {
    /// Parses the URL and connects once, so that a wrong password fails at startup.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let config = configure(url)?;
        let manager = if config.get_ssl_mode() == SslMode::Disable {
            Manager::new(config, NoTls)
        } else {
            Manager::new(config, MakeRustlsConnect::new(tls().map_err(StorageError::unavailable)?))
        };
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS_MAX)
            // The connection used last has its statements prepared and its caches warm.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT_TIMEOUT))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .recycle_timeout(Some(RECYCLE_TIMEOUT))
            .build()
            .map_err(StorageError::unavailable)?;
        let db = Self { pool };
        drop(db.client().await?);
        Ok(db)
    }

    async fn client(&self) -> Result<Object> {
        self.pool.get().await.map_err(|error| match error {
            deadpool_postgres::PoolError::Backend(error) => to_storage_error(error),
            other => StorageError::unavailable(other.to_string()),
        })
    }

    pub(crate) async fn all<T>(&self, sql: Sql, params: &[Param<'_>], map: ReadRow<T>) -> Result<Vec<T>> {
        let mut client = PooledClient::new(self.client().await?);
        let rows = client.query(sql, params).await?;
        rows.iter().map(|row| map(&Row::Postgres(row))).collect()
    }

    pub(crate) async fn run(&self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        PooledClient::new(self.client().await?).execute(sql, params).await
    }

    /// Runs statements in one transaction, with one round trip. Returns the first number of each statement's first row.
    ///
    /// A dropped future does not roll back: its COMMIT may be on the way already.
    pub(crate) async fn batch(&self, statements: &[(Sql, &[Param<'_>])]) -> Result<Vec<Option<i64>>> {
        let mut client = PooledClient::new(self.client().await?);
        let outcome = timeout(STATEMENT_TIMEOUT, batch(client.client()?, statements)).await;
        let answers = client.check_timeout(outcome)?;
        answers.iter().map(|rows| rows.first().map_or(Ok(None), |row| Row::Postgres(row).opt_int(0))).collect()
    }

    pub(crate) async fn begin(&self) -> Result<Box<PostgresTx>> {
        let client = PooledClient::new(self.client().await?);
        // From here on, dropping `tx` closes the connection, which rolls back.
        let mut tx = Box::new(PostgresTx { client, ended: false });
        tx.client.simple("BEGIN").await?;
        Ok(tx)
    }

    /// Waits while another instance migrates. The lock ends with the transaction.
    pub(crate) async fn begin_migration(&self) -> Result<Box<PostgresTx>> {
        let mut tx = self.begin().await?;
        tx.script(MIGRATION_LOCK).await?;
        Ok(tx)
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }

    /// Prepares a statement and returns its number of parameters.
    #[cfg(test)]
    pub(crate) async fn check(&self, sql: Sql) -> Result<usize> {
        let client = self.client().await?;
        client.prepare(sql.postgres).await.map(|statement| statement.params().len()).map_err(to_storage_error)
    }
}

/// A pooled connection. It returns to the pool unless it was discarded.
struct PooledClient(Option<Object>);

impl PooledClient {
    fn new(client: Object) -> Self {
        Self(Some(client))
    }

    fn client(&self) -> Result<&Object> {
        self.0.as_ref().ok_or_else(|| StorageError::unavailable("the connection was closed after a timeout"))
    }

    async fn query(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<Vec<tokio_postgres::Row>> {
        let outcome = timeout(STATEMENT_TIMEOUT, query(self.client()?, sql, params)).await;
        self.check_timeout(outcome)
    }

    async fn execute(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        let outcome = timeout(STATEMENT_TIMEOUT, execute(self.client()?, sql, params)).await;
        self.check_timeout(outcome)
    }

    async fn simple(&mut self, text: &str) -> Result<()> {
        let outcome = timeout(STATEMENT_TIMEOUT, self.client()?.batch_execute(text)).await;
        self.check_timeout(outcome)
    }

    /// Closes a connection that timed out, because its next user would have to wait for the running statement.
    fn check_timeout<T>(&mut self, outcome: std::result::Result<PgResult<T>, Elapsed>) -> Result<T> {
        outcome.map_or_else(
            |elapsed| {
                self.discard();
                Err(StorageError::unavailable(elapsed))
            },
            |done| done.map_err(to_storage_error),
        )
    }

    /// Closes the connection and removes it from the pool.
    fn discard(&mut self) {
        drop(self.0.take().map(Object::take));
    }
}

async fn query(client: &Object, sql: Sql, params: &[Param<'_>]) -> PgResult<Vec<tokio_postgres::Row>> {
    let statement = client.prepare_cached(sql.postgres).await?;
    client.query(&statement, &references(params)).await
}

async fn execute(client: &Object, sql: Sql, params: &[Param<'_>]) -> PgResult<u64> {
    let statement = client.prepare_cached(sql.postgres).await?;
    client.execute(&statement, &references(params)).await
}

async fn batch(client: &Object, statements: &[(Sql, &[Param<'_>])]) -> PgResult<Vec<Vec<tokio_postgres::Row>>> {
    let mut prepared = Vec::with_capacity(statements.len());
    for (sql, params) in statements {
        prepared.push((client.prepare_cached(sql.postgres).await?, references(params)));
    }
    let queries = prepared.iter().map(|(statement, params)| client.query(statement, params));
    // The first poll of each future sends its message, in this order. So no answer is waited for in between, and a
    // future that is dropped has sent nothing, or all up to the COMMIT. The server turns the COMMIT into a ROLLBACK if
    // a statement failed.
    let (begun, answers, committed) =
        join3(client.batch_execute("BEGIN"), join_all(queries), client.batch_execute("COMMIT")).await;
    begun?;
    let answers = answers.into_iter().collect::<PgResult<Vec<_>>>()?;
    committed.map(|()| answers)
}

/// A transaction on one connection.
pub(crate) struct PostgresTx {
    client: PooledClient,
    ended: bool,
}

impl PostgresTx {
    pub(crate) async fn all<T>(&mut self, sql: Sql, params: &[Param<'_>], map: ReadRow<T>) -> Result<Vec<T>> {
        let rows = self.client.query(sql, params).await?;
        rows.iter().map(|row| map(&Row::Postgres(row))).collect()
    }

    pub(crate) async fn run(&mut self, sql: Sql, params: &[Param<'_>]) -> Result<u64> {
        self.client.execute(sql, params).await
    }

    /// Has no time limit: a migration may take long.
    pub(crate) async fn script(&mut self, text: &str) -> Result<()> {
        self.client.client()?.batch_execute(text).await.map_err(to_storage_error)
    }

    pub(crate) async fn commit(mut self) -> Result<()> {
        self.client.simple("COMMIT").await?;
        self.ended = true;
        Ok(())
    }

    pub(crate) async fn rollback(mut self) {
        self.ended = self.client.simple("ROLLBACK").await.is_ok();
    }
}

impl Drop for PostgresTx {
    /// `drop` cannot await a ROLLBACK, so closing the connection ends an open transaction.
    fn drop(&mut self) {
        if !self.ended {
            self.client.discard();
        }
    }
}

fn references<'a>(params: &'a [Param<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    params.iter().map(|param| param as &(dyn ToSql + Sync)).collect()
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
            Self::Id(id) => (&*id.hyphenated().encode_lower(&mut Uuid::encode_buffer())).to_sql(ty, out),
            Self::List(values) => values.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    /// The server knows the type of each placeholder, so NULL fits all of them. Other values must fit.
    fn to_sql_checked(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let fits = match self {
            Self::Null => true,
            Self::Int(_) => <i64 as ToSql>::accepts(ty),
            Self::Text(_) | Self::Id(_) => <&str as ToSql>::accepts(ty),
            Self::Blob(_) => <&[u8] as ToSql>::accepts(ty),
            Self::List(_) => <&[Self] as ToSql>::accepts(ty),
        };
        if fits { self.to_sql(ty, out) } else { Err(Box::new(WrongType::new::<Self>(ty.clone()))) }
    }
}

/// Parses the URL. `sslmode` works as in libpq, with two safer differences:
///
/// * Over TLS, the server's certificate is always checked against the system's roots and the host name. So `verify-ca`
///   and `verify-full` mean `require`.
/// * Without `sslmode`, a connection to this machine uses no TLS.
fn configure(url: &str) -> Result<Config> {
    let (strict, has_sslmode) = (["sslmode=verify-full", "sslmode=verify-ca"], url.contains("sslmode="));
    let url = strict.iter().fold(url.to_owned(), |url, mode| url.replace(mode, "sslmode=require"));
    // The parser's message may repeat parts of the URL, for example of a password that contains `?`.
    let mut config: Config = url.parse().map_err(|_| {
        StorageError::BadUrl(
            "could not parse the PostgreSQL URL: expected postgres://user:password@host:port/database?sslmode=require, \
             with special characters of user and password percent-encoded"
                .to_owned(),
        )
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(StorageError::BadUrl(
            "the PostgreSQL URL has no host: expected postgres://user:password@host:port/database".to_owned(),
        ));
    }
    if !has_sslmode && config.get_hostaddrs().is_empty() && config.get_hosts().iter().all(is_local) {
        config.ssl_mode(SslMode::Disable);
    }
    if config.get_application_name().is_none() {
        config.application_name("bellbird");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    config.keepalives_idle(KEEPALIVE_IDLE);
    Ok(config)
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

fn tls() -> std::result::Result<ClientConfig, rustls::Error> {
    Ok(ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth())
}

/// The server's message without its detail, which repeats the row.
#[derive(Debug, thiserror::Error)]
#[error("PostgreSQL error {code}{message}")]
struct ServerError {
    code: String,
    message: String,
}

/// Maps an error to the reaction that it needs.
fn to_storage_error(error: tokio_postgres::Error) -> StorageError {
    let Some(db_error) = error.as_db_error() else { return StorageError::unavailable(error) };
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
    // For data exceptions (class 22) and violated constraints (class 23), even the first line may quote a value.
    let quotes = ["22", "23"].iter().any(|class| code.code().starts_with(class));
    let message = if quotes { String::new() } else { format!(": {}", db_error.message()) };
    StorageError::unavailable(ServerError { code: code.code().to_owned(), message })
}
