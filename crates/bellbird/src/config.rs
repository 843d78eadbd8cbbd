//! Settings: what they are, where they come from, what is wrong with them.
//!
//! One table, `settings!` below, is the only list of settings, but for the sections of the providers: those follow from
//! what each provider declares of itself. From both come the typed [`Settings`], the validation, and the text of
//! `bellbird.example.toml`. A value comes from the settings file, then from an environment variable, then from a flag;
//! the later one wins.
//!
//! The overlay is our own, on `toml`. Figment and its kind re-type what they find in the environment: a client secret
//! of `0123` becomes the number 123. Here text from outside the file stays the text that it is, and each setting's own
//! reader says what it makes of it. The same readers let an error name the key, the value, what is accepted, and the
//! line or variable that the value came from.

mod error;
mod example;
mod kinds;
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
pub use source::{Flag, Origin, Sources};

use kinds::{
    database_url, listen_address, log_format, log_level, network_list, number, optional_secret, optional_url,
    origin_list, seconds_list, switch,
};
use source::{Raw, Values};

/// One setting, as the example file and the error messages know it.
#[derive(Debug)]
pub struct Key {
    /// Its name within the section.
    pub name: &'static str,
    /// What it is for, line by line.
    pub help: &'static [&'static str],
    /// What holds when nobody sets it, written as in the file.
    pub default: Option<Cow<'static, str>>,
    /// For a setting without a default: what one could look like, written as in the file.
    pub example: Option<&'static str>,
    /// Its value is shown nowhere.
    pub secret: bool,
}

/// One section of the settings file.
#[derive(Debug)]
pub struct Section {
    /// The name in brackets.
    pub name: &'static str,
    /// What it is about, line by line.
    pub help: &'static [&'static str],
    /// Its settings.
    pub keys: Vec<Key>,
}

