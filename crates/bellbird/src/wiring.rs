//! Builds the parts of the service from settings: storage, providers, connections, webhooks and
//! reads.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use axum::Router;
use bellbird_api::V1State;
use bellbird_api::admin::Admin;
use bellbird_api::http::ApiContext;
use bellbird_connections::{Connections, provider_names};
use bellbird_console::{Mailer, ProviderControl as _};
use bellbird_domain::{Clock, ConnectionId, CurrentText, User, UserId};
use bellbird_interop::Interop;
use bellbird_limits::SharedStore;
use bellbird_providers::Registry;
use bellbird_providers::http::ClientSettings;
use bellbird_providers::registry::PROVIDERS;
use bellbird_reads::Reads;
use bellbird_storage::{SealedSecrets, Sealer, ServiceLock, Storage, StorageError, UserFilter};
use bellbird_webhooks::Webhooks;
use bellbird_webhooks::event::buffer::WebhookEventBuffer;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::backup::BackupFolder;
use crate::config::place::{self, DATA_DIR, Surroundings};
use crate::config::{Database, Settings};
use crate::failure::Failure;
use crate::provider_loader::{ProcessSandbox, ProviderLoader};
use crate::public_info::PublicInfo;

const NO_MASTER_KEY: &str = "secrets.key is not set, and stored secrets are encrypted with it: generate a key with \
    `head -c 32 /dev/urandom | base64`, write main:THE_OUTPUT into a file, name that in secrets.key_file, and keep a \
    copy";

/// Only a first start prints the address of a page that makes one.
pub const NO_OPERATOR: &str =
    "no operator: make one with `bellbird init` or `bellbird user set USER --operator`";

/// A database in the working directory is taken for one whose key is in the environment.
const DATABASE_BY_MISTAKE: &str = "If the bellbird.db of this folder was made by mistake, move it away, so that \
    `bellbird serve` and `bellbird init` use the data folder";

/// What to do about a restored database whose operator has not decided yet.
pub const RESTORE_DECISION: &str = "what was revoked or removed since the backup would work again. Decide with \
    `bellbird restore --decide`, which makes all keys, sessions, links and identities void and pauses endpoints, or \
    with `bellbird restore --decide --keep-access`, if nothing was revoked, removed or changed since";

