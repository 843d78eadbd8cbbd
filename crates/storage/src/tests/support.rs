//! Databases for tests. Each test runs twice: on a new SQLite file and on a new PostgreSQL
//! database.

use std::cell::Cell;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::LazyLock;
use std::task::Poll;

use bellbird_domain::{
    Account, AccountType, ApiKey, Connection, ConnectionCategory, ConnectionId, ConnectionStatus,
    Currency, MaskedNumber, OperatorKey, Plan, SetupToken, User, UserId,
};
use jiff::Timestamp;
use secrecy::SecretString;
use tempfile::TempDir;
use tokio_postgres::NoTls;
use uuid::Uuid;

use crate::job_kinds::REFRESH;
use crate::{
    ClaimedJob, KeyRecord, NewAccount, NewConnection, NewUser, PostgresOptions, Sealer, Storage,
    UserChange, in_tx,
};

/// Declares tests that run on both databases, as `name::sqlite` and `name::postgres`. On
/// PostgreSQL, statements are sent whole, as through a pooler. All other tests prepare them.
macro_rules! both {
    ($(async fn $name:ident($db:ident) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports, reason = "not every test uses its module")]
            use super::*;

            async fn body($db: &$crate::tests::support::TestDb) $body

            #[test]
            fn sqlite() {
                $crate::tests::support::on_sqlite(async |db| body(db).await);
            }

            #[test]
            fn postgres() {
                $crate::tests::support::on_postgres_unprepared(async |db| body(db).await);
            }
        }
    )*};
}
pub(crate) use both;

/// Checks that a call fails with this error: `assert_fails!(call, NotFound("user"))`.
macro_rules! assert_fails {
    ($result:expr, $kind:ident($what:pat) $(if $guard:expr)? $(, $label:literal)?) => {{
        let result = &$result;
        let error = result.as_ref().err();
        assert!(
            matches!(error, Some($crate::StorageError::$kind($what)) $(if $guard)?),
            concat!($($label, ": ",)? "{:?}"),
            error
        );
    }};
}
pub(crate) use assert_fails;

/// Checks that a text has all of these parts.
macro_rules! assert_contains {
    ($text:expr, $($part:expr),+ $(,)?) => {{
        let text: &str = &$text;
        $(assert!(text.contains($part), "{text}");)+
    }};
}
pub(crate) use assert_contains;

const SERVER: &str = "BELLBIRD_TEST_POSTGRES_URL";

/// A migrated database for one test.
pub(crate) struct TestDb {
    storage: Storage,
    pub(crate) url: String,
    pub(crate) sealer: Sealer,
}

impl Deref for TestDb {
    type Target = Storage;

    fn deref(&self) -> &Storage {
        &self.storage
    }
}

impl TestDb {
    /// Opens a database that another handle may use too.
    pub(crate) async fn attach(url: String, sealer: Sealer) -> Self {
        let storage = Storage::open(&url, sealer.clone()).await.expect("opens");
        Self {
            storage,
            url,
            sealer,
        }
    }

    /// The same handle, for what takes one.
    pub(crate) fn storage(&self) -> Storage {
        self.storage.clone()
    }

    /// A second handle, as another process would have it.
    pub(crate) async fn reopen(&self) -> Storage {
        Storage::open(&self.url, self.sealer.clone())
            .await
            .expect("opens again")
    }

    /// The file of an SQLite database.
    pub(crate) fn path(&self) -> &Path {
        Path::new(self.url.strip_prefix("sqlite:").expect("SQLite"))
    }

    /// Runs a statement on a connection of its own.
    pub(crate) async fn raw(&self, sql: &str) {
        if let Some(path) = self.url.strip_prefix("sqlite:") {
            rusqlite::Connection::open(path)
                .expect("opens")
                .execute_batch(sql)
                .expect(sql);
        } else {
            execute(&self.url, sql).await;
        }
    }

