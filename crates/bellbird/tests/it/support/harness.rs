//! The application under test: the real router and listener, a fresh database, the sandbox as
//! providers, and a clock that tests set.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use bellbird::config::{Settings, Sources};
use bellbird::public_info::PublicInfo;
use bellbird::roles::Roles;
use bellbird::service::{Service, Start};
use bellbird::wiring::{self, Parts, Urls, Wiring};
use bellbird_api::serve::{self, ServeOptions};
use bellbird_connections::Connections;
use bellbird_domain::Clock;
use bellbird_domain::{Connection, Plan, User};
use bellbird_providers::registry::PROVIDERS;
use bellbird_reads::Reads;
use bellbird_sandbox::{Bank, Sandbox};
use bellbird_storage::{JobKey, NewUser, Sealer, Storage, in_tx};
use bellbird_webhooks::Webhooks;
use jiff::{SignedDuration, Timestamp};
use metrics_exporter_prometheus::PrometheusBuilder;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::client::Account;
use crate::support::provider_spec::spec;

/// The time at which tests start: the evening of 20 November 2026 in Sydney.
pub(crate) const NOW: &str = "2026-11-20T09:30:00Z";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

thread_local!(static IS_ON_POSTGRES: Cell<bool> = const { Cell::new(false) });

impl Database {
    /// The database of this test: SQLite, unless the environment or `also_on_postgres!` says
    /// otherwise.
    pub(crate) fn of_test() -> Self {
        let is_named = std::env::var("BELLBIRD_TEST_DATABASE").is_ok_and(|name| name == "postgres");
        if is_named || IS_ON_POSTGRES.get() {
            Self::Postgres
        } else {
            Self::Sqlite
        }
    }

    /// For the tests of this thread.
    pub(crate) fn use_postgres() {
        IS_ON_POSTGRES.set(true);
    }
}

pub(crate) struct Setup {
    pub(crate) database: Database,
    pub(crate) rows: u32,
    pub(crate) settings: Settings,
    /// Instead of the time of the service for requests in flight when it stops.
    pub(crate) stop_timeout: Option<Duration>,
}

impl Default for Setup {
    /// The defaults of the service, but without rate limits, which have tests of their own.
    fn default() -> Self {
        let limits = Settings::names()
            .into_iter()
            .filter(|name| name.starts_with("limits."));
        let environment = limits
            .map(|name| (Settings::variable(&name), "0".into()))
            .collect();
        let sources = Sources {
            file: Some("/dev/null".into()),
            environment,
            ..Sources::default()
        };
        let mut settings = Settings::load(&sources).expect("0 turns a limit off");
        let any_port = "127.0.0.1:0".parse().expect("an address");
        (
            settings.api.listen,
            settings.console.listen,
            settings.ops_listen,
        ) = (any_port, any_port, any_port);
        settings.api.public_url = Some("https://bellbird.example".to_owned());
        // Off, so that a test makes all the provider calls that it counts.
        settings.sync.enabled = false;
        settings.webhooks.rules.allow_loopback = true;
        Self {
            database: Database::of_test(),
            rows: 500,
            settings,
            stop_timeout: None,
        }
    }
}

impl Setup {
    /// The defaults of tests, with so many rows of the busiest account.
    pub(crate) fn with_rows(rows: u32) -> Self {
        Self {
            rows,
            ..Self::default()
        }
    }

    /// The defaults of tests, with a few other settings.
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut setup = Self::default();
        change(&mut setup.settings);
        setup
    }
}

/// A user with a key and connections.
pub(crate) struct Person {
    pub(crate) user: User,
    pub(crate) key: String,
    pub(crate) connections: Vec<Connection>,
}

/// Asserts that the user must reconnect a connection with this status.
pub(crate) fn assert_reconnect(answer: &Response, status: &str) {
    let message = answer.error(503);
    let expected = format!("is {status}: the user must reconnect it");
    assert!(message.contains(&expected), "{message}");
    let details = &answer.json()["error"]["details"];
    assert_eq!(details[0], format!("status: {status}"));
    let id = details[1].as_str().unwrap();
    assert!(id.starts_with("connectionId: "), "{details}");
    assert_eq!(answer.header("bellbird-error"), Some("reconnect_required"));
    assert_eq!(answer.header("retry-after"), None, "a retry cannot succeed");
}

/// What all instances of the service share. Each creates everything else when it starts.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) database: String,
    settings: Settings,
    sealer: Sealer,
    clock: Clock,
    console_url: String,
}