/// Why the service must not use a database now. Displays the reason as `/ready` shows it.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    #[error("the database cannot be read")]
    Unreadable(#[source] StorageError),
    #[error("the database schema has an unknown version")]
    UnknownSchema(#[source] StorageError),
    /// The names of the migrations.
    #[error("the database has pending migrations")]
    PendingMigrations(Vec<String>),
    #[error("the database was restored from a backup and awaits a decision")]
    AwaitsDecision,
}

/// Checks that the service may use a database: it has the schema of this version, and is not a
/// restored one whose operator has not decided yet.
pub async fn check_ready(storage: &Storage) -> Result<(), NotReady> {
    let pending = storage
        .pending_migrations()
        .await
        .map_err(|error| match error {
            StorageError::Schema(_) => NotReady::UnknownSchema(error),
            other => NotReady::Unreadable(other),
        })?;
    if !pending.is_empty() {
        return Err(NotReady::PendingMigrations(pending));
    }
    storage.ping().await.map_err(NotReady::Unreadable)?;
    match storage.backups().awaits_restore_decision().await {
        Ok(false) => Ok(()),
        Ok(true) => Err(NotReady::AwaitsDecision),
        Err(error) => Err(NotReady::Unreadable(error)),
    }
}

/// As [`check_ready`], with an error for the operator.
pub async fn require_ready(settings: &Settings, storage: &Storage) -> anyhow::Result<()> {
    check_ready(storage)
        .await
        .map_err(|error| describe_not_ready(settings, error))
}

fn describe_not_ready(settings: &Settings, error: NotReady) -> anyhow::Error {
    let location = database_location(settings);
    match error {
        NotReady::AwaitsDecision => {
            anyhow!("the database was restored from a backup: {RESTORE_DECISION}")
        }
        NotReady::PendingMigrations(names) if Storage::is_first_migration(&names) => {
            Failure::database(missing_database(settings, "is empty"))
        }
        NotReady::PendingMigrations(_) => Failure::database(format!(
            "the {location} is not set up for this version: run `bellbird migrate`, or correct database.url ({})",
            database_origin(settings)
        )),
        NotReady::Unreadable(error) | NotReady::UnknownSchema(error) => {
            anyhow::Error::new(error).context(location)
        }
    }
}

/// Opens the database for commands that use no stored secret. They work without a master key, and
/// on a restored database before the operator's decision.
pub async fn open_storage(settings: &Settings) -> anyhow::Result<Storage> {
    let storage = open_existing(settings, optional_sealer(settings)?).await?;
    match check_ready(&storage).await {
        Ok(()) | Err(NotReady::AwaitsDecision) => Ok(storage),
        Err(error) => Err(describe_not_ready(settings, error)),
    }
}

/// Opens the database for commands that read or store secrets, to call providers and endpoints.
pub async fn open_sealed_storage(settings: &Settings) -> anyhow::Result<Storage> {
    let storage = open_existing(settings, required_sealer(settings).await?).await?;
    require_ready(settings, &storage).await?;
    storage.secrets().check_sealing_key().await?;
    Ok(storage)
}

/// Opens the database and leaves its schema unchecked. A SQLite file that does not exist is an
/// error.
pub async fn open_existing(settings: &Settings, sealer: Sealer) -> anyhow::Result<Storage> {
    let Database { url, postgres } = &settings.database;
    let opened = Storage::open_existing(url.expose_secret(), sealer, *postgres).await;
    opened.map_err(|error| describe_open_error(settings, error))
}

/// As [`open_existing`], but creates a SQLite file that does not exist.
pub async fn open(settings: &Settings, sealer: Sealer) -> anyhow::Result<Storage> {
    let Database { url, postgres } = &settings.database;
    let opened = Storage::open_pooled(url.expose_secret(), sealer, *postgres).await;
    opened.map_err(|error| describe_open_error(settings, error))
}

/// Names the database of the settings: `SQLite database /var/lib/bellbird.db`.
pub fn database_location(settings: &Settings) -> String {
    Storage::location(settings.database.url.expose_secret())
}

/// The text of [`StorageError::Open`] ends with the setting to correct.
pub fn describe_open_error(settings: &Settings, error: StorageError) -> anyhow::Error {
    match error {
        StorageError::Missing(_) => Failure::database(missing_database(settings, "does not exist")),
        StorageError::Open(text) => {
            Failure::database(format!("{text} ({})", database_origin(settings)))
        }
        other => anyhow::Error::new(other).context(format!(
            "database.url ({}) cannot be used",
            database_origin(settings)
        )),
    }
}

/// What to do about a database that is not there. If no service has its rows, most likely the
/// command runs in another folder than the service, and a new database would hide one that can
/// still be restored.
pub fn missing_database(settings: &Settings, what: &str) -> String {
    if let Some(text) = ServiceLock::rescue(settings.database.url.expose_secret()) {
        return text;
    }
    let (location, origin) = (database_location(settings), database_origin(settings));
    if !names_installation(settings) {
        return no_installation(&format!("the {location} {what}"));
    }
    let mut of_machine = place::of_machine().into_iter();
    let elsewhere = match of_machine.find(|file| settings.file.is_none() && file.exists()) {
        Some(file) => format!(" The service has its settings in {}.", file.display()),
        None => String::new(),
    };
    format!(
        "the {location} {what}: is this the right folder, and database.url right ({origin})?{elsewhere} If there was \
         a database, restore a backup with `bellbird restore`. For a new one, run `bellbird migrate`"
    )
}

/// Whether a settings file was read, or anything else names a database or a master key.
pub fn names_installation(settings: &Settings) -> bool {
    let is_named = |name| settings.origin(name).is_some();
    settings.file.is_some() || is_named("database.url") || is_named("secrets.key")
}

/// What to do where nothing names an installation. `--data-dir` names one that exists.
fn no_installation(why: &str) -> String {
    let looked_in = Surroundings::of_process(None)
        .data_folder()
        .map(|folder| format!(", and the data folder {} has no settings", folder.display()))
        .unwrap_or_default();
    format!(
        "no installation found: run `bellbird serve` or `bellbird init`, or name the data folder with --data-dir or \
         {DATA_DIR} ({why}{looked_in})"
    )
}

fn database_origin(settings: &Settings) -> String {
    match (settings.origin("database.url"), &settings.file) {
        (Some(origin), _) => format!("set by {origin}"),
        (None, Some(file)) => format!("not set in {}", file.display()),
        (None, None) => "not set, and this folder has no bellbird.toml".to_owned(),
    }
}

/// The configured master keys, or a random one.
pub fn optional_sealer(settings: &Settings) -> anyhow::Result<Sealer> {
    Ok(sealer(settings)?.unwrap_or_else(Sealer::random))
}

/// The configured master keys. Without any, the error says what [`describe_missing_key`] does.
pub async fn required_sealer(settings: &Settings) -> anyhow::Result<Sealer> {
    match sealer(settings)? {
        Some(sealer) => Ok(sealer),
        None => bail!("{}", describe_missing_key(settings).await),
    }
}

/// Says what to do without secrets.key. If the database has secrets already, a new key would open
/// none of them.
pub async fn describe_missing_key(settings: &Settings) -> String {
    let secrets = match open_existing(settings, Sealer::random()).await {
        Ok(storage) => {
            let secrets = storage.secrets().sealed().await;
            storage.close().await;
            secrets.unwrap_or_default()
        }
        // Whoever needs the key next opens the database too, and reports this.
        Err(_) => SealedSecrets::default(),
    };
    let keys: Vec<_> = secrets
        .by_key
        .iter()
        .map(|(id, count)| format!("`{id}` ({count})"))
        .collect();
    if keys.is_empty() && !names_installation(settings) {
        return match Storage::sqlite_path(settings.database.url.expose_secret()) {
            Some(path) if path.exists() => format!("{NO_MASTER_KEY}. {DATABASE_BY_MISTAKE}"),
            _ => no_installation("secrets.key is not set"),
        };
    }
    if keys.is_empty() {
        return match file_without_installation(settings) {
            Some(file) => format!(
                "{NO_MASTER_KEY}. Or let a first start make all of it: move {} away, run `bellbird serve`, and add \
                 its lines to the new settings",
                file.display()
            ),
            None => NO_MASTER_KEY.to_owned(),
        };
    }
    format!(
        "secrets.key is not set, but the database holds secrets that are sealed with the master key {}: find the old \
         key, and set secrets.key to it. If it is lost, make a new key with another id, and follow \
         docs/secrets.md#if-the-key-is-lost",
        keys.join(", ")
    )
}

/// A settings file that somebody wrote before a first start, which is none with it.
fn file_without_installation(settings: &Settings) -> Option<&Path> {
    let path = Storage::sqlite_path(settings.database.url.expose_secret())?;
    let is_named = settings.origin("database.url").is_some();
    settings
        .file
        .as_deref()
        .filter(|_| !is_named && !path.exists())
}

/// The configured master keys; `None` if secrets.key is not set.
pub fn sealer(settings: &Settings) -> anyhow::Result<Option<Sealer>> {
    let Some(keys) = &settings.master_keys else {
        return Ok(None);
    };
    let origin = settings
        .origin("secrets.key")
        .map(|origin| format!(" in {origin}"))
        .unwrap_or_default();
    Sealer::parse(keys.expose_secret())
        .map(Some)
        .with_context(|| format!("secrets.key{origin} cannot be used"))
}

/// The ids of the configured master keys. The first one seals.
pub fn key_ids(settings: &Settings) -> anyhow::Result<Vec<String>> {
    Ok(sealer(settings)?
        .iter()
        .flat_map(Sealer::key_ids)
        .map(str::to_owned)
        .collect())
}

/// The providers that have credentials. The calls of all instances that have the same store are
/// counted together. An error names the invalid setting, or the missing one if a provider has only
/// some of its credentials.
pub fn providers(settings: &Settings, store: Option<&SharedStore>) -> anyhow::Result<Registry> {
    let client = ClientSettings {
        call_timeout: settings.provider_timeout,
        user_calls_per_minute: settings.api_context.provider_calls_per_minute,
        store,
    };
    let registry = Registry::new(&settings.providers, client).map_err(anyhow::Error::msg)?;
    for provider in PROVIDERS {
        if let Some(key) = settings.providers.missing_setting(provider) {
            let name = provider.name;
            let variable = Settings::variable(&format!("{name}.{key}"));
            bail!(
                "{name}.{key} is not set, but other credentials of {name} are: set {variable}, or remove the others"
            );
        }
    }
    Ok(registry)
}

/// Where instances share limits, cursors and cached responses, if redis.url is set. Fails if that
/// is no such URL.
fn shared_store(settings: &Settings, storage: &Storage) -> anyhow::Result<Option<SharedStore>> {
    let Some(of_store) = &settings.shared_store else {
        return Ok(None);
    };
    let store = SharedStore::open(of_store, &storage.secrets().name_key());
    store
        .map(Some)
        .map_err(|text| anyhow!("redis.url cannot be used: {text}"))
}

pub async fn find_operator(storage: &Storage) -> Result<Option<User>, StorageError> {
    let operators = UserFilter {
        operators_only: true,
        ..UserFilter::default()
    };
    let found = storage.users().list_matching(&operators, None, 1).await?;
    Ok(found.into_iter().next())
}

/// Message for settings in which no provider has credentials.
pub fn no_provider_hint() -> String {
    let names: Vec<_> = provider_names().collect();
    format!(
        "none configured: enter credentials on the page Providers of the console or with `bellbird init`, or set those \
         of at least one of {}",
        names.join(", ")
    )
}

/// The simulated providers of a service that runs beside this command.
#[cfg(feature = "sandbox")]
fn running_sandbox(settings: &Settings) -> Option<Arc<dyn ProcessSandbox>> {
    let sandbox = crate::sandbox_beside::SandboxOfService::new(settings)?;
    Some(Arc::new(sandbox))
}

#[cfg(not(feature = "sandbox"))]
fn running_sandbox(_: &Settings) -> Option<Arc<dyn ProcessSandbox>> {
    None
}

/// Builds what works on one database with the same providers, clock and buffer of webhook events.
pub struct Wiring<'a> {
    pub settings: &'a Settings,
    pub storage: &'a Storage,
    pub providers: Registry,
    pub clock: Clock,
    /// Opens the providers that the database has settings for.
    pub provider_loader: Arc<ProviderLoader>,
    store: Option<SharedStore>,
    /// In which syncs collect the webhook events to deliver.
    event_buffer: WebhookEventBuffer,
}