    /// The only column of a query, which must be of text or of ids.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        if let Some(path) = self.url.strip_prefix("sqlite:") {
            let connection = rusqlite::Connection::open(path).expect("opens");
            let mut statement = connection.prepare(sql).expect(sql);
            let rows = statement.query_map([], |row| row.get(0)).expect(sql);
            return rows.map(|row| row.expect("text")).collect();
        }
        let client = connect(&self.url).await;
        let text = |row: &tokio_postgres::Row| {
            row.try_get::<_, Uuid>(0)
                .map_or_else(|_| row.get(0), |id| id.to_string())
        };
        client
            .query(sql, &[])
            .await
            .expect(sql)
            .iter()
            .map(text)
            .collect()
    }

    /// A literal for bytes in the dialect of the database.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> String {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if self.kind() == "sqlite" {
            format!("x'{hex}'")
        } else {
            format!("'\\x{hex}'")
        }
    }

    pub(crate) async fn user(&self, email: &str) -> User {
        let new = NewUser {
            email,
            plan: Plan::Professional,
            timezone: None,
            reference: None,
            console_sign_in: true,
        };
        in_tx!(self, user::insert(&new, at(0)))
            .await
            .expect("a user")
    }

    pub(crate) async fn change_user(&self, user: UserId, change: &UserChange<'_>) -> User {
        in_tx!(self, user::update(user, change))
            .await
            .expect("changed")
    }

    pub(crate) async fn delete_user(&self, user: UserId) {
        in_tx!(self, user::delete(user, at(900)))
            .await
            .expect("deleted");
    }

    /// A key of the user that does not expire.
    pub(crate) async fn key(&self, user: UserId, number: u8) -> KeyRecord {
        in_tx!(self, keys::insert(user, &key(number), "k", None, at(0)))
            .await
            .expect("a key")
    }

    pub(crate) async fn connection(
        &self,
        user: UserId,
        consent: &str,
        accounts: &[NewAccount<'_>],
    ) -> Connection {
        self.connections()
            .import(&new_connection(user, consent), accounts, at(10))
            .await
            .expect("a connection")
    }

    pub(crate) async fn visible_accounts(&self, user: UserId) -> Vec<Account> {
        self.accounts()
            .list(user, 1000, 0)
            .await
            .expect("accounts")
            .0
    }

    /// Changes a status as a refresh does. Returns false also if the refresh cannot be claimed.
    pub(crate) async fn set_status(
        &self,
        of: (UserId, ConnectionId),
        from: ConnectionStatus,
        to: ConnectionStatus,
        now: Timestamp,
    ) -> bool {
        let Some(claim) = self.claim_refresh(of, now).await else {
            return false;
        };
        let refreshes = self.refreshes();
        let changed = refreshes.set_status(&claim, from, to, "refreshed", now, now);
        let changed = changed.await.expect("set");
        assert!(self.jobs().finish(&claim, None).await.expect("finished"));
        changed
    }

    async fn claim_refresh(
        &self,
        (user, connection): (UserId, ConnectionId),
        now: Timestamp,
    ) -> Option<ClaimedJob> {
        let claim = self.claim(REFRESH, user, connection, now, now);
        claim.await.expect("claims")
    }

    /// Merges accounts as a refresh does. Returns false if the refresh cannot be claimed.
    pub(crate) async fn refresh(
        &self,
        of: (UserId, ConnectionId),
        accounts: &[NewAccount<'_>],
        is_complete: bool,
        now: Timestamp,
    ) -> bool {
        let Some(claim) = self.claim_refresh(of, now).await else {
            return false;
        };
        let refreshes = self.refreshes();
        let applied = refreshes.apply(&claim, accounts, is_complete, now);
        assert!(applied.await.expect("refreshed"));
        self.jobs().finish(&claim, None).await.expect("finished")
    }

    /// Hides a connection, whose removal has a lease until then.
    pub(crate) async fn hide(
        &self,
        user: UserId,
        connection: ConnectionId,
        now: i64,
        until: i64,
    ) -> ClaimedJob {
        self.removals()
            .begin(user, connection, at(now), at(until))
            .await
            .expect("begins")
            .expect("hidden")
    }

    /// Hides and deletes a connection.
    pub(crate) async fn remove(
        &self,
        user: UserId,
        connection: ConnectionId,
        now: Timestamp,
    ) -> bool {
        let hidden = self.removals().begin(user, connection, now, now).await;
        let Some(claim) = hidden.expect("hidden") else {
            return false;
        };
        let gone = self.removals().finish(&claim, "deleted", now).await;
        gone.expect("gone")
    }

    /// One column of a connection's row, as text. Empty for NULL.
    pub(crate) async fn column(&self, connection: ConnectionId, column: &str) -> String {
        let sql = format!(
            "SELECT COALESCE(CAST({column} AS TEXT), '') FROM connections WHERE id = '{connection}'"
        );
        self.texts(&sql).await.remove(0)
    }

    /// All columns, as `table.column`, in the order of bytes.
    pub(crate) async fn columns(&self) -> Vec<String> {
        let list = match self.kind() {
            "sqlite" => {
                "SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
                WHERE t.type = 'table'"
            }
            _ => {
                "SELECT CAST(table_name || '.' || column_name AS TEXT) FROM information_schema.columns
                WHERE table_schema = 'public'"
            }
        };
        let mut columns = self.texts(list).await;
        columns.sort_unstable();
        columns
    }

    /// Counts the rows of a table.
    pub(crate) async fn rows(&self, table: &str) -> usize {
        self.texts(&format!("SELECT 'x' FROM {table}")).await.len()
    }

    /// Counts the secrets of a purpose.
    pub(crate) async fn secrets_for(&self, purpose: &str) -> usize {
        self.rows(&format!("secrets WHERE purpose = '{purpose}'"))
            .await
    }

    pub(crate) async fn revision(&self, user: UserId) -> i64 {
        let sql = format!("SELECT CAST(revision AS TEXT) FROM users WHERE id = '{user}'");
        self.texts(&sql).await[0].parse().expect("a number")
    }
}

pub(crate) fn on_sqlite(body: impl AsyncFnOnce(&TestDb)) {
    let folder = TempDir::new().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("test.db").display());
    runtime().block_on(async {
        let db = TestDb::attach(url, Sealer::random()).await;
        db.migrate().await.expect("migrates");
        body(&db).await;
    });
}

