//! Arguments that several commands share, and parsers for argument values.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use bellbird_connections::provider_names;
use bellbird_domain::{AccountId, Bound, ConnectionId, EndpointId, EventId, OperatorKeyId};
use bellbird_management::values::{self, KeyName};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use jiff::SignedDuration;
use secrecy::SecretString;
use uuid::Uuid;

use super::output;
use crate::config::place::{DATA_DIR, FoundFile, SETTINGS_FILE, Surroundings};
use crate::config::{
    self, Flag, LISTEN_ADDRESS, LogFormat, LogLevel, Settings, Sources, WEB_URL, terminal,
};

/// Longer input is cut off. No provider's credentials and no URL of a database are this long.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Settings flags of every command.
#[derive(Clone, Args)]
pub(super) struct SettingArgs {
    /// Path of the settings file; by default bellbird.toml in the working directory, in the data
    /// folder, in /var/lib/bellbird, or in /etc/bellbird
    #[arg(long, global = true, value_name = "FILE", help_heading = "Settings")]
    config: Option<PathBuf>,

    /// Data folder, with settings, master key and database, which a first start makes; by default
    /// BELLBIRD_DATA_DIR, else ~/.local/share/bellbird, and /var/lib/bellbird for root
    #[arg(long, global = true, value_name = "FOLDER", help_heading = "Settings")]
    #[arg(conflicts_with = "config")]
    data_dir: Option<PathBuf>,

    /// Log level
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Settings")]
    #[arg(value_parser = names_of::<LogLevel>())]
    log_level: Option<String>,

    /// Log format; auto writes text on a terminal, otherwise json
    #[arg(long, global = true, value_name = "FORMAT", help_heading = "Settings")]
    #[arg(value_parser = names_of::<LogFormat>())]
    log_format: Option<String>,
}

impl SettingArgs {
    /// Loads the settings of this process, with the flags of one command.
    pub(super) fn load(&self, listen: Option<&ListenArgs>) -> anyhow::Result<Settings> {
        let file = match &self.config {
            Some(file) => Some(file.clone()),
            None => self.find_file()?,
        };
        self.load_from(file, listen)
    }

    /// As [`Self::load`], without what is elsewhere than in the working directory: for a command
    /// that must not touch an installation which nothing names.
    #[cfg(feature = "sandbox")]
    pub(super) fn load_here(&self, listen: Option<&ListenArgs>) -> anyhow::Result<Settings> {
        self.load_from(self.config.clone(), listen)
    }

    /// As [`Self::load`], from this file. `None` is the one in the working directory, if it exists.
    pub(super) fn load_from(
        &self,
        file: Option<PathBuf>,
        listen: Option<&ListenArgs>,
    ) -> anyhow::Result<Settings> {
        let mut flags = Vec::new();
        let mut add = |name, setting, value: Option<String>| {
            flags.extend(value.map(|value| Flag {
                name,
                setting,
                value,
            }));
        };
        add("--log-level", "log.level", self.log_level.clone());
        add("--log-format", "log.format", self.log_format.clone());
        if let Some(listen) = listen {
            let text = |address: Option<SocketAddr>| address.map(|address| address.to_string());
            add("--api-listen", "api.listen", text(listen.api_listen));
            add(
                "--console-listen",
                "console.listen",
                text(listen.console_listen),
            );
            add("--ops-listen", "ops.listen", text(listen.ops_listen));
        }
        Ok(Settings::load(&Sources::from_process(file, flags))?)
    }

    /// The data folder in which `serve` makes its first start: nothing says where an installation
    /// is, and the working directory has no database either.
    pub(super) fn first_start_folder(&self) -> anyhow::Result<Option<PathBuf>> {
        let surroundings = Surroundings::of_process(self.data_dir.clone());
        if self.config.is_some() || !surroundings.is_first_start() {
            return Ok(None);
        }
        let folder = surroundings.data_folder().with_context(|| {
            format!("HOME is not set: name the data folder with --data-dir, or {DATA_DIR}")
        });
        folder.map(Some)
    }

    /// `--data-dir` as it was given, for a command that is shown. Empty without it.
    pub(super) fn data_dir_flag(&self) -> String {
        let flag = |folder: &PathBuf| format!(" --data-dir {}", folder.display());
        self.data_dir.as_ref().map(flag).unwrap_or_default()
    }

    fn find_file(&self) -> anyhow::Result<Option<PathBuf>> {
        let surroundings = Surroundings::of_process(self.data_dir.clone());
        match (surroundings.settings_file(), &self.data_dir) {
            (FoundFile::Elsewhere(file), _) => {
                if terminal::stderr_is_terminal() && !output::is_json() {
                    output::note(&format!("Using the settings in {}", file.display()));
                }
                Ok(Some(file))
            }
            (FoundFile::None, Some(folder)) => bail!(
                "{} has no {SETTINGS_FILE}: `bellbird serve` or `bellbird init` makes it at a first start, if the \
                 environment names no database and no key",
                folder.display()
            ),
            _ => Ok(None),
        }
    }
}

/// A flag stays text, as every source of a setting does.
fn names_of<T: ValueEnum>() -> PossibleValuesParser {
    PossibleValuesParser::new(T::value_variants().iter().filter_map(T::to_possible_value))
}

/// Listen addresses of commands that run the service.
#[derive(Clone, Args)]
pub(super) struct ListenArgs {
    /// Listen address of the API; port 0 picks a free port
    #[arg(long, value_name = "ADDR", help_heading = "Settings")]
    #[arg(value_parser = listen_address)]
    api_listen: Option<SocketAddr>,