impl Shared {
    /// Another instance, as if the service had just started.
    pub(crate) async fn new_instance(&self) -> Connections {
        let storage = self.open_storage().await;
        let wiring = Wiring::with_clock(&self.settings, &storage, self.clock.clone(), None)
            .expect("the settings are valid");
        wiring.connections(Some(self.console_url.as_str().into()))
    }

    async fn open_storage(&self) -> Storage {
        let storage = Storage::open(&self.database, self.sealer.clone()).await;
        storage.expect("the database opens")
    }
}

pub(crate) struct App {
    pub(crate) sandbox: Sandbox,
    pub(crate) shared: Shared,
    pub(crate) storage: Storage,
    pub(crate) connections: Connections,
    pub(crate) webhooks: Webhooks,
    pub(crate) reads: Reads,
    pub(crate) clock: Clock,
    /// Professional plan; two connections at Fiskil, under one end user.
    pub(crate) olivia: Person,
    /// Developer plan; one connection.
    pub(crate) ben: Person,
    pub(crate) url: String,
    pub(crate) console_url: String,
    pub(crate) http: reqwest::Client,
    parts: Parts,
    stop: CancellationToken,
    _directory: TempDir,
}

/// The id and the name of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccountLabel {
    pub(crate) id: String,
    pub(crate) name: String,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    path: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {}", self.text))
    }

    pub(crate) fn data(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()["data"].as_array().expect("data").clone()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(value.to_str().expect("ASCII"))
    }

    /// The body of a success, in a type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> T {
        assert_eq!(self.status, 200, "{}", self.text);
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {}", self.text))
    }

    /// Asserts that this is the error object with this status; returns its message.
    pub(crate) fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert!(self.header("x-request-id").is_some());
        let body = self.json();
        let error = body["error"].as_object().expect("the error object");
        assert_eq!(body.as_object().expect("an object").len(), 1);
        for (member, value) in error {
            match member.as_str() {
                "message" => assert!(value.as_str().is_some_and(|text| !text.is_empty())),
                "code" => assert_eq!(value.as_str(), self.header("bellbird-error")),
                "details" => assert!(value.as_array().is_some_and(|details| !details.is_empty())),
                other => panic!("unknown member {other}"),
            }
        }
        // The endpoints of the specification have one code only.
        let has_code = match self.header("bellbird-error") {
            Some("professional_required") => true,
            Some("no_such_path") => false,
            _ => self.path.starts_with("/v1/export/"),
        };
        assert_eq!(error.contains_key("code"), has_code, "{}", self.text);
        error["message"].as_str().expect("a message").to_owned()
    }
}

impl App {
    pub(crate) async fn start(setup: Setup) -> Self {
        let now: Timestamp = NOW.parse().expect("an instant");
        let options = bellbird_sandbox::Options {
            rows: setup.rows,
            now: Some(now),
            ..Default::default()
        };
        let sandbox = bellbird_sandbox::start(options).await;
        let sandbox = sandbox.expect("the sandbox starts");
        let directory = tempfile::tempdir().expect("a directory");
        let url = match setup.database {
            Database::Sqlite => format!("sqlite:{}", directory.path().join("test.db").display()),
            Database::Postgres => postgres_database().await,
        };
        let mut settings = setup.settings;
        settings.database.url = SecretString::from(url.clone());
        settings.providers =
            bellbird::sandbox_beside::sandbox_settings(sandbox.description()).expect("settings");
        let (sealer, clock, stop) = (
            Sealer::random(),
            Clock::manual(now),
            CancellationToken::new(),
        );
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let roles = Roles::all();
        let start = Start {
            sandbox: None,
            roles,
            sealer: sealer.clone(),
            clock: clock.clone(),
            metrics,
            stop: stop.clone(),
        };
        let service = Service::open(settings.clone(), start).await;
        let mut service = service.expect("the service starts");
        service.stop_timeout = setup.stop_timeout.unwrap_or(service.stop_timeout);
        let (parts, urls) = (service.parts.clone(), service.urls.clone());
        let Parts {
            storage,
            connections,
            webhooks,
            reads,
            ..
        } = parts.clone();
        tokio::spawn(service.serve(None));
        let console_url = urls.console_url;
        let shared = Shared {
            database: url,
            settings,
            sealer,
            clock: clock.clone(),
            console_url: console_url.clone(),
        };

        let all_credentials =
            serde_json::to_value(&sandbox.description().credentials).expect("JSON");
        let olivia = person(
            &storage,
            &connections,
            now,
            "olivia@example.com",
            Plan::Professional,
            &[&all_credentials[0], &all_credentials[1]],
        )
        .await;
        let ben = person(
            &storage,
            &connections,
            now,
            "ben@example.com",
            Plan::Developer,
            &[&all_credentials[2]],
        )
        .await;
        // Imports called the providers. Tests count calls from here.
        let http = reqwest::Client::builder()
            .no_proxy()
            .build()
            .expect("a client");
        let app = Self {
            sandbox,
            shared,
            storage,
            connections,
            webhooks,
            reads,
            clock,
            olivia,
            ben,
            url: urls.api_url,
            console_url,
            http,
            parts,
            stop,
            _directory: directory,
        };
        app.reset_calls();
        app
    }