pub(crate) fn on_postgres(body: impl AsyncFnOnce(&TestDb)) {
    on_empty_postgres(async |db| {
        migrate_by_newer_program(&db.url);
        db.migrate().await.expect("migrates");
        body(db).await;
    });
}

/// Migrates by the program of a later version, if there is one: see `scripts/test-previous`.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment names the program"
)]
fn migrate_by_newer_program(url: &str) {
    let Ok(program) = std::env::var("BELLBIRD_TEST_NEWER_PROGRAM") else {
        return;
    };
    let migrate = Command::new(program)
        .arg("migrate")
        .env_clear()
        .env("BELLBIRD_DATABASE__URL", url)
        .status();
    assert!(migrate.expect("the newer program runs").success());
}

pub(crate) fn on_postgres_unprepared(body: impl AsyncFnOnce(&TestDb)) {
    on_postgres(async |db| {
        let options = PostgresOptions {
            prepared_statements: false,
            ..PostgresOptions::default()
        };
        let (url, sealer) = (db.url.clone(), db.sealer.clone());
        let storage = Storage::open_pooled(&url, sealer.clone(), options)
            .await
            .expect("opens");
        body(&TestDb {
            storage,
            url,
            sealer,
        })
        .await;
    });
}

/// Runs on a new database, and drops it even after a panic. Its default collation does not sort by
/// bytes, so that a column without an explicit collation fails a test.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment names the test server"
)]
pub(crate) fn on_empty_postgres(body: impl AsyncFnOnce(&TestDb)) {
    // The daily loop has no server, and leaves out what it knows by this name.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    assert!(
        test.contains("::postgres"),
        "begin the name of {test} with postgres"
    );
    let Ok(server) = std::env::var(SERVER) else {
        panic!(
            "{SERVER} is not set, and these tests are never skipped. Start a test server: \
             export {SERVER}=\"$(scripts/test-postgres start)\""
        );
    };
    let name = format!("bellbird_{}", Uuid::now_v7().simple());
    let (before, parameters) = server.split_once('?').unwrap_or((&server, ""));
    let url = format!(
        "{}/{name}?{parameters}",
        before.rsplit_once('/').expect("a URL with a database").0
    );
    let runtime = runtime();
    runtime.block_on(execute(
        &server,
        &format!(
            "CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
        ),
    ));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async { body(&TestDb::attach(url, Sealer::random()).await).await });
    }));
    runtime.block_on(execute(
        &server,
        &format!("DROP DATABASE {name} WITH (FORCE)"),
    ));
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

