//! Compares the running instances with each other and with a command's settings. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Instance, VERSION};
use crate::config::Settings;

const COMMAND: &str = "this command";

/// A difference that the operator should know, with what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Requests or commands fail because of it.
    pub is_wrong: bool,
    pub text: String,
}

/// Finds what differs between the running instances, and between them and a command with these settings and master keys
/// (the first one seals).
#[must_use]
pub(super) fn compare(running: &[Instance], shared: &BTreeMap<String, Value>, key_ids: &[String]) -> Vec<Finding> {
    let mut findings = different_keys(running, key_ids);
    findings.extend(different_versions(running));
    findings.extend(different_settings(running, shared));
    findings.extend(missing_public_url(running));
    findings
}

/// Every key that seals must open everywhere.
fn different_keys(running: &[Instance], own: &[String]) -> Vec<Finding> {
    let mut sealing: Vec<(&str, String)> =
        own.first().map(|key| (key.as_str(), COMMAND.to_owned())).into_iter().collect();
    for instance in running {
        let key = instance.sealing_key_id();
        if sealing.iter().all(|(known, _)| *known != key) {
            sealing.push((key, instance.to_string()));
        }
    }
    let mut findings = Vec::new();
    for (key, sealed_by) in &sealing {
        for instance in running.iter().filter(|instance| !instance.opens(key)) {
            let text = format!(
                "{instance} cannot open the key `{key}`, with which {sealed_by} seals: add it to secrets.key there, \
                 and restart the instance"
            );
            findings.push(Finding { is_wrong: true, text });
        }
        if !own.is_empty() && own.iter().all(|known| known != key) {
            let text = format!(
                "this command cannot open the key `{key}`, with which {sealed_by} seals: run it with the service's \
                 secrets.key"
            );
            findings.push(Finding { is_wrong: true, text });
        }
    }
    if findings.is_empty() && sealing.len() > 1 {
        let sealing: Vec<_> = sealing.iter().map(|(key, by)| format!("{by} with `{key}`")).collect();
        let text = format!(
            "not all seal with the same key: {}. Put the new key first in secrets.key everywhere, and restart",
            sealing.join(", ")
        );
        findings.push(Finding { is_wrong: false, text });
    }
    findings
}

fn different_versions(running: &[Instance]) -> Option<Finding> {
    let others = running.iter().filter(|instance| instance.version != VERSION);
    let others: Vec<_> = others.map(|instance| format!("{} on {instance}", instance.version)).collect();
    let text = format!("versions differ: {VERSION} in {COMMAND}, {}. Upgrade the older ones", others.join(", "));
    (!others.is_empty()).then_some(Finding { is_wrong: false, text })
}

/// A setting that an instance does not know, because it has another version, is not compared.
fn different_settings(running: &[Instance], shared: &BTreeMap<String, Value>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, own) in shared {
        let mut holders: Vec<(&Value, Vec<String>)> = vec![(own, vec![format!("in {COMMAND}")])];
        for instance in running {
            let Some(value) = instance.settings.get(name) else { continue };
            match holders.iter_mut().find(|(known, _)| *known == value) {
                Some((_, places)) => places.push(format!("on {instance}")),
                None => holders.push((value, vec![format!("on {instance}")])),
            }
        }
        if holders.len() > 1 {
            let holders = holders.iter().map(|(value, places)| format!("{} {}", shown(value), places.join(", ")));
            let text = format!(
                "{name} differs: {}. Set it alike everywhere ({}), and restart the instances that change",
                holders.collect::<Vec<_>>().join("; "),
                Settings::variable(name)
            );
            findings.push(Finding { is_wrong: false, text });
        }
    }
    findings
}

/// Without it, each instance sends browsers back to its own listener.
fn missing_public_url(running: &[Instance]) -> Option<Finding> {
    const NAME: &str = "console.public_url";
    let is_missing = |instance: &Instance| instance.settings.get(NAME).is_some_and(Value::is_null);
    (running.len() > 1 && running.iter().any(is_missing)).then(|| Finding {
        is_wrong: false,
        text: format!(
            "{NAME} is not set, and {} instances run: each one sends browsers back to its own listener. Set {} to the \
             URL of your proxy, and restart them",
            running.len(),
            Settings::variable(NAME)
        ),
    })
}

fn shown(value: &Value) -> String {
    if value.is_null() { "not set".to_owned() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn instance(host: &str, key_ids: &[&str], settings: &[(&str, Value)]) -> Instance {
        Instance {
            id: Uuid::nil(),
            version: VERSION.to_owned(),
            host: host.to_owned(),
            console_url: "http://127.0.0.1:8081".to_owned(),
            api_url: "http://127.0.0.1:8080".to_owned(),
            key_ids: key_ids.iter().map(|id| (*id).to_owned()).collect(),
            started_at: Timestamp::UNIX_EPOCH,
            last_seen_at: Timestamp::UNIX_EPOCH,
            settings: settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        }
    }

    /// The hosts that cannot open a key, and whether all is well otherwise.
    fn key_findings(running: &[Instance], own: &[&str]) -> Vec<(bool, String)> {
        let own: Vec<_> = own.iter().map(|id| (*id).to_owned()).collect();
        let findings = compare(running, &BTreeMap::new(), &own).into_iter();
        findings.map(|finding| (finding.is_wrong, finding.text[..19].to_owned())).collect()
    }

    #[test]
    fn every_sealing_key_must_open_everywhere() {
        let (old, both, new) = (["2026"].as_slice(), ["2026", "2027"].as_slice(), ["2027", "2026"].as_slice());
        let on = |host, keys| instance(host, keys, &[]);
        let found = |is_wrong, text: &str| (is_wrong, text.to_owned());
        for (running, own, expected) in [
            (vec![on("web-1", old), on("web-2", old)], old, vec![]),
            (vec![on("web-1", both), on("web-2", old)], old, vec![]),
            (vec![on("web-1", old), on("web-2", old)], [].as_slice(), vec![]),
            (vec![on("web-1", both), on("web-2", new)], new, vec![found(false, "not all seal with t")]),
            (vec![on("web-1", old), on("web-2", new)], new, vec![found(true, "web-1 (http://127.0")]),
            (vec![on("web-1", new)], old, vec![found(true, "this command cannot")]),
        ] {
            assert_eq!(key_findings(&running, own), expected, "{running:?} {own:?}");
        }
    }

    #[test]
    fn unknown_setting_is_not_compared() {
        let own = BTreeMap::from([("sync.enabled".to_owned(), Value::Bool(true)), ("new.one".to_owned(), Value::Null)]);
        let older =
            instance("web-1", &["main"], &[("sync.enabled", Value::Bool(true)), ("old.one", Value::Bool(true))]);
        assert_eq!(compare(&[older], &own, &[]), []);
        let other = instance("web-1", &["main"], &[("sync.enabled", Value::Bool(false))]);
        let findings = compare(&[other], &own, &[]);
        assert!(findings.len() == 1 && !findings[0].is_wrong, "{findings:?}");
        let text = "sync.enabled differs: true in this command; false on web-1 (http://127.0.0.1:8080). Set it alike";
        assert!(findings[0].text.starts_with(text), "{findings:?}");
    }
}
