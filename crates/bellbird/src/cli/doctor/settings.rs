//! Checks which settings were read, and whether they fit each other.

use bellbird_providers::registry::{self, PROVIDERS};

use super::Checks;
use crate::config::{Settings, client};

const NAME: &str = "settings";

/// Words that stand for a value in examples, beside the names of the settings. In lower case.
const PLACEHOLDERS: [&str; 7] = [
    "id", "secret", "key", "token", "changeme", "todo", "example",
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
    let api_url = settings.api.public_url.as_deref();
    if api_url.is_some_and(|url| !client::is_safe(url)) {
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
    let mut settings = PROVIDERS.iter().flat_map(|provider| provider.settings);
    settings.any(|setting| setting.name == value)
        || PLACEHOLDERS.contains(&value.as_str())
        || value.chars().all(|c| matches!(c, '.' | '…' | 'x' | '*'))
        || (value.starts_with('<') && value.ends_with('>'))
        || value.starts_with("your")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for setting in PROVIDERS.iter().flat_map(|provider| provider.settings) {
            let text = setting.name.to_uppercase();
            assert!(looks_like_placeholder(&text), "{text}");
        }
        for text in ["s3cret", "app_token_cl1x2", "BELLBIRD-TEST", "0123", "x1"] {
            assert!(!looks_like_placeholder(text), "{text}");
        }
    }
}
