//! Reads settings one by one, with their types, bounds and defaults, and collects all errors.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use bellbird_console::EmailSettings;
use bellbird_domain::Plan;
use bellbird_providers::registry::{PROVIDERS, ProviderSettings};
use bellbird_providers::settings::{Form, provider_url};
use clap::ValueEnum;
use secrecy::SecretString;

use super::source::{Origin, Raw, SourceReader, Sources, shortened};

/// The form of an address to listen on, after "must be".
pub const LISTEN_ADDRESS: &str = "an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080";
const TEXT: &str = "text, in quotes";
/// The form of a URL, after "must be".
pub const WEB_URL: &str = "a URL such as https://example.com, without user name, query or fragment";
const PROVIDER_URL: &str = "a URL such as https://example.com, without user name, query or fragment, and http only for this machine";

/// Whether an error message may show the value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    Value,
    Nothing,
}

#[derive(Default)]
pub(super) struct Values {
    /// Those that a source sets.
    set: BTreeMap<String, (Raw, Origin)>,
    /// The settings file that was read.
    pub file: Option<PathBuf>,
    /// The settings that were read, in order.
    pub names: Vec<String>,
    /// Those of them that hold secrets.
    pub secrets: Vec<String>,
    /// What each setting is, by name: as its source has it, or its default, where that is a number
    /// or a switch.
    pub effective: BTreeMap<String, SecretString>,
    pub errors: Vec<String>,
}

impl Values {
    /// `names` are those of all settings, `secrets` those of settings that hold secrets.
    pub(super) fn collect(sources: &Sources, names: &[String], secrets: &[String]) -> Self {
        let SourceReader {
            values,
            file,
            errors,
            ..
        } = SourceReader::read(sources, names, secrets);
        Self {
            set: values,
            file,
            errors,
            ..Self::default()
        }
    }

    pub(super) fn origins(&self) -> BTreeMap<String, Origin> {
        self.set
            .iter()
            .map(|(name, (_, origin))| (name.clone(), origin.clone()))
            .collect()
    }

    pub(super) fn number(&mut self, name: &str, default: u32, range: RangeInclusive<u32>) -> u32 {
        let value = self.bounded(name, range);
        self.or_default(name, value, default)
    }

    /// What clients may do in a minute. 0 is no limit.
    pub(super) fn limit(&mut self, name: &str, default: u32) -> u32 {
        self.number(name, default, 0..=1_000_000)
    }

    fn or_default<T: ToString>(&mut self, name: &str, value: Option<T>, default: T) -> T {
        let value = value.unwrap_or(default);
        self.effective
            .insert(name.to_owned(), value.to_string().into());
        value
    }

    /// `None` if it is not set.
    pub(super) fn optional_seconds(
        &mut self,
        name: &str,
        range: RangeInclusive<u32>,
    ) -> Option<Duration> {
        self.bounded(name, range)
            .map(|seconds| Duration::from_secs(seconds.into()))
    }

    fn bounded(&mut self, name: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let accepted = format!("a whole number from {} to {}", range.start(), range.end());
        let parse = |raw: &Raw| {
            raw.single()
                .and_then(whole_number)
                .filter(|number| range.contains(number))
        };
        self.read(name, Show::Value, &accepted, parse)
    }

    pub(super) fn seconds(
        &mut self,
        name: &str,
        default: Duration,
        range: RangeInclusive<u32>,
    ) -> Duration {
        self.time(name, default, range, 1)
    }

    /// How long responses are cached. 0 turns the cache off.
    pub(super) fn cache_time(&mut self, name: &str, default_seconds: u64) -> Duration {
        self.seconds(name, Duration::from_secs(default_seconds), 0..=86_400)
    }

    pub(super) fn days(
        &mut self,
        name: &str,
        default: Duration,
        range: RangeInclusive<u32>,
    ) -> Duration {
        self.time(name, default, range, 86_400)
    }

    fn time(
        &mut self,
        name: &str,
        default: Duration,
        range: RangeInclusive<u32>,
        unit_seconds: u64,
    ) -> Duration {
        let value = self.bounded(name, range).map(u64::from);
        Duration::from_secs(
            self.or_default(name, value, default.as_secs() / unit_seconds) * unit_seconds,
        )
    }

    pub(super) fn switch(&mut self, name: &str, default: bool) -> bool {
        let value = self.read(name, Show::Value, "true or false", |raw| {
            raw.single()?.parse().ok()
        });
        self.or_default(name, value, default)
    }

