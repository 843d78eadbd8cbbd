//! Builds the parts of the service from settings: storage, providers, connections, webhooks and the API state.

use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use bellbird_api::front::{Access, AccessSettings};
use bellbird_api::{ApiSettings, AppState};
use bellbird_connections::{Connections, SyncSettings};
use bellbird_domain::ApiKey;
use bellbird_domain::Clock;
use bellbird_interop::Interop;
use bellbird_providers::Registry;
use bellbird_providers::registry::PROVIDERS;
use bellbird_reads::{Limits, Reads};
use bellbird_storage::{Sealer, Storage, StorageError, random_base62};
use bellbird_webhooks::schedule::Schedule;
use bellbird_webhooks::target::Rules;
use bellbird_webhooks::webhook_events::WebhookEventBuffer;
use bellbird_webhooks::{Settings as WebhookSettings, Webhooks};
use secrecy::ExposeSecret as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{Database, Settings};
use crate::failure::Failure;

const NO_MASTER_KEY: &str = "secrets.key is not set, and stored secrets are encrypted with it: generate a key with \
    `head -c 32 /dev/urandom | base64`, set BELLBIRD_SECRETS__KEY=main:THE_OUTPUT, and keep a copy";

/// What to do about a restored database whose operator has not decided yet.
pub const RESTORE_DECISION: &str = "keys, connections and endpoints that were revoked or removed since the backup \
    would work again. Decide with `bellbird restore --previous FILE` (repeats what the previous database knows to be \
    revoked or removed), `bellbird restore --revoke-keys` (revokes all API keys) or `bellbird restore --keep-keys` \
    (none was revoked since)";

/// Opens the database for commands that use no stored secret. They work without a master key.
pub async fn open_storage(settings: &Settings) -> anyhow::Result<Storage> {
    let storage = open_existing(settings, optional_sealer(settings)?).await?;
    check_schema(settings, storage).await
}

/// Opens the database for commands that read or store secrets. Fails without a master key, and on a restored database
/// before the operator's decision: these commands call providers and endpoints.
pub async fn open_sealed_storage(settings: &Settings) -> anyhow::Result<Storage> {
    let storage = open_existing(settings, required_sealer(settings)?).await?;
    let storage = check_schema(settings, storage).await?;
    require_restore_decision(storage).await
}

/// As [`open_sealed_storage`], but creates a SQLite file that does not exist, and leaves the schema to be migrated.
pub async fn open_for_service(settings: &Settings, sealer: Sealer) -> anyhow::Result<Storage> {
    let storage = open(settings, sealer).await?;
    require_restore_decision(storage).await
}

/// Fails on a restored database before the operator's decision.
pub async fn require_restore_decision(storage: Storage) -> anyhow::Result<Storage> {
    match storage.backups().awaits_restore_decision().await {
        Ok(true) => {
            storage.close().await;
            bail!("the database was restored from a backup: {RESTORE_DECISION}")
        }
        // Not migrated yet: the service migrates it.
        Ok(false) | Err(StorageError::Schema(_)) => Ok(storage),
        Err(error) => Err(error.into()),
    }
}

/// Opens the database and leaves its schema unchecked. A SQLite file that does not exist is an error.
pub async fn open_existing(settings: &Settings, sealer: Sealer) -> anyhow::Result<Storage> {
    let Database { url, pool_size } = &settings.database;
    let opened = Storage::open_existing(url.expose_secret(), sealer, *pool_size).await;
    opened.map_err(|error| describe_open_error(settings, error))
}

/// As [`open_existing`], but creates a SQLite file that does not exist: for `migrate`.
pub async fn open(settings: &Settings, sealer: Sealer) -> anyhow::Result<Storage> {
    let Database { url, pool_size } = &settings.database;
    let opened = Storage::open_pooled(url.expose_secret(), sealer, *pool_size).await;
    opened.map_err(|error| describe_open_error(settings, error))
}

