//! Readers for the types of settings. Each parses a raw value, or returns a description of the accepted values.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use bellbird_api::Network;
use secrecy::SecretString;

use super::source::Raw;

/// The value, or the accepted values as they follow "it must be" in an error.
type Read<T> = Result<T, String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, otherwise JSON.
    Auto,
    Text,
    /// One object per line.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

pub(super) fn number(range: RangeInclusive<u32>) -> impl Fn(Option<&Raw>) -> Read<u32> {
    move |raw| {
        let parsed = match raw {
            Some(Raw::Text(text) | Raw::Bare(text)) => {
                text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
            }
            _ => None,
        };
        parsed
            .filter(|value| range.contains(value))
            .ok_or_else(|| format!("a whole number from {} to {}", range.start(), range.end()))
    }
}

pub(super) fn switch() -> impl Fn(Option<&Raw>) -> Read<bool> {
    |raw| match raw {
        Some(Raw::Text(text) | Raw::Bare(text)) if text == "true" => Ok(true),
        Some(Raw::Text(text) | Raw::Bare(text)) if text == "false" => Ok(false),
        _ => Err("true or false".to_owned()),
    }
}

pub(super) fn seconds_list() -> impl Fn(Option<&Raw>) -> Read<Vec<u32>> {
    const LONGEST: u32 = 30 * 86_400;
    |raw| {
        let accepted = || "a list of 1 to 20 whole numbers of seconds, each at most 2592000".to_owned();
        let parts = match raw {
            // A single number in the file, or the default.
            Some(Raw::Bare(text)) => Some(bracketed_list(text)),
            raw => list(raw),
        };
        let numbers = parts.and_then(|parts| parts.iter().map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>());
        let fits = |all: &Vec<u32>| (1..=20).contains(&all.len()) && all.iter().all(|one| *one <= LONGEST);
        numbers.filter(fits).ok_or_else(accepted)
    }
}

/// Splits a list as a default writes it: `[0, 5]`.
fn bracketed_list(text: &str) -> Vec<String> {
    text.trim_matches(['[', ']']).split(',').map(|part| part.trim().to_owned()).collect()
}

pub(super) fn optional_text() -> impl Fn(Option<&Raw>) -> Read<Option<String>> {
    |raw| match raw {
        None => Ok(None),
        Some(Raw::Text(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err("text, in quotes".to_owned()),
    }
}

pub(super) fn optional_secret() -> impl Fn(Option<&Raw>) -> Read<Option<SecretString>> {
    |raw| optional_text()(raw).map(|text| text.map(SecretString::from))
}

pub(super) fn listen_address() -> impl Fn(Option<&Raw>) -> Read<SocketAddr> {
    |raw| {
        let accepted = || "an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned();
        text(raw).and_then(|text| text.parse().ok()).ok_or_else(accepted)
    }
}

pub(super) fn url() -> impl Fn(Option<&Raw>) -> Read<String> {
    |raw| text(raw).and_then(web_url).ok_or_else(|| URL.to_owned())
}

pub(super) fn optional_url() -> impl Fn(Option<&Raw>) -> Read<Option<String>> {
    |raw| match text(raw) {
        None if raw.is_none() => Ok(None),
        Some("") => Ok(None),
        given => given.and_then(web_url).map(Some).ok_or_else(|| URL.to_owned()),
    }
}

const URL: &str = "a URL such as https://example.com, without user name, query or fragment";

pub(super) fn database_url() -> impl Fn(Option<&Raw>) -> Read<SecretString> {
    |raw| {
        let known = |text: &&str| {
            let rest = ["sqlite:", "postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme));
            rest.is_some_and(|rest| !rest.is_empty())
        };
        let accepted = || "`sqlite:` and a path, or `postgres://user:password@host/database`".to_owned();
        text(raw).filter(known).map(SecretString::from).ok_or_else(accepted)
    }
}

pub(super) fn network_list() -> impl Fn(Option<&Raw>) -> Read<Vec<Network>> {
    |raw| {
        let accepted = || "a list of IP addresses and CIDR blocks, such as 10.0.0.0/8".to_owned();
        list(raw).and_then(|parts| parts.iter().map(|part| part.parse().ok()).collect()).ok_or_else(accepted)
    }
}

pub(super) fn origin_list() -> impl Fn(Option<&Raw>) -> Read<Vec<String>> {
    |raw| {
        let accepted = || "a list of web origins such as https://app.example.com, without a path".to_owned();
        list(raw).and_then(|parts| parts.iter().map(|part| web_origin(part)).collect()).ok_or_else(accepted)
    }
}

pub(super) fn log_format() -> impl Fn(Option<&Raw>) -> Read<LogFormat> {
    |raw| match text(raw) {
        Some("auto") => Ok(LogFormat::Auto),
        Some("text") => Ok(LogFormat::Text),
        Some("json") => Ok(LogFormat::Json),
        _ => Err("auto, text or json".to_owned()),
    }
}

pub(super) fn log_level() -> impl Fn(Option<&Raw>) -> Read<LogLevel> {
    |raw| match text(raw) {
        Some("error") => Ok(LogLevel::Error),
        Some("warn") => Ok(LogLevel::Warn),
        Some("info") => Ok(LogLevel::Info),
        Some("debug") => Ok(LogLevel::Debug),
        Some("trace") => Ok(LogLevel::Trace),
        _ => Err("error, warn, info, debug or trace".to_owned()),
    }
}

fn text(raw: Option<&Raw>) -> Option<&str> {
    match raw {
        Some(Raw::Text(text)) => Some(text),
        _ => None,
    }
}

/// A TOML list, or text with commas. A missing value is an empty list.
fn list(raw: Option<&Raw>) -> Option<Vec<String>> {
    match raw {
        None => Some(Vec::new()),
        Some(Raw::List(parts)) => Some(parts.clone()),
        Some(Raw::Text(text)) => {
            Some(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
        }
        Some(Raw::Bare(_) | Raw::Other) => None,
    }
}

/// Parses an http or https URL and removes a trailing slash.
fn web_url(text: &str) -> Option<String> {
    let uri: http::Uri = text.parse().ok()?;
    let web = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority()?;
    let plain = !authority.as_str().contains('@') && uri.query().is_none() && !text.contains('#');
    (web && plain && !authority.host().is_empty()).then(|| text.trim_end_matches('/').to_owned())
}

/// Parses a web origin. Lower case, as browsers send the Origin header.
fn web_origin(text: &str) -> Option<String> {
    let url = web_url(text)?;
    let has_no_path = url.parse::<http::Uri>().ok()?.path() == "/";
    (has_no_path && !text.ends_with('/')).then(|| url.to_ascii_lowercase())
}
