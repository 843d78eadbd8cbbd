//! Checks which settings were read, and whether they fit each other.

use bellbird_providers::registry::PROVIDERS;

use super::{Checks, Verdict};
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
    checks.add(NAME, Verdict::Ok, format!("{source}; {count} set, all others at their defaults"));
    let (deadline, timeout) = (settings.reads.deadline_seconds, settings.reads.provider_timeout_seconds);
    if deadline < timeout {
        let detail = format!(
            "reads.deadline_seconds ({deadline}) is below reads.provider_timeout_seconds ({timeout}): requests end \
             before a slow provider answers"
        );
        checks.add(NAME, Verdict::Note, detail);
    }
    for provider in PROVIDERS {
        for setting in placeholders(settings, provider.name.as_str()) {
            let name = format!("{}.{setting}", provider.name);
            let detail = format!("{name} looks like a placeholder: set what {} issued to you", provider.title);
            checks.add(NAME, Verdict::Note, detail);
        }
    }
}

/// The settings of a provider whose values look like placeholders.
pub(super) fn placeholders(settings: &Settings, provider: &str) -> Vec<&'static str> {
    let Some(provider) = PROVIDERS.iter().find(|declared| declared.name.as_str() == provider) else {
        return Vec::new();
    };
    let values = settings.providers.of(provider);
    let names = provider.settings.iter().map(|setting| setting.name);
    names.filter(|name| values.get(name).is_some_and(looks_like_placeholder)).collect()
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
    fn placeholders_are_not_taken_for_credentials() {
        for text in ["...", "…", "ID", "SECRET", "xxx", "<client id>", "your-secret", "YOUR_TOKEN", " ... "] {
            assert!(looks_like_placeholder(text), "{text}");
        }
        for text in ["s3cret", "app_token_cl1x2", "BELLBIRD-TEST", "0123", "x1"] {
            assert!(!looks_like_placeholder(text), "{text}");
        }
    }
}
