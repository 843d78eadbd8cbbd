//! Settings: the list of settings, their sources, and their validation.
//!
//! The `settings!` table below lists every setting except those of the providers, which each provider declares itself.
//! Both lists produce the typed [`Settings`], the validation, and `bellbird.example.toml`. The settings file is read
//! first, then environment variables, then flags; a later source overrides an earlier one.
//!
//! The overlay is written here, on top of `toml`. Figment and similar crates infer types from environment variables: a
//! client secret of `0123` becomes the number 123. Here a value from outside the file stays text until the setting's
//! reader parses it. The readers also let an error name the key, the value, the accepted form, and the source line or
//! variable.

mod error;
mod example;
mod kinds;
mod origin;
mod providers;
mod source;
pub mod terminal;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::LazyLock;

use bellbird_api::Network;
use bellbird_providers::registry::ProviderSettings;
use secrecy::SecretString;

pub use error::{SettingError, SettingErrors};
pub use example::example_file;
pub use kinds::{LogFormat, LogLevel};
pub use origin::Origin;
pub use source::{Flag, Sources};

use kinds::{
    database_url, listen_address, log_format, log_level, network_list, number, optional_secret, optional_url,
    origin_list, seconds_list, switch,
};
use source::{Raw, Values};

/// A setting, for the example file and the error messages.
#[derive(Debug)]
pub struct Key {
    /// The name within the section.
    pub name: &'static str,
    /// Help text, in lines.
    pub help: &'static [&'static str],
    /// The default, in TOML.
    pub default: Option<Cow<'static, str>>,
    /// An example value in TOML, for a setting without a default.
    pub example: Option<&'static str>,
    /// Error messages do not show the value of a secret.
    pub secret: bool,
}

/// A section of the settings file.
#[derive(Debug)]
pub struct Section {
    /// The name in brackets.
    pub name: &'static str,
    /// Help text, in lines.
    pub help: &'static [&'static str],
    pub keys: Vec<Key>,
}

/// A table entry ends with its default (`default "8080"`) or an example (`none "…"`, `secret "…"`).
macro_rules! default_of {
    (default $text:literal) => {
        Some(Cow::Borrowed($text))
    };
    ($other:ident $($text:literal)?) => {
        None
    };
}
macro_rules! example_of {
    (none $text:literal) => {
        Some($text)
    };
    (secret $text:literal) => {
        Some($text)
    };
    (default $text:literal) => {
        None
    };
}
macro_rules! is_secret {
    (secret $text:literal) => {
        true
    };
    ($other:ident $text:literal) => {
        false
    };
}

