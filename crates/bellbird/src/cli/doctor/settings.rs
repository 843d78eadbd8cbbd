//! Checks which settings were read, and whether they fit each other.

use super::Checks;
use crate::config::{Settings, client};

const NAME: &str = "settings";

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
}