impl<'a> Wiring<'a> {
    /// For a command, with the providers of the settings and of the database. Fails as
    /// [`providers`] does, and if redis.url cannot be used.
    pub async fn new(settings: &'a Settings, storage: &'a Storage) -> anyhow::Result<Self> {
        let wiring = Self::with_clock(
            settings,
            storage,
            Clock::system(),
            running_sandbox(settings),
        )?;
        wiring.provider_loader.apply().await?;
        Ok(wiring)
    }

    /// As [`Self::new`], for a service, whose database may have no tables yet. `sandbox` simulates
    /// providers.
    pub fn with_clock(
        settings: &'a Settings,
        storage: &'a Storage,
        clock: Clock,
        sandbox: Option<Arc<dyn ProcessSandbox>>,
    ) -> anyhow::Result<Self> {
        let store = shared_store(settings, storage)?;
        let providers = providers(settings, store.as_ref())?;
        let provider_loader =
            ProviderLoader::new(settings, storage, &providers, store.as_ref(), sandbox);
        let first_delay = settings
            .webhooks
            .schedule
            .after(0, None, 0)
            .unwrap_or_default();
        let chunk_rows = settings
            .webhooks
            .chunk_rows
            .try_into()
            .unwrap_or(usize::MAX);
        let event_buffer = WebhookEventBuffer::new(chunk_rows).with_first_delay(first_delay);
        Ok(Self {
            settings,
            storage,
            providers,
            clock,
            provider_loader: Arc::new(provider_loader),
            store,
            event_buffer,
        })
    }

