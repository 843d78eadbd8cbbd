//! Settings: their names, defaults and bounds. `bellbird.example.toml` documents each one for the
//! operator.
//!
//! The settings file is read first, then environment variables, then flags; a later source
//! overrides an earlier one. A secret may also be in a file of its own, which another key of the
//! same name and `_file` names.
//!
//! [`Settings`] holds what the other crates take. So a new setting is a field of a crate's
//! settings, a line in `Settings::read`, and a paragraph in the example file, which a test compares
//! with this list. Each provider declares its own settings.
#![expect(
    clippy::disallowed_methods,
    reason = "the settings read the environment"
)]

pub mod client;
pub mod place;
mod source;
pub mod terminal;
mod values;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use bellbird_api::ApiSettings;
use bellbird_api::http::ApiContextSettings;
use bellbird_connections::{
    ProviderSyncs, ReturnOrigin, SyncSettings, SyncsByProvider, provider_names,
};
use bellbird_console::{ConsoleSettings, OidcSettings};
use bellbird_interop::InteropSettings;
use bellbird_limits::StoreSettings;
use bellbird_providers::registry::ProviderSettings;
use bellbird_reads::Limits;
use bellbird_storage::PostgresOptions;
use bellbird_webhooks::Settings as WebhookSettings;
use bellbird_webhooks::delivery::schedule::Schedule;
use bellbird_webhooks::target::Rules;
use clap::ValueEnum;
use secrecy::{ExposeSecret as _, SecretString};

use crate::backup::BackupFolder;

pub use source::{Flag, Origin, Sources};
pub use values::{LISTEN_ADDRESS, WEB_URL, web_url};

use values::{Values, web_origin};

/// Up to 30 days.
const SYNC_SECONDS: RangeInclusive<u32> = 1..=2_592_000;

/// All settings, validated.
#[derive(Debug, Clone)]
pub struct Settings {
    pub database: Database,
    /// Where the service makes backups. `None`: nowhere.
    pub backups: Option<BackupFolder>,
    pub api: Address,
    pub console: Address,
    /// Where the operator's API is served. `None`: nowhere.
    pub admin_listen: Option<SocketAddr>,
    pub ops_listen: SocketAddr,
    /// The origins to which a browser may return from a link session.
    pub return_origins: Vec<ReturnOrigin>,
    /// The master keys, as `secrets.key` has them.
    pub master_keys: Option<SecretString>,
    pub providers: ProviderSettings,
    /// Maximum duration of one provider call.
    pub provider_timeout: Duration,
    pub reads: Limits,
    pub caches: ApiSettings,
    pub api_context: ApiContextSettings,
    /// The URL of the Valkey or Redis server in which instances share limits, cursors and cached
    /// responses.
    pub shared_store: Option<StoreSettings>,
    pub interop: InteropSettings,
    pub pages: ConsoleSettings,
    pub sync: SyncSettings,
    pub syncs_by_provider: SyncsByProvider,
    pub webhooks: WebhookSettings,
    pub log: Log,
    /// The collector of traces, if they are on.
    pub traces_url: Option<String>,
    /// The settings file that was read, with its absolute path.
    pub file: Option<PathBuf>,
    /// The source of each setting that is not at its default, by `section.key`.
    pub origins: BTreeMap<String, Origin>,
    /// What each setting is, by `section.key`, to compare instances.
    pub effective: BTreeMap<String, SecretString>,
}

#[derive(Debug, Clone)]
pub struct Database {
    pub url: SecretString,
    pub postgres: PostgresOptions,
}

/// Where a listener is, and the URL at which others reach it, if that is another one.
#[derive(Debug, Clone)]
pub struct Address {
    pub listen: SocketAddr,
    pub public_url: Option<String>,
}

impl Address {
    /// The URL of a service with these settings, for what runs beside it. `None` if the settings
    /// leave the choice of the port to the system.
    pub fn expected_url(&self) -> Option<String> {
        let has_port = self.listen.port() != 0;
        let local_url = || has_port.then(|| url_on_this_machine(self.listen));
        self.public_url.clone().or_else(local_url)
    }
}

/// Where to reach a listener from this machine. One on all interfaces gets the loopback address.
pub(crate) fn on_this_machine(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        });
    }
    address
}

pub(crate) fn url_on_this_machine(address: SocketAddr) -> String {
    format!("http://{}", on_this_machine(address))
}

/// The socket at which systemd waits to hear that a service of `Type=notify` is ready: see
/// `sd_notify(3)`.
pub fn notify_socket() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET")
}

#[derive(Debug, Clone)]
pub struct Log {
    pub format: LogFormat,
    pub level: LogLevel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    // Text on a terminal, otherwise JSON. A documentation comment would appear in `--help`.
    Auto,
    Text,
    // One object per line.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Default for Settings {
    /// Every setting at its default, whatever the file and the environment of this process say.
    fn default() -> Self {
        Self::read(&mut Values::default())
    }
}