    /// Runs the background jobs of the service until the end of the test.
    pub(crate) fn start_background_jobs(&self) {
        bellbird::background::start(self.parts.clone(), &Roles::all(), self.stop.clone());
    }

    pub(crate) fn credentials(&self, at: usize) -> Value {
        serde_json::to_value(&self.sandbox.description().credentials[at]).expect("JSON")
    }

    /// The sandbox's credentials of one provider.
    pub(crate) fn credentials_of(&self, provider: &str) -> Vec<Value> {
        let all_credentials =
            serde_json::to_value(&self.sandbox.description().credentials).expect("JSON");
        let all_credentials = all_credentials.as_array().expect("an array").iter();
        all_credentials
            .filter(|credentials| credentials["provider"] == provider)
            .cloned()
            .collect()
    }

    /// The credentials of a provider that [`App::person_at`] imports.
    pub(crate) fn spare_credentials(&self, provider: &str) -> Value {
        let spare = spec(provider).spare_credentials;
        self.credentials_of(provider).swap_remove(spare)
    }

    /// A new user with a key and a connection for each of these credentials.
    pub(crate) async fn add_person(
        &self,
        email: &str,
        plan: Plan,
        all_credentials: &[&Value],
    ) -> Person {
        person(
            &self.storage,
            &self.connections,
            self.clock.now(),
            email,
            plan,
            all_credentials,
        )
        .await
    }

    /// A GET with Olivia's key.
    pub(crate) async fn get(&self, path: &str) -> Response {
        self.get_as(&self.olivia.key, path).await
    }

    pub(crate) async fn get_as(&self, key: &str, path: &str) -> Response {
        self.method_as(Method::GET, key, path).await
    }

    pub(crate) async fn get_without_key(&self, path: &str) -> Response {
        let url = format!("{}{path}", self.url);
        self.send(self.http.get(url)).await
    }