thread_local! {
    static HAS_PRODUCT_LIMITS: Cell<bool> = const { Cell::new(false) };
}

/// From now on, sessions of this test have the time limits of the product.
pub(crate) fn use_product_limits() {
    HAS_PRODUCT_LIMITS.set(true);
}

pub(crate) fn has_product_limits() -> bool {
    HAS_PRODUCT_LIMITS.get()
}

/// What a new session sets. The limits of the product would end what waits for a test that a busy
/// machine has stopped.
pub(crate) fn session_limits(product: &'static str) -> &'static str {
    if has_product_limits() { product } else { "" }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .expect("the test server responds");
    tokio::spawn(connection);
    client
}

async fn execute(url: &str, sql: &str) {
    connect(url).await.batch_execute(sql).await.expect(sql);
}

/// A time, in seconds after a fixed start.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("in range")
}

/// An operator's key, as [`key`].
pub(crate) fn operator_key(number: u8) -> OperatorKey {
    OperatorKey::from_random([number; 32])
}

pub(crate) fn key(number: u8) -> ApiKey {
    ApiKey::from_random([number; 32])
}

pub(crate) fn setup_token(number: u8) -> SetupToken {
    SetupToken::from_random([number; 32])
}

pub(crate) const CREDENTIALS: &str = r#"{"userToken":"user_token_that_must_not_leak"}"#;

static STORED_CREDENTIALS: LazyLock<SecretString> =
    LazyLock::new(|| SecretString::from(CREDENTIALS));

pub(crate) fn new_connection(user_id: UserId, consent: &str) -> NewConnection<'_> {
    NewConnection {
        user_id,
        provider: "akahu",
        category: ConnectionCategory::Banking,
        provider_connection_id: consent,
        institution_id: "bank_1",
        institution_name: "First Bank",
        institution_logo: Some("https://example.com/logo.png"),
        credentials: &STORED_CREDENTIALS,
        provider_user_id: None,
        consent_expires_at: None,
        repairs: None,
        next_refresh_at: None,
        backfill_ends_at: None,
        // Later than everything else.
        next_sync_at: at(1_000_000),
        first_attempt_at: at(0),
        cause: "imported",
    }
}

pub(crate) fn new_account<'a>(provider_account_id: &'a str, name: &'a str) -> NewAccount<'a> {
    NewAccount {
        provider_account_id,
        name,
        account_type: AccountType::Savings,
        number: None,
        currency: None,
        known_as: None,
    }
}

pub(crate) fn currency(code: &str) -> Currency {
    Currency::parse(code).expect("a currency")
}

pub(crate) fn masked(number: &str) -> MaskedNumber {
    MaskedNumber::mask(number).expect("four digits")
}

/// Polls a future up to `polls` times, then drops it, as a cancelled caller does.
pub(crate) async fn cancel_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}