/// Names the database of the settings: `SQLite database /var/lib/bellbird.db`.
#[must_use]
pub fn database_location(settings: &Settings) -> String {
    Storage::location(settings.database.url.expose_secret())
}

async fn check_schema(settings: &Settings, storage: Storage) -> anyhow::Result<Storage> {
    let pending = storage.pending_migrations().await.with_context(|| database_location(settings))?;
    if !pending.is_empty() {
        let (location, origin) = (database_location(settings), database_origin(settings));
        return Err(Failure::database(format!(
            "the {location} is not set up for this version: run `bellbird migrate`, or correct database.url ({origin})"
        )));
    }
    Ok(storage)
}

/// The text of [`StorageError::Open`] ends with the setting to correct.
pub fn describe_open_error(settings: &Settings, error: StorageError) -> anyhow::Error {
    match error {
        StorageError::Open(text) => Failure::database(format!("{text} ({})", database_origin(settings))),
        other => {
            anyhow::Error::new(other).context(format!("database.url ({}) cannot be used", database_origin(settings)))
        }
    }
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

pub fn required_sealer(settings: &Settings) -> anyhow::Result<Sealer> {
    let Some(sealer) = sealer(settings)? else { bail!(NO_MASTER_KEY) };
    Ok(sealer)
}

/// The configured master keys; `None` if secrets.key is not set.
pub fn sealer(settings: &Settings) -> anyhow::Result<Option<Sealer>> {
    let keys = settings.secrets.key.as_ref();
    keys.map(|keys| Sealer::parse(keys.expose_secret())).transpose().context("secrets.key cannot be used")
}

/// The providers that have credentials. An error names the invalid setting, or the missing one if a provider has only
/// some of its credentials.
pub fn providers(settings: &Settings) -> anyhow::Result<Registry> {
    let call_timeout = Duration::from_secs(settings.reads.provider_timeout_seconds.into());
    let registry = Registry::new(&settings.providers, call_timeout).map_err(anyhow::Error::msg)?;
    for provider in PROVIDERS {
        if let Some(key) = settings.providers.missing_setting(provider) {
            let name = provider.name;
            let variable = Settings::variable(&format!("{name}.{key}"));
            bail!("{name}.{key} is not set, but other credentials of {name} are: set {variable}, or remove the others");
        }
    }
    Ok(registry)
}

/// Message for settings in which no provider has credentials.
#[must_use]
pub fn no_provider_hint() -> String {
    let names: Vec<_> = PROVIDERS.iter().map(|provider| provider.name.as_str()).collect();
    format!("none configured: set the credentials of at least one of {}", names.join(", "))
}

/// `console_url` is the base of link URLs and of the redirect URI; without it, linking in the browser is not possible.
#[must_use]
pub fn connections(
    settings: &Settings,
    storage: &Storage,
    providers: &Registry,
    event_buffer: &WebhookEventBuffer,
    console_url: Option<&str>,
) -> Connections {
    let connections = Connections::new(storage.clone(), providers.clone(), Clock::system())
        .with_syncs(sync_settings(settings), event_buffer.clone());
    match console_url.and_then(|url| url.parse().ok()) {
        Some(url) => connections.with_console_url(url),
        None => connections,
    }
}

fn sync_settings(settings: &Settings) -> SyncSettings {
    let sync = &settings.sync;
    let days = |days: u32| Duration::from_secs(u64::from(days) * 86_400);
    SyncSettings {
        enabled: sync.enabled,
        interval: Duration::from_secs(sync.interval_seconds.into()),
        overlap: days(sync.overlap_days),
        first: days(sync.first_days),
        announce_first: sync.announce_first,
        ..SyncSettings::default()
    }
}

/// The buffer in which syncs collect the webhook events to deliver.
#[must_use]
pub fn event_buffer(settings: &Settings) -> WebhookEventBuffer {
    let first_delay = settings.webhooks.attempt_delays_seconds.first().copied().unwrap_or_default();
    WebhookEventBuffer::new(settings.webhooks.chunk_rows.try_into().unwrap_or(usize::MAX))
        .with_first_delay(Duration::from_secs(first_delay.into()))
}

/// Rules for the URLs of webhook endpoints.
#[must_use]
pub fn endpoint_rules(settings: &Settings) -> Rules {
    Rules { allow_loopback: settings.webhooks.allow_loopback }
}

/// Builds the delivery of webhook events. Fails if TLS or name resolution cannot be set up.
pub fn webhooks(
    settings: &Settings,
    storage: &Storage,
    providers: &Registry,
    event_buffer: WebhookEventBuffer,
) -> anyhow::Result<Webhooks> {
    let delays = settings.webhooks.attempt_delays_seconds.iter();
    let delivery = WebhookSettings {
        rules: endpoint_rules(settings),
        timeout: Duration::from_secs(settings.webhooks.timeout_seconds.into()),
        schedule: Schedule::new(delays.map(|seconds| Duration::from_secs((*seconds).into())).collect()),
    };
    Webhooks::new(storage.clone(), providers.clone(), Clock::system(), event_buffer, delivery)
        .map_err(anyhow::Error::msg)
}

/// Generates an API key from the system's random numbers.
#[must_use]
pub fn new_key() -> ApiKey {
    ApiKey::from_random(random_base62())
}

/// Returns a token that SIGTERM or SIGINT cancels. A second signal ends the process at once. `stop_timeout` is how long
/// requests in flight may continue.
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
            tracing::info!("stopping: finishing requests in flight, at most {} s", stop_timeout.as_secs());
            on_signal.cancel();
        }
    });
    Ok(stop)
}

