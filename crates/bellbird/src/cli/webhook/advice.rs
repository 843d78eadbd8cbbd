//! Says why an endpoint gets no events, or will get none, and what to do.

use bellbird_domain::{EndpointStatus, UserId};
use bellbird_storage::{Endpoint, Instance, Storage};
use bellbird_webhooks::target::{Rules, TargetError, check_url};

use crate::config::Settings;
use crate::instances;

/// The development setting that allows addresses of this machine.
const SETTING: &str = "webhooks.allow_loopback";
/// The rules with that setting.
const ALLOWED: Rules = Rules {
    allow_loopback: true,
};

/// Says what to do about a disabled endpoint. `None` if it is enabled.
pub(super) fn disabled(endpoint: &Endpoint) -> Option<String> {
    if endpoint.status == EndpointStatus::Enabled {
        return None;
    }
    let (id, setting) = (endpoint.id, switched_on());
    let reason = endpoint
        .disabled_reason
        .as_deref()
        .unwrap_or("no reason stored");
    let advice = match reason {
        "address not allowed" => format!(
            "the settings of the service do not allow its URL. Change it to a public https URL with `bellbird webhook \
             set {id} --url URL`, or, for development on one machine, restart the service with {setting}. Then run \
             `bellbird webhook enable {id}`"
        ),
        "secret broken" => format!(
            "run `bellbird webhook rotate-secret {id}`, then `bellbird webhook enable {id}`"
        ),
        _ => format!(
            "to resume, run `bellbird webhook enable {id}`, which shows how to recover missed events"
        ),
    };
    Some(format!(
        "The endpoint {id} is disabled ({reason}): {advice}."
    ))
}

/// A warning for each running instance that rejects the URL of an endpoint, although [`SETTING`]
/// would allow it.
pub(super) fn rejections(running: &[Instance], endpoint: &Endpoint) -> Vec<String> {
    let (id, url) = (endpoint.id, &endpoint.url);
    if check_url(url, Rules::default()).is_ok() || check_url(url, ALLOWED).is_err() {
        return Vec::new();
    }
    let strict = running.iter().filter(|instance| !instance.allow_loopback);
    let warning = |instance| {
        format!(
            "warning: {instance} runs without {SETTING}, so it rejects this address and disables the endpoint. \
             Restart it with {}, then run `bellbird webhook enable {id}`",
            switched_on()
        )
    };
    strict.map(warning).collect()
}

/// Everything that keeps the user's endpoints from getting events.
pub(crate) async fn obstacles(storage: &Storage, user: UserId) -> anyhow::Result<Vec<String>> {
    let running = instances::running(storage).await?;
    let mut found = Vec::new();
    for endpoint in storage.endpoints().list(user).await? {
        match disabled(&endpoint) {
            Some(text) => found.push(text),
            None => found.extend(rejections(&running, &endpoint)),
        }
    }
    Ok(found)
}

/// Says why the URL is rejected, and which setting would allow it.
pub(super) fn explain(error: TargetError, url: &str) -> String {
    if check_url(url, ALLOWED).is_err() {
        return error.to_string();
    }
    let setting = switched_on();
    format!(
        "{error}. For development on one machine, set {setting} for this command and the service, and restart the \
         service"
    )
}

fn switched_on() -> String {
    format!("{SETTING} = true ({}=true)", Settings::variable(SETTING))
}