    /// `console_url` is the base of link URLs and of the redirect URI; without it, linking in the
    /// browser is not possible.
    pub fn connections(&self, console_url: Option<CurrentText>) -> Connections {
        let connections = Connections::new(
            self.storage.clone(),
            self.providers.clone(),
            self.clock.clone(),
        )
        .with_syncs(self.settings.sync, self.event_buffer.clone())
        .with_syncs_by_provider(self.settings.syncs_by_provider.clone())
        .with_return_origins(self.settings.return_origins.clone());
        match console_url {
            Some(url) => connections.with_console_url(url),
            None => connections,
        }
    }

    /// Fails if TLS or name resolution cannot be set up.
    pub fn webhooks(&self) -> anyhow::Result<Webhooks> {
        Webhooks::new(
            self.storage.clone(),
            self.providers.clone(),
            self.clock.clone(),
            self.event_buffer.clone(),
            self.settings.webhooks.clone(),
        )
        .map_err(anyhow::Error::msg)
    }

    pub fn reads(&self) -> Reads {
        Reads::new(
            self.storage.clone(),
            self.providers.clone(),
            self.clock.clone(),
            self.settings.reads,
            self.store.as_ref(),
        )
    }
}

/// URLs of the listeners, as this machine reaches them.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Urls {
    /// Empty, and omitted, if this instance does not serve the API. The same holds for the console.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub console_url: String,
    pub ops_url: String,
    /// Omitted if the operator's API is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_url: Option<String>,
    /// As others reach them.
    #[serde(skip)]
    pub public: PublicInfo,
}