#[must_use]
pub fn reads(settings: &Settings, storage: &Storage, providers: &Registry) -> Reads {
    let limits = Limits {
        deadline: Duration::from_secs(settings.reads.deadline_seconds.into()),
        row_cap: settings.reads.row_cap.into(),
    };
    Reads::new(storage.clone(), providers.clone(), Clock::system(), limits)
}

/// Builds the state of the public API. `local_url` is the API's URL if `api.public_url` is not set.
pub fn api(
    settings: &Settings,
    storage: &Storage,
    providers: &Registry,
    connections: &Connections,
    local_url: &str,
) -> AppState {
    let reads = reads(settings, storage, providers);
    let access = access_settings(settings);
    let access = Access::new(storage.clone(), reads, connections.clone(), Clock::system(), access);
    AppState::new(access, api_settings(settings, local_url))
}

/// The router of the API listener: the API with its files, and the other interfaces to the same reads.
pub fn api_router(api: &AppState, interop: &Interop) -> Router {
    let v1 = bellbird_api::mount(api, crate::openapi::document()).add(interop, bellbird_interop::export::paths());
    bellbird_api::front::router(api.access().clone(), v1, bellbird_interop::mounts(interop))
}

fn api_settings(settings: &Settings, local_url: &str) -> ApiSettings {
    ApiSettings {
        balances_cache: Duration::from_secs(settings.cache.balances_seconds.into()),
        holdings_cache: Duration::from_secs(settings.cache.holdings_seconds.into()),
        trades_cache: Duration::from_secs(settings.cache.trades_seconds.into()),
        public_url: settings.api.public_url.clone().unwrap_or_else(|| local_url.to_owned()),
    }
}

fn access_settings(settings: &Settings) -> AccessSettings {
    AccessSettings {
        metadata_per_minute: settings.limits.metadata_per_minute,
        balances_per_minute: settings.limits.balances_per_minute,
        live_per_minute: settings.limits.live_per_minute,
        live_in_flight: settings.limits.live_in_flight,
        provider_calls_per_minute: settings.limits.provider_calls_per_minute,
        failed_auth_per_minute: settings.limits.failed_auth_per_minute,
        trusted_proxies: settings.api.trusted_proxies.clone(),
        cors_origins: settings.api.cors_origins.clone(),
    }
}