macro_rules! settings {
    ($(
        $(#[doc = $about:literal])+
        $section:ident: $Type:ident {$(
            $(#[doc = $help:literal])+
            $key:ident: $Value:ty = $reader:expr, $word:ident $text:literal;
        )+}
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Debug, Clone)]
            pub struct $Type {$(
                $(#[doc = $help])+
                pub $key: $Value,
            )+}

            impl $Type {
                /// Reads every setting of the section before it fails, so that all errors are reported together.
                fn read(values: &Values, errors: &mut Vec<SettingError>) -> Option<Self> {
                    const SECTION: &str = stringify!($section);
                    $(let $key = values.read(SECTION, find_key(SECTION, stringify!($key)), $reader, errors);)+
                    Some(Self { $($key: $key?,)+ })
                }
            }
        )+

        /// All settings, validated.
        #[derive(Debug, Clone)]
        pub struct Settings {
            $($(#[doc = $about])+ pub $section: $Type,)+
            pub providers: ProviderSettings,
            /// The source of each setting that is not at its default, by `section.key`.
            pub origins: BTreeMap<String, Origin>,
        }

        fn table() -> Vec<Section> {
            vec![$(Section {
                name: stringify!($section),
                help: &[$($about,)+],
                keys: vec![$(Key {
                    name: stringify!($key),
                    help: &[$($help,)+],
                    default: default_of!($word $text),
                    example: example_of!($word $text),
                    secret: is_secret!($word $text),
                },)+],
            },)+]
        }

        fn read_all(values: &Values, errors: &mut Vec<SettingError>) -> Option<Settings> {
            $(let $section = $Type::read(values, errors);)+
            let providers = providers::read(values, errors);
            Some(Settings { $($section: $section?,)+ providers, origins: values.origins() })
        }
    };
}

settings! {
    /// Database of users, API key hashes, connections and webhooks. It never holds a balance or a transaction.
    database: Database {
        /// `sqlite:` and a path, or `postgres://user:password@host/database`. SQLite needs no server and suits a single
        /// instance. Use PostgreSQL 15 or newer to run several instances. A relative path is relative to the working
        /// directory. `demo` uses a temporary file unless this is set. Put a password into the environment variable
        /// BELLBIRD_DATABASE__URL rather than into this file.
        url: SecretString = database_url(), default "\"sqlite:bellbird.db\"";
    }
    /// Public API: /health, /v1, the OpenAPI document and its reference page.
    api: Api {
        /// Address and port to listen on. Keep it on loopback, behind a reverse proxy that terminates TLS. Port 0 picks
        /// a free port.
        listen: SocketAddr = listen_address(), default "\"127.0.0.1:8080\"";
        /// URL that clients use, if it differs from the listen address. It appears in the links of deprecated endpoints
        /// and in the console.
        public_url: Option<String> = optional_url(), none "\"https://api.example.com\"";
        /// Proxies whose X-Forwarded-For header is trusted, as IP addresses or CIDR blocks. Failed authentications are
        /// limited by the client address that this header gives. List only your own load balancers: any other entry
        /// lets clients choose their address.
        trusted_proxies: Vec<Network> = network_list(), none "[\"10.0.0.0/8\", \"::1\"]";
        /// Web origins whose scripts may call the API from a browser. None by default: an API key does not belong
        /// in a web page.
        cors_origins: Vec<String> = origin_list(), none "[\"https://app.example.com\"]";
    }
    /// Web console: users link institutions here, and providers send their webhooks here.
    console: Console {
        /// Address and port to listen on.
        listen: SocketAddr = listen_address(), default "\"127.0.0.1:8081\"";
        /// URL that browsers and providers use, if it differs from the listen address. The redirect URI of consent
        /// pages is /link/callback below it; register that URI with Akahu. Providers send webhooks to
        /// /webhooks/PROVIDER below it.
        public_url: Option<String> = optional_url(), none "\"https://bellbird.example.com\"";
    }
    /// Metrics for Prometheus (/metrics), readiness (/ready) and liveness (/live). There is no authentication: keep
    /// this listener inside your network.
    ops: Ops {
        /// Address and port to listen on.
        listen: SocketAddr = listen_address(), default "\"127.0.0.1:9090\"";
    }
    /// Master keys that encrypt the secrets in the database: provider credentials and webhook signing secrets.
    secrets: Secrets {
        /// An id, a colon, and 32 random bytes in base64. Several keys are separated by commas: the first one encrypts,
        /// all of them decrypt. To rotate keys, put the new key first and keep the old one after it, restart, and run
        /// `bellbird secrets rotate`. With several instances, follow the order in docs/hosting.md. `serve` needs a key,
        /// and so do commands that read or store secrets, such as `connection import` and `webhook add`. `demo`
        /// generates its own. If the key is lost, every connection must be linked again. Keep it apart from database
        /// backups. To generate one: echo "main:$(head -c 32 /dev/urandom | base64)". Prefer the environment variable
        /// BELLBIRD_SECRETS__KEY.
        key: Option<SecretString> = optional_secret(), secret "\"main:...\"";
    }
    /// Live reads from providers.
    reads: Reads {
        /// Time limit of one request. After it, the request gets 503 with Retry-After; a repeated request continues
        /// where this one stopped. Stay below the timeout of your clients and proxies, which is often 30 seconds.
        deadline_seconds: u32 = number(1..=300), default "25";
        /// How many matching transactions are counted beyond the requested offset. If there are more, the response
        /// reports its total as truncated. A higher cap gives exact totals for longer histories, but needs more
        /// provider calls.
        row_cap: u32 = number(1..=1_000_000), default "5000";
        /// Time limit of one provider call, from connecting to the last byte.
        provider_timeout_seconds: u32 = number(1..=300), default "20";
    }
    /// How long responses are cached in memory, per API key. 0 disables a cache. Transactions are never cached.
    cache: Cache {
        /// Cache time of balances.
        balances_seconds: u32 = number(0..=86_400), default "300";
        /// Cache time of holdings.
        holdings_seconds: u32 = number(0..=86_400), default "600";
        /// Cache time of trades.
        trades_seconds: u32 = number(0..=86_400), default "600";
    }
    /// Rate limits of each API key. A limit of 60 allows a burst of 60 requests, then one per second. 0 disables a
    /// limit.
    limits: Limits {
        /// Requests per minute for connections, accounts and categories together.
        metadata_per_minute: u32 = number(0..=1_000_000), default "60";
        /// Requests per minute for balances.
        balances_per_minute: u32 = number(0..=1_000_000), default "30";
        /// Requests per minute for transactions, holdings and trades together. Each may need several provider calls.
        live_per_minute: u32 = number(0..=1_000_000), default "30";
        /// Concurrent requests for transactions, holdings and trades.
        live_in_flight: u32 = number(0..=10_000), default "4";
        /// Requests per minute without a valid key, by client address. Requests with a valid key are not limited by it.
        failed_auth_per_minute: u32 = number(0..=1_000_000), default "60";
    }
    /// Syncs: the service reads new and changed rows from the providers and sends them to the users' webhook endpoints.
    sync: Sync {
        /// Whether the service syncs on a schedule and after provider events. `bellbird connection sync` works either
        /// way.
        enabled: bool = switch(), default "true";
        /// Time between two syncs of a connection, varied by up to 10 percent.
        interval_seconds: u32 = number(1..=2_592_000), default "21600";
        /// Days before the last sync that each sync reads again, because banks post rows late and correct them.
        overlap_days: u32 = number(1..=90), default "7";
        /// Days that the first sync of a connection reads.
        first_days: u32 = number(1..=730), default "30";
        /// Whether the first sync sends its rows as new. With `false`, it only records them: events start with later
        /// rows.
        announce_first: bool = switch(), default "true";
    }
    /// Webhooks: delivery of events to the users' endpoints.
    webhooks: Webhooks {
        /// For development: allow http URLs and loopback addresses. Never enable this where others can add endpoints:
        /// they could reach every service on this machine.
        allow_loopback: bool = switch(), default "false";
        /// Delay before each attempt, the first included; the list's length is the number of attempts. Up to 20 percent
        /// of jitter is added.
        attempt_delays_seconds: Vec<u32> = seconds_list(),
            default "[0, 5, 60, 300, 1800, 3600, 7200, 18000, 28800, 39600]";
        /// Time limit of one attempt, from connecting to the response.
        timeout_seconds: u32 = number(1..=60), default "15";
        /// Rows per event. A larger sync result is split into several events.
        chunk_rows: u32 = number(1..=500), default "500";
    }
    /// Log on standard error: one line per request, without keys, amounts or account numbers.
    log: Log {
        /// `text`, `json` (one object per line), or `auto`: text on a terminal, otherwise json.
        format: LogFormat = log_format(), default "\"auto\"";
        /// `error`, `warn`, `info`, `debug` or `trace`.
        level: LogLevel = log_level(), default "\"info\"";
    }
}

/// All sections, in the order of the example file. The providers follow `secrets`, whose key encrypts their
/// credentials.
pub static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    let mut sections = table();
    let after_secrets = sections.iter().position(|section| section.name == "secrets").map_or(0, |at| at + 1);
    sections.splice(after_secrets..after_secrets, providers::sections());
    sections
});

impl Settings {
    /// Reads and checks all sources, and returns all errors together.
    pub fn load(sources: &Sources) -> Result<Self, SettingErrors> {
        let mut errors = Vec::new();
        let values = Values::collect(sources, &mut errors);
        let settings = read_all(&values, &mut errors);
        settings.filter(|_| errors.is_empty()).ok_or(SettingErrors(errors))
    }

    /// The source of a setting; `None` if it has its default.
    #[must_use]
    pub fn origin(&self, section: &str, key: &str) -> Option<&Origin> {
        self.origins.get(&format!("{section}.{key}"))
    }
}

fn find_key(section: &str, key: &str) -> Option<&'static Key> {
    find_section(section)?.keys.iter().find(|entry| entry.name == key)
}

fn find_section(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name)
}

/// Parses a default, which is written in TOML.
fn default_raw(text: &str) -> Raw {
    match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => Raw::Text(inner.to_owned()),
        None => Raw::Bare(text.to_owned()),
    }
}