    /// Listen address of the web console
    #[arg(long, value_name = "ADDR", help_heading = "Settings")]
    #[arg(value_parser = listen_address)]
    console_listen: Option<SocketAddr>,

    /// Listen address of metrics and health checks
    #[arg(long, value_name = "ADDR", help_heading = "Settings")]
    #[arg(value_parser = listen_address)]
    ops_listen: Option<SocketAddr>,
}

pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("must be {LISTEN_ADDRESS}"))
}

pub(super) fn connection_id(text: &str) -> Result<ConnectionId, String> {
    id(text, "connection list")
}

pub(super) fn account_id(text: &str) -> Result<AccountId, String> {
    text.parse()
        .map_err(|_| "must be an id: `bellbird connection show ID` shows the accounts".to_owned())
}

/// Parses one end of a date range.
pub(super) fn bound(text: &str) -> Result<Bound, String> {
    Bound::parse(text)
        .map_err(|_| "must be a date or a time: 2026-07-01 or 2026-07-01T00:00:00Z".to_owned())
}

pub(super) fn endpoint_id(text: &str) -> Result<EndpointId, String> {
    id(text, "webhook list")
}

pub(super) fn operator_key_id(text: &str) -> Result<OperatorKeyId, String> {
    id(text, "operator-key list")
}

pub(super) fn event_id(text: &str) -> Result<EventId, String> {
    id(text, "webhook deliveries ENDPOINT_ID")
}

/// Parses an id, which is a UUID. The error names the command that lists the ids.
fn id<T: FromStr>(text: &str, list: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("must be an id: `bellbird {list}` shows the ids"))
}

/// The id of a link session, which no command lists.
pub(super) fn link_session_id(text: &str) -> Result<Uuid, String> {
    text.parse().map_err(|_| {
        "must be an id, as `bellbird connection link --return-url` prints it".to_owned()
    })
}

pub(super) fn whole_number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| "must be a whole number".to_owned())
}

pub(super) fn provider_name() -> PossibleValuesParser {
    PossibleValuesParser::new(provider_names())
}

/// Parses one of these words.
pub(super) fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    as_str: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let find = move |text: String| all.iter().copied().find(|word| as_str(*word) == text);
    PossibleValuesParser::new(all.iter().map(|word| as_str(*word)))
        .try_map(move |text| find(text).ok_or("unknown"))
}

/// Reads a secret from a file, or from standard input at `-`, because other users of the machine
/// can see arguments.
pub(super) fn read_secret(from: &str, what: &str) -> anyhow::Result<SecretString> {
    let mut text = String::new();
    let read = if from == "-" {
        io::stdin()
            .lock()
            .take(SECRET_BYTES_MAX)
            .read_to_string(&mut text)
    } else {
        File::open(from).and_then(|file| file.take(SECRET_BYTES_MAX).read_to_string(&mut text))
    };
    read.with_context(|| format!("{what} cannot be read from {}", source_name(from)))?;
    Ok(SecretString::from(text.trim()))
}

/// Names what [`read_secret`] reads.
pub(super) fn source_name(from: &str) -> &str {
    if from == "-" { "standard input" } else { from }
}

/// Parses `30s`, `15m`, `24h` or `90d`.
pub(super) fn duration(text: &str) -> Result<SignedDuration, String> {
    const ACCEPTED: &str = "must be a whole number and a unit: 30s, 15m, 24h or 90d";
    const UNITS: [(char, i64); 4] = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];
    let mut units = UNITS.into_iter();
    let split = units.find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (digits, seconds) = split.ok_or(ACCEPTED)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ACCEPTED.to_owned());
    }
    let longest = 36_500 * 86_400;
    let total = digits
        .parse::<i64>()
        .ok()
        .and_then(|number| number.checked_mul(seconds));
    total
        .filter(|total| *total <= longest)
        .map(SignedDuration::from_secs)
        .ok_or("must be at most 36500d".to_owned())
}

/// As [`duration`], but rejects zero.
pub(super) fn positive_duration(text: &str) -> Result<SignedDuration, String> {
    match duration(text)? {
        SignedDuration::ZERO => Err("must be longer than 0".to_owned()),
        time => Ok(time),
    }
}

pub(super) fn email(text: &str) -> Result<String, String> {
    values::email(text).map_err(must_be)
}

pub(super) fn timezone(text: &str) -> Result<String, String> {
    values::timezone(text).map_err(must_be)
}

pub(super) fn web_url(text: &str) -> Result<String, String> {
    config::web_url(text).ok_or_else(|| must_be(WEB_URL))
}

pub(super) fn key_name(text: &str) -> Result<KeyName, String> {
    text.parse().map_err(must_be)
}

pub(super) fn reference(text: &str) -> Result<String, String> {
    values::reference(text).map_err(must_be)
}

fn must_be(expected: &str) -> String {
    format!("must be {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_accepts_whole_numbers_with_a_unit() {
        for (text, seconds) in [
            ("30s", 30),
            ("15m", 900),
            ("24h", 86_400),
            ("90d", 7_776_000),
            ("0s", 0),
            ("0d", 0),
        ] {
            assert_eq!(
                duration(text),
                Ok(SignedDuration::from_secs(seconds)),
                "{text}"
            );
        }
        for wrong in [
            "",
            "s",
            "5",
            "1.5h",
            "-1h",
            "+1h",
            "1w",
            "1 h",
            "99999999999999999999d",
            "36501d",
            "1µ",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(positive_duration("0h").is_err());
    }
}