impl Settings {
    /// Reads and checks all sources, and returns all errors together.
    pub fn load(sources: &Sources) -> Result<Self, SettingErrors> {
        let declared = Self::declared();
        let mut values = Values::collect(sources, &declared.names, &declared.secrets);
        let settings = Self::read(&mut values);
        if values.errors.is_empty() {
            Ok(settings)
        } else {
            Err(SettingErrors(values.errors))
        }
    }

    /// The names of all settings, such as `api.listen`, in the order of the example file.
    pub fn names() -> Vec<String> {
        Self::declared().names
    }

    /// The names of the settings that hold secrets. Each may be given as a file:
    /// `secrets.key_file`.
    pub fn secret_names() -> Vec<String> {
        Self::declared().secrets
    }

    /// Reading records the names.
    fn declared() -> Values {
        let mut values = Values::default();
        Self::read(&mut values);
        values
    }

    /// The source of a setting such as `api.listen`; `None` if it has its default.
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.origins.get(name)
    }

    /// Every setting with its default and its bounds, in the order of the example file. A default
    /// that the tests of a crate need too is that crate's.
    fn read(from: &mut Values) -> Self {
        const NETWORKS: &str = "a list of IP addresses and CIDR blocks, such as 10.0.0.0/8";
        const ORIGINS: &str =
            "a list of web origins such as https://app.example.com, without a path";
        const RETURN_ORIGINS: &str = "a list of web origins such as https://app.example.com, as browsers write them: \
            in lower case, without a path or default port, and http only for this machine";
        let postgres = PostgresOptions::default();
        let database = Database {
            url: from.database_url("database.url", "sqlite:bellbird.db"),
            postgres: PostgresOptions {
                pool_size: from.number("database.pool_size", postgres.pool_size, 2..=1_000),
                prepared_statements: from
                    .switch("database.prepared_statements", postgres.prepared_statements),
            },
        };
        let backups = read_backups(from, &database.url);
        let api = Address {
            listen: from.listen("api.listen", 8080),
            public_url: from.optional_url("api.public_url"),
        };
        let trusted_proxies = from.list("api.trusted_proxies", NETWORKS, |item| item.parse().ok());
        let cors_origins = from.list("api.cors_origins", ORIGINS, web_origin);
        let console = Address {
            listen: from.listen("console.listen", 8081),
            public_url: from.optional_url("console.public_url"),
        };
        let operator_name = from.name("console.operator_name", 60);
        let email = from.email("console.smtp_url", "console.mail_from");
        let oidc = read_oidc(from);
        let admin_listen = from.optional_listen("admin.listen");
        let return_origins = from.list("admin.return_origins", RETURN_ORIGINS, ReturnOrigin::parse);
        let ops_listen = from.listen("ops.listen", 9090);
        let master_keys = from.secret("secrets.key");
        let providers = from.providers();
        let reads = Limits {
            // A stop takes 22 seconds more at most, after the 5 that Kubernetes waits first.
            deadline: from.seconds("reads.deadline_seconds", Duration::from_secs(25), 1..=30),
            row_cap: from.number("reads.row_cap", 5_000, 1..=1_000_000).into(),
        };
        let provider_timeout = from.seconds(
            "reads.provider_timeout_seconds",
            Duration::from_secs(20),
            1..=300,
        );
        let balances_cache = from.cache_time("cache.balances_seconds", 300);
        let holdings_cache = from.cache_time("cache.holdings_seconds", 600);
        let trades_cache = from.cache_time("cache.trades_seconds", 600);
        let mut api_context = ApiContextSettings {
            metadata_per_minute: from.limit("limits.metadata_per_minute", 60),
            balances_per_minute: from.limit("limits.balances_per_minute", 30),
            live_per_minute: from.limit("limits.live_per_minute", 30),
            live_in_flight: from.number("limits.live_in_flight", 4, 0..=10_000),
            provider_calls_per_minute: from.limit("limits.provider_calls_per_minute", 300),
            operator_per_minute: from.limit("limits.operator_per_minute", 600),
            changes_max_age: Duration::from_secs(60),
            trusted_proxies,
            cors_origins,
        };
        let pages = ConsoleSettings {
            trades_cache,
            first_rows_within: Duration::from_millis(700),
            operator_name,
            trusted_proxies: api_context.trusted_proxies.clone(),
            failed_auth_per_minute: from.limit("limits.failed_auth_per_minute", 60),
            console_per_minute: from.limit("limits.console_per_minute", 120),
            console_forms_per_minute: from.limit("limits.console_forms_per_minute", 30),
            oidc,
            email,
        };
        let interop = InteropSettings {
            simplefin_per_minute: from.limit("limits.simplefin_per_minute", 60),
        };
        let (store_url, is_cluster) = (
            from.secret("redis.url"),
            from.switch("redis.cluster", false),
        );
        let shared_store = store_url.map(|url| StoreSettings { url, is_cluster });
        let sync = SyncSettings::default();
        let sync = SyncSettings {
            enabled: from.switch("sync.enabled", sync.enabled),
            interval: from.seconds("sync.interval_seconds", sync.interval, SYNC_SECONDS),
            overlap: from.days("sync.overlap_days", sync.overlap, 1..=90),
            first: from.days("sync.first_days", sync.first, 1..=3_650),
            notify_initial: from.switch("sync.notify_initial", sync.notify_initial),
            ..sync
        };
        let syncs_by_provider = read_syncs_by_provider(from);
        api_context.changes_max_age = from.seconds(
            "sync.changes_max_age_seconds",
            api_context.changes_max_age,
            1..=86_400,
        );
        let api_settings = ApiSettings {
            balances_cache,
            holdings_cache,
            trades_cache,
        };
        let webhooks = WebhookSettings::default();
        let webhooks = WebhookSettings {
            rules: Rules {
                allow_loopback: from
                    .switch("webhooks.allow_loopback", webhooks.rules.allow_loopback),
            },
            schedule: from
                .attempt_delays("webhooks.attempt_delays_seconds")
                .map_or(webhooks.schedule, Schedule::new),
            timeout: from.seconds("webhooks.timeout_seconds", webhooks.timeout, 1..=60),
            chunk_rows: from.number("webhooks.chunk_rows", webhooks.chunk_rows, 1..=500),
        };
        let log = Log {
            format: from.choice("log.format", LogFormat::Auto),
            level: from.choice("log.level", LogLevel::Info),
        };
        let traces_url = from.optional_url("traces.otlp_url");
        Self {
            database,
            backups,
            api,
            console,
            admin_listen,
            ops_listen,
            return_origins,
            master_keys,
            providers,
            provider_timeout,
            reads,
            caches: api_settings,
            api_context,
            shared_store,
            interop,
            pages,
            sync,
            syncs_by_provider,
            webhooks,
            log,
            traces_url,
            file: from.file.clone(),
            origins: from.origins(),
            effective: std::mem::take(&mut from.effective),
        }
    }

    /// The environment variable of a setting such as `api.listen`.
    pub fn variable(name: &str) -> String {
        format!(
            "BELLBIRD_{}",
            name.replacen('.', "__", 1).to_ascii_uppercase()
        )
    }
}