    pub(crate) async fn method_as(&self, method: Method, key: &str, path: &str) -> Response {
        let url = format!("{}{path}", self.url);
        let request = self.http.request(method, url);
        self.send(request.bearer_auth(key)).await
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Response {
        let response = request.send().await.expect("an answer");
        let (status, headers) = (response.status(), response.headers().clone());
        let path = response.url().path().to_owned();
        Response {
            status,
            headers,
            path,
            text: response.text().await.expect("a body"),
        }
    }

    /// A simulated provider.
    pub(crate) fn bank(&self, provider: &str) -> &Bank {
        self.sandbox.bank(provider)
    }

    /// The provider of Olivia and Ben.
    pub(crate) fn fiskil(&self) -> &Bank {
        self.bank("fiskil")
    }

    /// Clears the faults of every provider.
    pub(crate) fn clear_faults(&self) {
        for provider in simulated_providers() {
            self.bank(provider).clear_faults();
        }
    }

    /// Calls for transactions of Fiskil since the last [`App::reset_calls`].
    pub(crate) fn transaction_calls(&self) -> u64 {
        let calls = self.fiskil().calls();
        calls.get("/v1/banking/transactions").copied().unwrap_or(0)
    }

    /// Resets the call counts of every provider.
    pub(crate) fn reset_calls(&self) {
        for provider in simulated_providers() {
            self.bank(provider).reset_calls();
        }
    }

    /// The accounts of a user, each with its id at the provider.
    pub(crate) async fn accounts_by(&self, person: &Person) -> Vec<(Account, String)> {
        let accounts = self.all_accounts(person).await;
        let mut ids = BTreeMap::new();
        for connection in &person.connections {
            for account in self.stored_accounts(person.user.id, connection.id).await {
                ids.insert(account.id.to_string(), account.provider_account_id);
            }
        }
        let with_id = |account: Account| {
            let id = ids.remove(&account.id).expect("a stored account");
            (account, id)
        };
        accounts.into_iter().map(with_id).collect()
    }

    /// Olivia's account whose name contains this text.
    pub(crate) async fn account(&self, name: &str) -> Account {
        let accounts = self.all_accounts(&self.olivia).await;
        let names: Vec<&str> = accounts.iter().map(|account| &*account.name).collect();
        let found = accounts.iter().find(|account| account.name.contains(name));
        found
            .unwrap_or_else(|| panic!("no account like {name} among {names:?}"))
            .clone()
    }

    /// Olivia's account with the most rows, and its id at the provider.
    pub(crate) async fn busiest(&self) -> (Account, String) {
        let mut best: Option<(i64, Account, String)> = None;
        for (account, id) in self.accounts_by(&self.olivia).await {
            let read = self.transactions(&account).from("2000-01-01").limit(1);
            let total = read.page().await.pagination.total;
            if best.as_ref().is_none_or(|(most, ..)| total > *most) {
                best = Some((total, account, id));
            }
        }
        self.reset_calls();
        let (_, account, id) = best.expect("an account");
        (account, id)
    }

    /// A new user with one connection at a provider.
    pub(crate) async fn person_at(&self, provider: &str) -> Person {
        let email = format!("{provider}@example.com");
        let credentials = self.spare_credentials(provider);
        let plan = Plan::Professional;
        let person = self.add_person(&email, plan, &[&credentials]).await;
        self.reset_calls();
        person
    }

    pub(crate) async fn accounts_of(&self, connection: &Connection) -> Vec<AccountLabel> {
        let accounts = self.stored_accounts(connection.user_id, connection.id);
        let accounts = accounts.await.into_iter();
        accounts
            .map(|account| AccountLabel {
                id: account.id.to_string(),
                name: account.name,
            })
            .collect()
    }

    /// Writes how often keys were used, as the service does each minute.
    pub(crate) async fn write_key_reads(&self) {
        self.parts.api.context().write_key_reads().await.unwrap();
    }

    /// Sends the e-mails that are due, as the service does each minute.
    pub(crate) async fn send_emails(&self) {
        let mailer = self.parts.mailer.as_ref().expect("a mail server is set");
        let sent = mailer.send_due(&self.storage, &self.clock, &self.stop);
        sent.await.unwrap();
    }

    /// Advances the clocks of the service and of every provider.
    pub(crate) fn advance_clock(&self, time: SignedDuration) {
        let now = self.clock.now().saturating_add(time);
        self.clock.set(now.unwrap());
        for provider in simulated_providers() {
            self.bank(provider).advance_clock(time);
        }
    }

    /// Runs consent session, refresh and removal jobs until none is due.
    pub(crate) async fn run_due_jobs(&self) {
        for kind in ["consent_session", "refresh", "removal", "user_removal"] {
            self.connections.jobs().run_due(kind).await.unwrap();
        }
    }

    /// Advances the clocks, and runs the jobs that are due then.
    pub(crate) async fn run_jobs_after(&self, time: SignedDuration) {
        self.advance_clock(time);
        self.run_due_jobs().await;
    }

    /// Runs the hourly cleanup, if it is due.
    pub(crate) async fn clean_up(&self) {
        let (job, now) = (JobKey::of_service("cleanup"), self.clock.now());
        self.storage.jobs().insert(&job, "", now).await.unwrap();
        self.connections.jobs().run_due("cleanup").await.unwrap();
    }

    /// The API of a new instance without a socket, on the same database and with the same caches.
    pub(crate) fn router(&self) -> Router {
        let parts = &self.parts;
        wiring::api_router(&parts.api, &parts.interop, Some(&parts.admin))
    }

    /// The URL of the API of another instance on the same database, as if the service had just
    /// started.
    pub(crate) async fn start_another(&self) -> String {
        let Shared {
            settings, clock, ..
        } = &self.shared;
        let storage = self.shared.open_storage().await;
        let wiring = Wiring::with_clock(settings, &storage, clock.clone(), None)
            .expect("the settings are valid");
        let any_port = "127.0.0.1:0".parse().expect("an address");
        let listener = serve::listen(any_port).await.expect("a port");
        let api_url = format!("http://{}", listener.address());
        let console_url = self.console_url.clone();
        let urls = Urls {
            ops_url: String::new(),
            admin_url: None,
            public: PublicInfo {
                api_url: api_url.as_str().into(),
                console_url: console_url.as_str().into(),
                ..PublicInfo::default()
            },
            api_url: api_url.clone(),
            console_url,
        };
        let Parts {
            api,
            interop,
            admin,
            ..
        } = Parts::new(&wiring, &urls).expect("an instance");
        let router = wiring::api_router(&api, &interop, Some(&admin));
        let (options, stop) = (ServeOptions::default(), self.stop.clone());
        tokio::spawn(serve::serve(listener, router, options, stop));
        api_url
    }

    /// Stops the service, which completes what is under way within its time.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn person(
    storage: &Storage,
    connections: &Connections,
    now: Timestamp,
    email: &str,
    plan: Plan,
    all_credentials: &[&Value],
) -> Person {
    let new = NewUser {
        email,
        plan,
        timezone: Some("Australia/Sydney"),
        reference: None,
        console_sign_in: true,
    };
    let user = in_tx!(storage, user::insert(&new, now)).await;
    let user = user.expect("a user");
    let key = bellbird_storage::new_key();
    in_tx!(storage, keys::insert(user.id, &key, "test", None, now))
        .await
        .expect("the key is stored");
    let mut imported = Vec::new();
    for credentials in all_credentials {
        let provider = credentials["provider"].as_str().expect("a provider");
        let credentials = SecretString::from(credentials.to_string());
        let imports = connections.imports();
        let import = imports.import(user.id, provider, &credentials).await;
        imported.extend(import.expect("imported").connections);
    }
    Person {
        user,
        key: key.expose().to_owned(),
        connections: imported,
    }
}

/// A new, empty database on the server of the test command.
pub(crate) async fn postgres_database() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let server = std::env::var("BELLBIRD_TEST_POSTGRES_URL").expect(
        "BELLBIRD_TEST_POSTGRES_URL names no PostgreSQL server: run the tests with scripts/test",
    );
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("it_{}_{number}", std::process::id());
    let connected = tokio_postgres::connect(&server, tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("PostgreSQL answers");
    tokio::spawn(connection);
    // A process of an earlier run may have had the same id.
    for statement in ["DROP DATABASE IF EXISTS", "CREATE DATABASE"] {
        let done = client.batch_execute(&format!("{statement} {name}")).await;
        done.expect(statement);
    }
    let (base, _) = server.rsplit_once('/').expect("a URL with a database");
    let url = format!("{base}/{name}");
    // Of a later version: see `scripts/test-previous`.
    if let Ok(program) = std::env::var("BELLBIRD_TEST_NEWER_PROGRAM") {
        let migrate = Command::new(program)
            .arg("migrate")
            .env_clear()
            .env("BELLBIRD_DATABASE__URL", &url)
            .status();
        assert!(migrate.expect("the newer program runs").success());
    }
    url
}

/// Runs tests of a module on PostgreSQL too, each time: as `postgres_too::name`. All tests run
/// there each night, so only those belong here whose point is the database: its locks, its
/// notifications, several instances or processes at once, or what it stores.
macro_rules! also_on_postgres {
    ($($name:ident)+) => {
        mod postgres_too {
            $(#[test]
            fn $name() {
                $crate::support::harness::Database::use_postgres();
                super::$name();
            })+
        }
    };
}
pub(crate) use also_on_postgres;

/// The providers that both the program and the sandbox know. These tests leave out a provider
/// without a simulation.
pub(crate) fn simulated_providers() -> impl Iterator<Item = &'static str> {
    PROVIDERS
        .iter()
        .map(|provider| provider.name.as_str())
        .filter(|name| bellbird_sandbox::PROVIDERS.contains(name))
}

/// Waits until background work has made the condition true.
pub(crate) async fn eventually(condition: impl AsyncFn() -> bool) {
    /// In real time, and long enough for a slow machine.
    const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
    eventually_within(WAIT_TIMEOUT, condition).await;
}

/// Waits for a condition that may need the end of a lease.
pub(crate) async fn eventually_within(timeout: Duration, condition: impl AsyncFn() -> bool) {
    const POLL_INTERVAL: Duration = Duration::from_millis(2);
    let condition_met = async {
        while !condition().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(timeout, condition_met)
        .await
        .expect("the condition was not met in time");
}