/// What the service is made of, over one database. Cheap to clone.
#[derive(Clone)]
pub struct Parts {
    pub storage: Storage,
    pub clock: Clock,
    pub connections: Connections,
    pub webhooks: Webhooks,
    pub reads: Reads,
    pub api: V1State,
    /// The state of the interfaces beside `/v1`.
    pub interop: Interop,
    pub admin: Admin,
    /// None: no e-mails.
    pub mailer: Option<Mailer>,
    /// None: the service makes no backups.
    pub backups: Option<BackupFolder>,
    pub provider_loader: Arc<ProviderLoader>,
}

impl Parts {
    pub fn new(wiring: &Wiring<'_>, urls: &Urls) -> anyhow::Result<Self> {
        let (settings, storage) = (wiring.settings, wiring.storage);
        let (api_url, console_url) = (&urls.public.api_url, &urls.public.console_url);
        let reads = wiring.reads();
        let connections = wiring.connections(Some(console_url.clone()));
        let webhooks = wiring.webhooks()?;
        let context = ApiContext::new(
            storage.clone(),
            reads.clone(),
            connections.clone(),
            wiring.clock.clone(),
            settings.api_context.clone(),
            wiring.store.clone(),
        );
        let email = settings.pages.email.as_ref();
        let mailer = email.map(|email| Mailer::new(email, console_url.clone()));
        let own_api_url = api_url.get();
        let admin_url = urls.admin_url.as_deref().unwrap_or(&own_api_url);
        Ok(Self {
            storage: storage.clone(),
            clock: wiring.clock.clone(),
            interop: Interop::new(context.clone(), settings.interop, api_url.clone()),
            admin: Admin::new(
                context.clone(),
                webhooks.clone(),
                api_url.clone(),
                admin_url,
            ),
            api: V1State::new(
                context,
                &settings.caches,
                api_url.clone(),
                console_url.clone(),
            ),
            connections,
            webhooks,
            reads,
            mailer: mailer
                .transpose()
                .context("cannot set up TLS for the mail server")?,
            backups: settings.backups.clone(),
            provider_loader: Arc::clone(&wiring.provider_loader),
        })
    }

    /// Evicts a removed connection from everything cached.
    pub fn evict_connection(&self, user: UserId, connection: ConnectionId) {
        self.api.evict_connection(user, connection);
        self.interop.evict_connection(connection);
    }

    /// Frees the memory of everything cached that has expired.
    pub fn purge_expired(&self) {
        self.api.purge_expired();
        self.interop.purge_expired();
    }
}

/// Returns a token that SIGTERM or SIGINT cancels. A second signal ends the process at once.
/// `stop_timeout` is how long requests in flight may continue.
pub fn stop_on_signal(stop_timeout: Duration) -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let on_signal = stop.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if on_signal.is_cancelled() {
                tracing::warn!("received a second signal, exiting immediately");
                std::process::exit(1);
            }
            tracing::info!(
                "stopping: finishing requests in flight, at most {} s",
                stop_timeout.as_secs()
            );
            on_signal.cancel();
        }
    });
    Ok(stop)
}

/// The router of the API listener: the API with its files, the other interfaces to the same reads,
/// and the operator's API if it is served there.
pub fn api_router(api: &V1State, interop: &Interop, admin: Option<&Admin>) -> Router {
    let v1 = bellbird_api::interface(api, crate::openapi::document)
        .add(interop, bellbird_interop::export::routes());
    let others = bellbird_interop::interfaces(interop)
        .into_iter()
        .chain(admin.map(bellbird_api::admin::interface));
    bellbird_api::http::listener(v1, others.collect())
}