/// None if the service makes none.
fn read_backups(from: &mut Values, database_url: &SecretString) -> Option<BackupFolder> {
    const NAME: &str = "backup.folder";
    let path = from.folder(NAME);
    let keep = from.number("backup.keep", 14, 1..=65_535) as usize;
    if path.is_some()
        && !database_url.expose_secret().starts_with("sqlite:")
        && let Some(origin) = from.origins().get(NAME)
    {
        from.errors.push(format!(
            "{NAME} is set in {origin}, but the database is PostgreSQL: unset it, and back up with pg_dump, as \
             docs/backup.md says"
        ));
    }
    Some(BackupFolder { path: path?, keep })
}

fn read_syncs_by_provider(from: &mut Values) -> SyncsByProvider {
    let at_once = ProviderSyncs::default().at_once as u32;
    let mut syncs = |name: &str| ProviderSyncs {
        interval: from.optional_seconds(&format!("sync.{name}_interval_seconds"), SYNC_SECONDS),
        at_once: from.number(&format!("sync.{name}_at_once"), at_once, 1..=64) as usize,
    };
    provider_names().map(|name| (name, syncs(name))).collect()
}

/// None if none of them is set.
fn read_oidc(from: &mut Values) -> Option<OidcSettings> {
    let errors = from.errors.len();
    let issuer = from.issuer("oidc.issuer");
    let client_id = from.name("oidc.client_id", 255);
    let client_secret = from.secret("oidc.client_secret");
    let create_users = from.plan("oidc.create_users");
    let operators_only_here = from.switch("oidc.operators_only_here", false);
    match (issuer, client_id, client_secret) {
        (Some(issuer), Some(client_id), Some(client_secret)) => Some(OidcSettings {
            issuer,
            client_id,
            client_secret,
            create_users,
            operators_only_here,
        }),
        (issuer, client_id, client_secret) => {
            let is_set = issuer.is_some()
                || client_id.is_some()
                || client_secret.is_some()
                || create_users.is_some()
                || operators_only_here;
            if is_set && from.errors.len() == errors {
                let text = "oidc: issuer, client_id and client_secret belong together: set all three, or none";
                from.errors.push(text.to_owned());
            }
            None
        }
    }
}

/// All errors of the settings, one per line. Each names the setting, its source, and the accepted
/// values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct SettingErrors(Vec<String>);