    pub(super) fn choice<T: ValueEnum>(&mut self, name: &str, default: T) -> T {
        let all = T::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = all.map(|value| value.get_name().to_owned()).collect();
        let accepted = match &names[..] {
            [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            only => only.concat(),
        };
        self.read(name, Show::Value, &accepted, |raw| {
            T::from_str(raw.text()?, false).ok()
        })
        .unwrap_or(default)
    }

    /// An empty value leaves the setting unset.
    pub(super) fn plan(&mut self, name: &str) -> Option<Plan> {
        let plans: Vec<_> = Plan::ALL.iter().map(|plan| plan.as_str()).collect();
        let accepted = format!("a plan: {}", plans.join(", "));
        self.optional(name, &accepted, |text| text.parse().ok())
    }

    /// By default a port on loopback.
    pub(super) fn listen(&mut self, name: &str, port: u16) -> SocketAddr {
        let address = self.read(name, Show::Value, LISTEN_ADDRESS, |raw| {
            raw.text()?.parse().ok()
        });
        address.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, port).into())
    }

    /// An empty value leaves the setting unset.
    pub(super) fn optional_listen(&mut self, name: &str) -> Option<SocketAddr> {
        self.optional(name, LISTEN_ADDRESS, |text| text.parse().ok())
    }

    /// An empty value leaves the setting unset.
    pub(super) fn optional_url(&mut self, name: &str) -> Option<String> {
        self.optional(name, WEB_URL, web_url)
    }

    /// An empty value leaves the setting unset.
    pub(super) fn folder(&mut self, name: &str) -> Option<PathBuf> {
        self.optional(name, "the path of a folder, in quotes", |text| {
            Some(text.into())
        })
    }

    /// The URL of an identity provider, as it writes it: a slash at the end counts. An empty value
    /// leaves the setting unset.
    pub(super) fn issuer(&mut self, name: &str) -> Option<String> {
        let is_url = |text: &str| web_url(text).is_some() && provider_url(text).is_some();
        self.optional(name, PROVIDER_URL, |text| {
            is_url(text).then(|| text.to_owned())
        })
    }

    /// A name to show, of one line. An empty value leaves the setting unset.
    pub(super) fn name(&mut self, name: &str, chars_max: usize) -> Option<String> {
        let accepted = format!("text of at most {chars_max} characters, on one line");
        let is_shown =
            |text: &str| text.chars().count() <= chars_max && !text.chars().any(char::is_control);
        self.optional(name, &accepted, |text| {
            is_shown(text.trim()).then(|| text.trim().to_owned())
        })
        .filter(|text| !text.is_empty())
    }

    pub(super) fn list<T>(
        &mut self,
        name: &str,
        accepted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        let parse_all = |raw: &Raw| raw.items()?.into_iter().map(parse).collect();
        self.read(name, Show::Value, accepted, parse_all)
            .unwrap_or_default()
    }

    /// `None` if they are not set.
    pub(super) fn attempt_delays(&mut self, name: &str) -> Option<Vec<Duration>> {
        const LONGEST: u32 = 30 * 86_400;
        // Bodies wait in memory for their first attempt, and not for longer.
        const LONGEST_FIRST: u32 = 30;
        let accepted = format!(
            "a list of 1 to 20 whole numbers of seconds, the first at most {LONGEST_FIRST}, each at most {LONGEST}"
        );
        let parse = |raw: &Raw| {
            let items = raw
                .items()
                .filter(|items| (1..=20).contains(&items.len()))?;
            let longest = std::iter::once(LONGEST_FIRST).chain(std::iter::repeat(LONGEST));
            let seconds =
                |(item, longest)| whole_number(item).filter(|seconds| *seconds <= longest);
            let delays = items.into_iter().zip(longest).map(seconds);
            delays
                .map(|seconds| Some(Duration::from_secs(seconds?.into())))
                .collect()
        };
        self.read(name, Show::Value, &accepted, parse)
    }

    /// An empty value leaves the setting unset.
    pub(super) fn secret(&mut self, name: &str) -> Option<SecretString> {
        self.text(name, Show::Nothing)
    }

    pub(super) fn database_url(&mut self, name: &str, default: &str) -> SecretString {
        let accepted = "`sqlite:` and a path, or `postgres://user:password@host/database`";
        let parse = |raw: &Raw| {
            let text = raw.text()?;
            let rest = ["sqlite:", "postgres://", "postgresql://"]
                .iter()
                .find_map(|scheme| text.strip_prefix(scheme));
            rest.filter(|rest| !rest.is_empty()).map(|_| text.into())
        };
        self.read(name, Show::Nothing, accepted, parse)
            .unwrap_or_else(|| default.into())
    }

    /// Whether and how e-mails are sent. `from` is the sender.
    pub(super) fn email(&mut self, url: &str, from: &str) -> Option<EmailSettings> {
        let server = self.read(url, Show::Nothing, EmailSettings::URL, |raw| {
            EmailSettings::parse_url(raw.text()?)
        });
        let sender = self.read(from, Show::Value, EmailSettings::FROM, |raw| {
            EmailSettings::parse_from(raw.text()?)
        });
        if server.is_some() && sender.is_none() && !self.set.contains_key(from) {
            self.errors.push(format!(
                "{url} is set, and {from} is not: it must be {}",
                EmailSettings::FROM
            ));
        }
        Some(EmailSettings::new(server?, sender?))
    }

    /// The sections of the providers. Each provider declares its own settings, and the registry has
    /// the defaults.
    pub(super) fn providers(&mut self) -> ProviderSettings {
        let mut settings = ProviderSettings::default();
        for provider in PROVIDERS {
            for setting in provider.settings {
                let name = format!("{}.{}", provider.name, setting.name);
                let value = match setting.form {
                    Form::Url(_) => {
                        let parse = |raw: &Raw| {
                            web_url(raw.text()?).filter(|url| provider_url(url).is_some())
                        };
                        self.read(&name, Show::Value, PROVIDER_URL, parse)
                            .map(SecretString::from)
                    }
                    Form::Text => self.text(&name, Show::Value),
                    Form::Secret => self.secret(&name),
                };
                if let Some(value) = value {
                    settings.section(provider).set(setting.name, value);
                }
            }
        }
        settings
    }

    /// Reads text, of which the empty one leaves the setting unset.
    fn optional<T>(
        &mut self,
        name: &str,
        accepted: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let parse = |raw: &Raw| match raw.text()? {
            "" => Some(None),
            text => parse(text).map(Some),
        };
        self.read(name, Show::Value, accepted, parse).flatten()
    }

    fn text(&mut self, name: &str, show: Show) -> Option<SecretString> {
        let text = self.read(name, show, TEXT, |raw| raw.text().map(str::to_owned));
        text.filter(|text| !text.is_empty()).map(SecretString::from)
    }

    /// Reads a setting. `None` if it is not set or if it is wrong: then the error is added, and
    /// `accepted` completes "it must be".
    fn read<T>(
        &mut self,
        name: &str,
        show: Show,
        accepted: &str,
        parse: impl FnOnce(&Raw) -> Option<T>,
    ) -> Option<T> {
        self.names.push(name.to_owned());
        if show == Show::Nothing {
            self.secrets.push(name.to_owned());
        }
        let (raw, origin) = self.set.get(name)?;
        self.effective.insert(name.to_owned(), raw.shown().into());
        let value = parse(raw);
        if value.is_none() {
            let shown = if show == Show::Value {
                format!(" is `{}`", shortened(&raw.shown()))
            } else {
                String::new()
            };
            self.errors
                .push(format!("{name}{shown} in {origin}: it must be {accepted}"));
        }
        value
    }
}

impl Raw {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn single(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Bare(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a list. In text, commas separate them.
    fn items(&self) -> Option<Vec<&str>> {
        match self {
            Self::List(items) => Some(items.iter().map(String::as_str).collect()),
            other => Some(
                other
                    .single()?
                    .split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty())
                    .collect(),
            ),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Text(text) | Self::Bare(text) => text.clone(),
            Self::List(items) => items.join(","),
            Self::Other => "not a single value".to_owned(),
        }
    }
}

fn whole_number(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

/// Parses an http or https URL and removes a trailing slash.
pub fn web_url(text: &str) -> Option<String> {
    let uri: http::Uri = text.parse().ok()?;
    let web = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority()?;
    let plain = !authority.as_str().contains('@') && uri.query().is_none() && !text.contains('#');
    (web && plain && !authority.host().is_empty()).then(|| text.trim_end_matches('/').to_owned())
}

/// Parses a web origin. Lower case, as browsers send the Origin header.
pub(super) fn web_origin(text: &str) -> Option<String> {
    let url = web_url(text)?;
    let has_no_path = url.parse::<http::Uri>().ok()?.path() == "/";
    (has_no_path && !text.ends_with('/')).then(|| url.to_ascii_lowercase())
}
