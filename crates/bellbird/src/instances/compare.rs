//! Compares the keys, versions and clocks of the running instances with each other and with a
//! command's. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bellbird_console::is_loopback_url;
use bellbird_management::health;
use bellbird_storage::Instance;
use jiff::SignedDuration;

use super::VERSION;
use crate::config::Settings;

/// A difference that would spoil leases, the shortest of which is a minute.
pub(super) const CLOCK_WRONG: SignedDuration = SignedDuration::from_secs(20);

const COMMAND: &str = "this command";

/// A difference that the operator should know, with what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Requests or commands fail because of it.
    pub is_wrong: bool,
    pub text: String,
}

/// A command that compares.
#[derive(Default)]
pub(super) struct Own<'a> {
    /// The ids of its master keys. The first one seals.
    pub key_ids: Vec<String>,
    /// As [`Instance::settings`].
    pub settings: BTreeMap<String, String>,
    pub console_url: Option<&'a str>,
}

/// Finds what differs between the running instances, and between them and a command.
pub(super) fn compare(running: &[Instance], own: &Own<'_>) -> Vec<Finding> {
    let mut findings = different_keys(running, &own.key_ids);
    findings.extend(different_versions(running));
    findings.extend(different_settings(running, own));
    findings.extend(different_consoles(running, own.console_url));
    findings.extend(running.iter().filter_map(wrong_clock));
    findings.extend(no_worker(running));
    findings
}

/// Nothing is synced or delivered then.
fn no_worker(running: &[Instance]) -> Option<Finding> {
    (!running.is_empty() && health::workers(running) == 0).then(|| Finding {
        is_wrong: true,
        text: "no instance is a worker, so nothing is synced or delivered: start one with `serve --only worker`, or \
            one without --only"
            .to_owned(),
    })
}

/// Every key that seals must open everywhere.
fn different_keys(running: &[Instance], own: &[String]) -> Vec<Finding> {
    let mut sealing: Vec<(&str, String)> = own
        .first()
        .map(|key| (key.as_str(), COMMAND.to_owned()))
        .into_iter()
        .collect();
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
            findings.push(Finding {
                is_wrong: true,
                text,
            });
        }
        if !own.is_empty() && own.iter().all(|known| known != key) {
            let text = format!(
                "this command cannot open the key `{key}`, with which {sealed_by} seals: run it with the service's \
                 secrets.key"
            );
            findings.push(Finding {
                is_wrong: true,
                text,
            });
        }
    }
    if findings.is_empty() && sealing.len() > 1 {
        let sealing: Vec<_> = sealing
            .iter()
            .map(|(key, by)| format!("{by} with `{key}`"))
            .collect();
        let text = format!(
            "not all seal with the same key: {}. Put the new key first in secrets.key everywhere, and restart",
            sealing.join(", ")
        );
        findings.push(Finding {
            is_wrong: false,
            text,
        });
    }
    findings
}

/// Limits would depend on the instance that a request meets.
fn different_settings(running: &[Instance], own: &Own<'_>) -> Vec<Finding> {
    let own_key = own.key_ids.first().map(String::as_str);
    let key = own_key.or_else(|| running.first().map(Instance::sealing_key_id));
    // Digests of another key or of other defaults cannot be compared.
    let comparable = running
        .iter()
        .filter(|one| one.version == VERSION && Some(one.sealing_key_id()) == key);
    let mut parties: Vec<_> = comparable
        .map(|instance| (instance.to_string(), &instance.settings))
        .collect();
    if own_key.is_some() {
        parties.push((COMMAND.to_owned(), &own.settings));
    }
    let sections: BTreeSet<&String> = parties
        .iter()
        .flat_map(|(_, settings)| settings.keys())
        .collect();
    let differing = sections.into_iter().filter_map(|section| {
        let mut groups: BTreeMap<Option<&String>, Vec<&str>> = BTreeMap::new();
        for (party, settings) in &parties {
            groups.entry(settings.get(section)).or_default().push(party);
        }
        let groups: Vec<_> = groups.into_values().map(|group| group.join(", ")).collect();
        (groups.len() > 1).then(|| Finding {
            is_wrong: false,
            text: format!(
                "the settings of section {section} are not the same everywhere: {}. Make them the same, and restart \
                 the instances that have old ones",
                groups.join(" differs from ")
            ),
        })
    });
    differing.collect()
}

