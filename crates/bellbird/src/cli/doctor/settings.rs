//! Checks which settings were read, and whether they fit each other.

use bellbird_providers::registry::{self, PROVIDERS};
use bellbird_providers::settings::is_this_machine;

use super::Checks;
use crate::config::Settings;

const NAME: &str = "settings";

/// Words that stand for a value in examples, in lower case.
const PLACEHOLDERS: [&str; 12] = [
    "id",
    "secret",
    "key",
    "token",
    "client_id",
    "client_secret",
    "app_token",
    "app_secret",
    "consumer_key",
    "changeme",
    "todo",
    "example",
];

pub(super) fn check(checks: &mut Checks, settings: &Settings) {
    let source = match &settings.file {
        Some(file) => format!("read from {}", file.display()),
        None => "no settings file: this folder has no bellbird.toml".to_owned(),
    };
    let count = settings.origins.len();
    checks.ok(
        NAME,
        format!("{source}; {count} set, all others at their defaults"),
    );
    let (deadline, timeout) = (
        settings.reads.deadline.as_secs(),
        settings.provider_timeout.as_secs(),
    );
    if deadline < timeout {
        let detail = format!(
            "reads.deadline_seconds ({deadline}) is below reads.provider_timeout_seconds ({timeout}): requests end \
             before a slow provider responds"
        );
        checks.note(NAME, detail);
    }
    if settings
        .api
        .public_url
        .as_deref()
        .is_some_and(is_plain_text)
    {
        let detail = "api.public_url is not https: API keys and SimpleFIN's setup tokens go to it in plain text";
        checks.note(NAME, detail);
    }
    if !settings.ops_listen.ip().is_loopback() {
        let detail = format!(
            "ops.listen {} is open to other machines without a key: let only Prometheus and the balancer reach it",
            settings.ops_listen
        );
        checks.note(NAME, detail);
    }
    for (section, address) in [("api", &settings.api), ("console", &settings.console)] {
        let has_https = address
            .public_url
            .as_deref()
            .is_some_and(|url| url.starts_with("https://"));
        if !address.listen.ip().is_loopback() && !has_https {
            let detail = format!(
                "{section}.listen {} takes keys and sign-ins of other machines in plain text: put a proxy with https \
                 in front of it, and set {section}.public_url",
                address.listen
            );
            checks.note(NAME, detail);
        }
    }
    for provider in PROVIDERS {
        for setting in placeholders(settings, provider.name.as_str()) {
            let name = format!("{}.{setting}", provider.name);
            let detail = format!(
                "{name} looks like a placeholder: set what {} issued to you",
                provider.title
            );
            checks.note(NAME, detail);
        }
    }
}

/// Whether requests to a URL leave this machine without TLS.
fn is_plain_text(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else {
        return false;
    };
    let host = rest.split('/').next().unwrap_or_default();
    let host = host
        .rsplit_once(':')
        .filter(|(_, port)| port.parse::<u16>().is_ok())
        .map_or(host, |(host, _)| host);
    !is_this_machine(host)
}

/// The settings of a provider whose values look like placeholders.
pub(super) fn placeholders(settings: &Settings, provider: &str) -> Vec<&'static str> {
    let Some(provider) = registry::declaration(provider) else {
        return Vec::new();
    };
    let values = settings.providers.of(provider);
    let names = provider.settings.iter().map(|setting| setting.name);
    names
        .filter(|name| values.get(name).is_some_and(looks_like_placeholder))
        .collect()
}

/// Whether a value is most likely copied from an example: `...`, `ID`, `<token>`, `your-secret`.
fn looks_like_placeholder(value: &str) -> bool {
    let value = value.trim().to_lowercase();
    PLACEHOLDERS.contains(&value.as_str())
        || value.chars().all(|c| matches!(c, '.' | '…' | 'x' | '*'))
        || (value.starts_with('<') && value.ends_with('>'))
        || value.starts_with("your")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_fine_on_this_machine_only() {
        for url in [
            "https://x.example",
            "http://127.0.0.1:8080",
            "http://[::1]:8080/x",
            "http://localhost/x",
        ] {
            assert!(!is_plain_text(url), "{url}");
        }
        for url in [
            "http://x.example",
            "http://10.0.0.5:8080",
            "http://localhost.example:80",
            "http://[fe80::1]",
        ] {
            assert!(is_plain_text(url), "{url}");
        }
    }

    #[test]
    fn placeholders_are_not_taken_for_credentials() {
        for text in [
            "...",
            "…",
            "ID",
            "SECRET",
            "xxx",
            "<client id>",
            "your-secret",
            "YOUR_TOKEN",
            " ... ",
        ] {
            assert!(looks_like_placeholder(text), "{text}");
        }
        for text in ["s3cret", "app_token_cl1x2", "BELLBIRD-TEST", "0123", "x1"] {
            assert!(!looks_like_placeholder(text), "{text}");
        }
    }
}
