//! Settings: their types, defaults and bounds. `bellbird.example.toml` documents each one for the operator.
//!
//! The settings file is read first, then environment variables, then flags; a later source overrides an earlier one.
//! A secret may also be in a file of its own, which another key of the same name and `_file` names.
//! A new setting is a field, a line in `Settings::read`, and a paragraph in the example file, which a test compares
//! with this list. Each provider declares its own settings.
#![expect(clippy::disallowed_methods, reason = "the settings read the environment")]

pub mod client;
mod source;
pub mod terminal;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use bellbird_limits::client_address::Network;
use bellbird_providers::registry::{PROVIDERS, ProviderSettings};
use bellbird_providers::settings::Form;
use bellbird_storage::POOL_SIZE;
use clap::ValueEnum;
use secrecy::SecretString;
use serde::Serialize;
use serde_json::Value;

pub use source::{Flag, Origin, Sources};
pub use values::LISTEN_ADDRESS;

use values::{Values, web_origin};

/// All settings, validated.
///
/// What a section serializes, all instances of one database should share: see [`Settings::shared`].
#[derive(Debug, Clone)]
pub struct Settings {
    pub database: Database,
    pub api: Api,
    pub console: Console,
    pub ops: Ops,
    pub secrets: Secrets,
    pub providers: ProviderSettings,
    pub reads: Reads,
    pub cache: Cache,
    pub limits: Limits,
    pub sync: Sync,
    pub webhooks: Webhooks,
    pub log: Log,
    /// The settings file that was read, with its absolute path.
    pub file: Option<PathBuf>,
    /// The source of each setting that is not at its default, by `section.key`.
    pub origins: BTreeMap<String, Origin>,
}

#[derive(Debug, Clone)]
pub struct Database {
    pub url: SecretString,
    pub pool_size: u32,
}