fn different_versions(running: &[Instance]) -> Option<Finding> {
    let others = running
        .iter()
        .filter(|instance| instance.version != VERSION);
    let others: Vec<_> = others
        .map(|instance| format!("{} on {instance}", instance.version))
        .collect();
    let text = format!(
        "versions differ: {VERSION} in {COMMAND}, {}. Upgrade the older ones",
        others.join(", ")
    );
    (!others.is_empty()).then_some(Finding {
        is_wrong: false,
        text,
    })
}

/// The clock of an instance, if it is noticeably apart from the database's.
pub(super) fn wrong_clock(instance: &Instance) -> Option<Finding> {
    let ahead = health::clock_ahead(instance)?;
    Some(Finding {
        is_wrong: ahead.abs() >= CLOCK_WRONG,
        text: format!(
            "the clock of {instance} is {} that of the database: set it by NTP. From {} s on, the \
             instance is not ready and leaves jobs and events to others",
            difference(ahead),
            CLOCK_WRONG.as_secs()
        ),
    })
}

/// Such as `3 s ahead of`.
pub fn difference(ahead: SignedDuration) -> String {
    let seconds = ahead.abs().as_secs();
    match ahead.is_positive() {
        true => format!("{seconds} s ahead of"),
        false => format!("{seconds} s behind"),
    }
}