/// How a table entry says its default: `default "8080"`, or `none "an example"`. A `secret` has neither.
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
                /// Reads every setting of the section before it gives up, so that all errors are told at once.
                fn read(values: &Values, errors: &mut Vec<SettingError>) -> Option<Self> {
                    $(let $key = values.read(stringify!($section), key_named(stringify!($section), stringify!($key)), $reader, errors);)+
                    Some(Self { $($key: $key?,)+ })
                }
            }
        )+

        /// Every setting, validated.
        #[derive(Debug, Clone)]
        pub struct Settings {
            $($(#[doc = $about])+ pub $section: $Type,)+
            /// What the providers' sections say.
            pub providers: ProviderSettings,
            /// Where each setting that somebody set came from, by `section.key`.
            pub origins: BTreeMap<String, Origin>,
        }

        /// The sections of the table.
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
    /// Where Bellbird keeps its users, the hashes of their keys, and their connections. It never holds a balance or a
    /// transaction.
    database: Database {
        /// `sqlite:` and a path, or `postgres://user:password@host/database`. SQLite needs nothing else and suits one
        /// copy of the service; choose PostgreSQL (15 or newer) to run several. A relative path counts from the
        /// working directory. `demo` uses a temporary file unless this is set. Put a password into the environment
        /// (BELLBIRD_DATABASE__URL) rather than into this file.
        url: SecretString = database_url(), default "\"sqlite:bellbird.db\"";
    }
    /// The public API: /health, /v1, the OpenAPI document and its reference page.
    api: Api {
        /// Address and port to listen on. Stay on loopback and let a proxy that speaks TLS face the world; port 0
        /// takes any free port.
        listen: SocketAddr = listen_address(), default "\"127.0.0.1:8080\"";
        /// The address that clients use, when it is not the one listened on: it stands in the links of deprecated calls
        /// and on the console's page.
        public_url: Option<String> = optional_url(), none "\"https://api.example.com\"";
        /// Proxies, as addresses or CIDR blocks, whose X-Forwarded-For is believed. It decides which client a failed
        /// authentication counts against. List your own load balancers here and nothing else: a client could
        /// otherwise choose the address it is counted under.
        trusted_proxies: Vec<Network> = network_list(), none "[\"10.0.0.0/8\", \"::1\"]";
        /// Web origins whose scripts may call the API from a browser. None by default: an API key does not belong
        /// in a web page.
        cors_origins: Vec<String> = origin_list(), none "[\"https://app.example.com\"]";
    }
    /// The web console, for the users themselves: linking in the browser, and the events that providers send.
    console: Console {
        /// Address and port to listen on.
        listen: SocketAddr = listen_address(), default "\"127.0.0.1:8081\"";
        /// The address that browsers and providers use, when it is not the one listened on. Consent pages send users back
        /// to /link/callback below it (Akahu wants to know that address beforehand), and events from providers arrive at
        /// /webhooks/ and the provider's name.
        public_url: Option<String> = optional_url(), none "\"https://bellbird.example.com\"";
    }
    /// Metrics for Prometheus (/metrics), readiness (/ready) and liveness (/live). It asks for no key: keep it inside
    /// your network.
    ops: Ops {
        /// Address and port to listen on.
        listen: SocketAddr = listen_address(), default "\"127.0.0.1:9090\"";
    }
    /// The master key under which the tokens of providers are sealed in the database.
    secrets: Secrets {
        /// A name, a colon, and the base64 of 32 random bytes; several, separated by commas: the first one seals, all
        /// of them open. To change keys put the new one in front, keep the old one behind it, restart, and run `bellbird
        /// secrets rotate`; with several copies of the service, docs/hosting.md tells the order. Needed by `serve`, and
        /// to adopt and remove connections; `demo` makes its own. Lose it and every connection has to be linked again;
        /// keep it away from backups of the database.
        /// Make one: echo "main:$(head -c 32 /dev/urandom | base64)". Better given as BELLBIRD_SECRETS__KEY.
        key: Option<SecretString> = optional_secret(), secret "\"main:...\"";
    }
    /// How live data is read.
    reads: Reads {
        /// What one request may take in all. A request that cannot be answered by then gets 503 with Retry-After, and
        /// goes on where it stopped when it is repeated. Stay below the time-out of your clients and proxies, which is
        /// often 30 seconds.
        deadline_seconds: u32 = number(1..=300), default "25";
        /// How many matching transactions are counted from the requested offset on before the answer says that there
        /// are more. A higher cap gives exact totals for longer histories, and costs calls to the provider.
        row_cap: u32 = number(1..=1_000_000), default "5000";
        /// What one call to a provider may take, from connecting to the last byte.
        provider_timeout_seconds: u32 = number(1..=300), default "20";
    }
    /// How long answers are kept, in memory and per API key. 0 switches a cache off. Transactions are never kept.
    cache: Cache {
        /// Balances.
        balances_seconds: u32 = number(0..=86_400), default "300";
        /// Holdings.
        holdings_seconds: u32 = number(0..=86_400), default "600";
        /// Trades.
        trades_seconds: u32 = number(0..=86_400), default "600";
    }
    /// How much each API key may ask for. A limit of 60 lets 60 calls through at once, then one a second. 0 is no
    /// limit.
    limits: Limits {
        /// Connections, accounts and categories together, a minute.
        metadata_per_minute: u32 = number(0..=1_000_000), default "60";
        /// Balances, a minute.
        balances_per_minute: u32 = number(0..=1_000_000), default "30";
        /// Transactions, holdings and trades together, a minute: each call may cost several calls to a provider.
        live_per_minute: u32 = number(0..=1_000_000), default "30";
        /// Requests for transactions, holdings and trades of one key that may run at once.
        live_in_flight: u32 = number(0..=10_000), default "4";
        /// Requests without a good key, a minute and client address. A good key is never affected.
        failed_auth_per_minute: u32 = number(0..=1_000_000), default "60";
    }
    /// Syncs: what is new at the providers is looked for, and told to the users' webhook endpoints.
    sync: Sync {
        /// Whether the service syncs by itself: by the clock, and after events from providers. `bellbird connection sync`
        /// works either way.
        enabled: bool = switch(), default "true";
        /// From one sync of a connection to its next, a tenth more or less.
        interval_seconds: u32 = number(1..=2_592_000), default "21600";
        /// How many days that the last sync has read are read again, as banks post late and correct what they posted.
        overlap_days: u32 = number(1..=90), default "7";
        /// How many days the first sync of a connection reads.
        first_days: u32 = number(1..=730), default "30";
        /// Whether what the first sync finds is told as new. `false` only remembers it, so that events begin with what comes
        /// after.
        announce_first: bool = switch(), default "true";
    }
    /// Webhooks: the events that users' endpoints are sent.
    webhooks: Webhooks {
        /// For development: takes http and addresses on this machine as well. Never where others may add endpoints, who
        /// could reach whatever listens here.
        allow_loopback: bool = switch(), default "false";
        /// How long to wait before each attempt, the first one included; there are as many attempts as there are numbers.
        /// Up to a fifth is added.
        attempt_delays_seconds: Vec<u32> = seconds_list(), default "[0, 5, 60, 300, 1800, 3600, 7200, 18000, 28800, 39600]";
        /// What one attempt may take, from connecting to the answer.
        timeout_seconds: u32 = number(1..=60), default "15";
        /// The most rows of one event; more rows are told in several.
        chunk_rows: u32 = number(1..=500), default "500";
    }
    /// The log, on standard error: one line a request, without keys, amounts or account numbers.
    log: Log {
        /// `text`, `json` (one object a line), or `auto`: text on a terminal, else json.
        format: LogFormat = log_format(), default "\"auto\"";
        /// `error`, `warn`, `info`, `debug` or `trace`.
        level: LogLevel = log_level(), default "\"info\"";
    }
}

/// The sections, in the order of the example file: the table's, and behind the key that seals what providers give, the
/// providers'.
pub static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    let mut sections = table();
    let behind_secrets = sections.iter().position(|section| section.name == "secrets").map_or(0, |at| at + 1);
    sections.splice(behind_secrets..behind_secrets, providers::sections());
    sections
});

impl Settings {
    /// Reads all sources, checks everything, and tells all errors at once.
    ///
    /// # Errors
    /// [`SettingErrors`], each one naming its setting, its source, and what is accepted.
    pub fn load(sources: &Sources) -> Result<Self, SettingErrors> {
        let mut errors = Vec::new();
        let values = Values::collect(sources, &mut errors);
        let settings = read_all(&values, &mut errors);
        settings.filter(|_| errors.is_empty()).ok_or(SettingErrors(errors))
    }

    /// Where the setting came from; none when nobody set it.
    #[must_use]
    pub fn origin(&self, section: &str, key: &str) -> Option<&Origin> {
        self.origins.get(&format!("{section}.{key}"))
    }
}

/// What is known of a setting. Only names that there are get here.
fn key_named(section: &str, key: &str) -> Option<&'static Key> {
    find_section(section)?.keys.iter().find(|entry| entry.name == key)
}

fn find_section(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name)
}

/// A default, written as in the file, as the value that it stands for.
fn default_raw(text: &str) -> Raw {
    match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => Raw::Text(inner.to_owned()),
        None => Raw::Bare(text.to_owned()),
    }
}