#[derive(Debug, Clone, Serialize)]
pub struct Api {
    #[serde(skip)]
    pub listen: SocketAddr,
    pub public_url: Option<String>,
    #[serde(skip)]
    pub trusted_proxies: Vec<Network>,
    pub cors_origins: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Console {
    #[serde(skip)]
    pub listen: SocketAddr,
    pub public_url: Option<String>,
    pub operator_name: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Ops {
    pub listen: SocketAddr,
}

#[derive(Debug, Clone)]
pub struct Secrets {
    pub key: Option<SecretString>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Reads {
    pub deadline_seconds: u32,
    pub row_cap: u32,
    pub provider_timeout_seconds: u32,
}

#[derive(Debug, Clone, Serialize)]
pub struct Cache {
    pub balances_seconds: u32,
    pub holdings_seconds: u32,
    pub trades_seconds: u32,
}

#[derive(Debug, Clone, Serialize)]
pub struct Limits {
    pub metadata_per_minute: u32,
    pub balances_per_minute: u32,
    pub live_per_minute: u32,
    pub simplefin_per_minute: u32,
    pub live_in_flight: u32,
    pub provider_calls_per_minute: u32,
    pub failed_auth_per_minute: u32,
}

#[derive(Debug, Clone, Serialize)]
pub struct Sync {
    pub enabled: bool,
    pub interval_seconds: u32,
    pub overlap_days: u32,
    pub first_days: u32,
    pub announce_first: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct Webhooks {
    pub allow_loopback: bool,
    pub attempt_delays_seconds: Vec<u32>,
    pub timeout_seconds: u32,
    pub chunk_rows: u32,
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

impl Settings {
    /// Reads and checks all sources, and returns all errors together.
    pub fn load(sources: &Sources) -> Result<Self, SettingErrors> {
        let known = Self::known();
        let mut values = Values::collect(sources, &known.names, &known.secrets);
        let settings = Self::read(&mut values);
        if values.errors.is_empty() { Ok(settings) } else { Err(SettingErrors(values.errors)) }
    }

    /// The names of all settings, such as `api.listen`, in the order of the example file.
    #[must_use]
    pub fn names() -> Vec<String> {
        Self::known().names
    }

    /// The names of the settings that hold secrets. Each may be given as a file: `secrets.key_file`.
    #[must_use]
    pub fn secret_names() -> Vec<String> {
        Self::known().secrets
    }

    /// The names of all settings.
    fn known() -> Values {
        let mut values = Values::default();
        Self::read(&mut values);
        values
    }

    /// The source of a setting such as `api.listen`; `None` if it has its default.
    #[must_use]
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.origins.get(name)
    }

    /// Every setting, with its default and its bounds.
    fn read(from: &mut Values) -> Self {
        const NETWORKS: &str = "a list of IP addresses and CIDR blocks, such as 10.0.0.0/8";
        const ORIGINS: &str = "a list of web origins such as https://app.example.com, without a path";
        const DELAYS: [u32; 10] = [0, 5, 60, 300, 1_800, 3_600, 7_200, 18_000, 28_800, 39_600];
        Self {
            database: Database {
                url: from.database_url("database.url", "sqlite:bellbird.db"),
                pool_size: from.number("database.pool_size", POOL_SIZE, 2..=1_000),
            },
            api: Api {
                listen: from.listen("api.listen", 8080),
                public_url: from.optional_url("api.public_url"),
                trusted_proxies: from.list("api.trusted_proxies", NETWORKS, |item| item.parse().ok()),
                cors_origins: from.list("api.cors_origins", ORIGINS, web_origin),
            },
            console: Console {
                listen: from.listen("console.listen", 8081),
                public_url: from.optional_url("console.public_url"),
                operator_name: from.name("console.operator_name", 60),
            },
            ops: Ops { listen: from.listen("ops.listen", 9090) },
            secrets: Secrets { key: from.secret("secrets.key") },
            providers: from.providers(),
            reads: Reads {
                deadline_seconds: from.number("reads.deadline_seconds", 25, 1..=300),
                row_cap: from.number("reads.row_cap", 5_000, 1..=1_000_000),
                provider_timeout_seconds: from.number("reads.provider_timeout_seconds", 20, 1..=300),
            },
            cache: Cache {
                balances_seconds: from.number("cache.balances_seconds", 300, 0..=86_400),
                holdings_seconds: from.number("cache.holdings_seconds", 600, 0..=86_400),
                trades_seconds: from.number("cache.trades_seconds", 600, 0..=86_400),
            },
            limits: Limits {
                metadata_per_minute: from.number("limits.metadata_per_minute", 60, 0..=1_000_000),
                balances_per_minute: from.number("limits.balances_per_minute", 30, 0..=1_000_000),
                live_per_minute: from.number("limits.live_per_minute", 30, 0..=1_000_000),
                simplefin_per_minute: from.number("limits.simplefin_per_minute", 60, 0..=1_000_000),
                live_in_flight: from.number("limits.live_in_flight", 4, 0..=10_000),
                provider_calls_per_minute: from.number("limits.provider_calls_per_minute", 300, 0..=1_000_000),
                failed_auth_per_minute: from.number("limits.failed_auth_per_minute", 60, 0..=1_000_000),
            },
            sync: Sync {
                enabled: from.switch("sync.enabled", true),
                interval_seconds: from.number("sync.interval_seconds", 21_600, 1..=2_592_000),
                overlap_days: from.number("sync.overlap_days", 7, 1..=90),
                first_days: from.number("sync.first_days", 30, 1..=3_650),
                announce_first: from.switch("sync.announce_first", true),
            },
            webhooks: Webhooks {
                allow_loopback: from.switch("webhooks.allow_loopback", false),
                attempt_delays_seconds: from.seconds_list("webhooks.attempt_delays_seconds", &DELAYS),
                timeout_seconds: from.number("webhooks.timeout_seconds", 15, 1..=60),
                chunk_rows: from.number("webhooks.chunk_rows", 500, 1..=500),
            },
            log: Log {
                format: from.choice("log.format", LogFormat::Auto),
                level: from.choice("log.level", LogLevel::Info),
            },
            file: from.file.clone(),
            origins: from.origins(),
        }
    }

    /// The settings that all instances of one database should share, by name. They hold no secret: of a provider's
    /// credentials, the value only says whether they are set.
    pub fn shared(&self) -> serde_json::Result<BTreeMap<String, Value>> {
        let Self { api, console, reads, cache, limits, sync, webhooks, .. } = self;
        let sections = [
            ("api", serde_json::to_value(api)?),
            ("console", serde_json::to_value(console)?),
            ("reads", serde_json::to_value(reads)?),
            ("cache", serde_json::to_value(cache)?),
            ("limits", serde_json::to_value(limits)?),
            ("sync", serde_json::to_value(sync)?),
            ("webhooks", serde_json::to_value(webhooks)?),
        ];
        let mut shared = BTreeMap::new();
        for (section, values) in sections {
            let values = values.as_object().cloned().unwrap_or_default();
            shared.extend(values.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)));
        }
        for provider in PROVIDERS {
            let values = self.providers.of(provider);
            for setting in provider.settings {
                let value = values.get(setting.name).map(|value| match setting.form {
                    Form::Url(_) => value,
                    Form::Text | Form::Secret => "set",
                });
                shared.insert(format!("{}.{}", provider.name, setting.name), value.into());
            }
        }
        Ok(shared)
    }

    /// The environment variable of a setting such as `api.listen`.
    #[must_use]
    pub fn variable(name: &str) -> String {
        format!("BELLBIRD_{}", name.replacen('.', "__", 1).to_ascii_uppercase())
    }
}

/// All errors of the settings, one per line. Each names the setting, its source, and the accepted values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingErrors(Vec<String>);

impl fmt::Display for SettingErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for SettingErrors {}