/// Instances without a common URL send browsers back to their own listeners. Where none is set,
/// they have the one that was entered in the console.
fn different_consoles(running: &[Instance], console_url: Option<&str>) -> Option<Finding> {
    const NAME: &str = "console.public_url";
    let entered = running.first().map(|first| first.console_url.as_str());
    let console_url = console_url.or(entered.filter(|url| !is_loopback_url(url)));
    let differs = running
        .iter()
        .any(|instance| Some(instance.console_url.as_str()) != console_url);
    (running.len() > 1 && differs).then(|| Finding {
        is_wrong: false,
        text: format!(
            "{NAME} is not the same everywhere, and {} instances run: each one sends browsers back to its own console. \
             Set {} to the URL of your proxy, and restart them",
            running.len(),
            Settings::variable(NAME)
        ),
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn instance(host: &str, key_ids: &[&str]) -> Instance {
        Instance {
            id: Uuid::nil(),
            version: VERSION.to_owned(),
            host: host.to_owned(),
            console_url: "http://127.0.0.1:8081".to_owned(),
            api_url: "http://127.0.0.1:8080".to_owned(),
            roles: vec!["api".to_owned(), "console".to_owned(), "worker".to_owned()],
            boot_id: String::new(),
            key_ids: key_ids.iter().map(|id| (*id).to_owned()).collect(),
            settings: BTreeMap::new(),
            allow_loopback: false,
            started_at: Timestamp::UNIX_EPOCH,
            last_seen_at: Timestamp::UNIX_EPOCH,
            clock_ahead_ms: 0,
            provider_calls: Default::default(),
        }
    }

    /// The hosts that cannot open a key, and whether all is well otherwise.
    fn key_findings(running: &[Instance], own: &[&str]) -> Vec<(bool, String)> {
        let key_ids = own.iter().map(|id| (*id).to_owned()).collect();
        let own = Own {
            key_ids,
            console_url: Some("http://127.0.0.1:8081"),
            ..Own::default()
        };
        let findings = compare(running, &own).into_iter();
        findings
            .map(|finding| (finding.is_wrong, finding.text[..19].to_owned()))
            .collect()
    }

    #[test]
    fn every_sealing_key_must_open_everywhere() {
        let (old, both, new) = (
            ["2026"].as_slice(),
            ["2026", "2027"].as_slice(),
            ["2027", "2026"].as_slice(),
        );
        let on = |host, keys| instance(host, keys);
        let found = |is_wrong, text: &str| (is_wrong, text.to_owned());
        for (running, own, expected) in [
            (vec![on("web-1", old), on("web-2", old)], old, vec![]),
            (vec![on("web-1", both), on("web-2", old)], old, vec![]),
            (
                vec![on("web-1", old), on("web-2", old)],
                [].as_slice(),
                vec![],
            ),
            (
                vec![on("web-1", both), on("web-2", new)],
                new,
                vec![found(false, "not all seal with t")],
            ),
            (
                vec![on("web-1", old), on("web-2", new)],
                new,
                vec![found(true, "web-1 (http://127.0")],
            ),
            (
                vec![on("web-1", new)],
                old,
                vec![found(true, "this command cannot")],
            ),
        ] {
            assert_eq!(key_findings(&running, own), expected, "{running:?} {own:?}");
        }
    }

    #[test]
    fn clocks_are_compared_with_the_database() {
        for (clock_ahead_ms, expected) in [
            (1_999, None),
            (-2_000, Some((false, "2 s behind"))),
            (19_999, Some((false, "19 s ahead of"))),
            (20_000, Some((true, "20 s ahead of"))),
            (-3_600_000, Some((true, "3600 s behind"))),
        ] {
            let found = wrong_clock(&Instance {
                clock_ahead_ms,
                ..instance("web-1", &["main"])
            });
            assert_eq!(
                found.as_ref().map(|found| found.is_wrong),
                expected.map(|(is_wrong, _)| is_wrong)
            );
            assert!(
                found.is_none_or(|found| found.text.contains(expected.unwrap().1)),
                "{clock_ahead_ms}"
            );
        }
    }

    #[test]
    fn several_instances_need_one_console_url() {
        let (one, other) = (instance("web-1", &["main"]), instance("web-2", &["main"]));
        let elsewhere = Instance {
            console_url: "https://bellbird.example".to_owned(),
            ..other.clone()
        };
        let entered = Instance {
            host: "web-3".to_owned(),
            ..elsewhere.clone()
        };
        for (running, own, count) in [
            (vec![one.clone()], None, 0),
            (vec![one.clone(), other.clone()], None, 1),
            (vec![one.clone(), other], Some("http://127.0.0.1:8081"), 0),
            (vec![elsewhere.clone(), entered], None, 0),
            (vec![elsewhere.clone(), one.clone()], None, 1),
            (vec![one, elsewhere], Some("https://bellbird.example"), 1),
        ] {
            let found = compare(
                &running,
                &Own {
                    console_url: own,
                    ..Own::default()
                },
            );
            assert_eq!(found.len(), count, "{running:?} {own:?}");
        }
    }

    #[test]
    fn sections_whose_settings_differ_are_named() {
        let settings = |limits: &str| [("limits".to_owned(), limits.to_owned())].into();
        let with = |host, limits| Instance {
            settings: settings(limits),
            ..instance(host, &["main"])
        };
        let found = |running: &[Instance], own: &str| {
            let key_ids = vec!["main".to_owned()];
            let console_url = Some("http://127.0.0.1:8081");
            let found = compare(
                running,
                &Own {
                    key_ids,
                    settings: settings(own),
                    console_url,
                },
            );
            found
                .into_iter()
                .map(|finding| finding.text)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            found(&[with("web-1", "a"), with("web-2", "a")], "a"),
            [""; 0]
        );
        let texts = found(&[with("web-1", "a"), with("web-2", "b")], "a");
        let expected = "the settings of section limits are not the same everywhere: web-1 (http://127.0.0.1:8080), \
                        this command differs from web-2 (http://127.0.0.1:8080). ";
        assert!(
            texts.len() == 1 && texts[0].starts_with(expected),
            "{texts:?}"
        );
        // Another key makes other digests.
        let other = Instance {
            key_ids: vec!["new".to_owned(), "main".to_owned()],
            ..with("web-3", "c")
        };
        assert!(
            !found(&[other], "a")
                .iter()
                .any(|text| text.contains("section"))
        );
    }
}
