//! Those checks of `bellbird doctor` that cost a page nothing: of the database, the instances, the
//! backups, the shared limits, and of what waits for too long.

use bellbird_management::health::{self, Backup};
use bellbird_storage::{ConnectionCount, Instance, JobCounts, StorageError};
use jiff::Timestamp;

use crate::pages::count;
use crate::state::Console;

/// What was checked, and what was found.
pub(super) struct Check {
    pub(super) name: &'static str,
    /// None: there is nothing to judge yet.
    is_good: Option<bool>,
    pub(super) text: String,
    /// The time that the text ends with.
    pub(super) at: Option<Timestamp>,
    /// The page that shows more, and its link's text.
    pub(super) link: Option<(&'static str, &'static str)>,
}

impl Check {
    fn new(is_good: Option<bool>, text: impl Into<String>) -> Self {
        Self {
            name: "",
            is_good,
            text: text.into(),
            at: None,
            link: None,
        }
    }

    fn good(text: impl Into<String>) -> Self {
        Self::new(Some(true), text)
    }

    fn bad(text: impl Into<String>) -> Self {
        Self::new(Some(false), text)
    }

    /// Of its dot.
    pub(super) fn class(&self) -> &'static str {
        match self.is_good {
            Some(true) => "good",
            Some(false) => "attention",
            None => "",
        }
    }

    fn at(self, at: Timestamp) -> Self {
        Self {
            at: Some(at),
            ..self
        }
    }

    fn see(self, path: &'static str, text: &'static str) -> Self {
        Self {
            link: Some((path, text)),
            ..self
        }
    }
}

/// What is wrong comes first.
pub(super) async fn list(
    console: &Console,
    instances: &[Instance],
    counts: &[JobCounts],
    connections: &[ConnectionCount],
    now: Timestamp,
) -> Result<Vec<Check>, StorageError> {
    let checks = [
        ("Database", Some(database(console))),
        ("Worker", Some(worker(instances))),
        ("Clock", clock(instances)),
        ("Versions", versions(instances)),
        ("Backup", backup(console, now).await?),
        ("Valkey", shared_store(console).await),
        ("Banks", Some(banks(connections))),
        ("Jobs", Some(jobs(counts, now))),
        ("Webhooks", Some(webhooks(console, now).await?)),
    ];
    let checks = checks
        .into_iter()
        .filter_map(|(name, check)| Some(Check { name, ..check? }));
    let mut checks: Vec<_> = checks.collect();
    checks.sort_by_key(|check| check.is_good != Some(false));
    Ok(checks)
}

fn database(console: &Console) -> Check {
    let storage = console.storage();
    if let Err(error) = storage.check_file() {
        return Check::bad(error.to_string());
    }
    if let Some(fault) = storage.instances().fault() {
        return Check::bad(fault);
    }
    if let Some(free) = health::few_mebibytes_free(storage) {
        return Check::bad(format!("{free} MiB are free on its disk"));
    }
    let kind = match storage.kind() {
        "sqlite" => "SQLite",
        _ => "PostgreSQL",
    };
    Check::good(format!("{kind}, read and written"))
}

fn worker(instances: &[Instance]) -> Check {
    match health::workers(instances) {
        0 => Check::bad("no instance is one, so nothing is synced or delivered"),
        workers => Check::good(format!("{} running", count(workers, "instance"))),
    }
}

/// Only if one is wrong. How far each is from the database's is in the list of instances.
fn clock(instances: &[Instance]) -> Option<Check> {
    let wrong = instances
        .iter()
        .filter_map(|one| Some((one, health::clock_ahead(one)?)));
    let (worst, ahead) = wrong.max_by_key(|(_, ahead)| ahead.abs())?;
    let (seconds, direction) = match ahead.as_secs() {
        ahead @ 0.. => (ahead, "ahead of"),
        behind => (-behind, "behind"),
    };
    let text = format!("that of {worst} is {seconds} s {direction} the database's: set it by NTP");
    Some(Check::bad(text))
}

/// Only during an upgrade.
fn versions(instances: &[Instance]) -> Option<Check> {
    let first = instances.first()?;
    let other = instances
        .iter()
        .find(|instance| instance.version != first.version)?;
    let text = format!(
        "{first} has {} and {other} has {}: upgrade the older one",
        first.version, other.version
    );
    Some(Check::bad(text))
}

async fn backup(console: &Console, now: Timestamp) -> Result<Option<Check>, StorageError> {
    let found = health::backup(console.storage(), now).await?;
    Ok(found.map(|backup| match backup {
        Backup::Recent(at) => Check::good("the last one").at(at),
        Backup::NoneYet(at) => Check::new(None, "none yet of this database, which was made").at(at),
        Backup::Old(at) => Check::bad("make one with bellbird backup: none since").at(at),
    }))
}

async fn shared_store(console: &Console) -> Option<Check> {
    let store = console.context.shared_store()?;
    Some(match store.check().await {
        Ok(()) => Check::good("responds"),
        Err(error) => {
            let text = format!("{error}. Until this is mended, each instance counts for itself");
            Check::bad(text)
        }
    })
}

fn banks(connections: &[ConnectionCount]) -> Check {
    let text = match health::to_reconnect(connections) {
        0 => return Check::good("no user has to reconnect one"),
        1 => "1 must be reconnected by its user".to_owned(),
        many => format!("{many} must be reconnected by their users"),
    };
    Check::bad(text).see("/operator/users?only=bank", "Whose?")
}

fn jobs(jobs: &[JobCounts], now: Timestamp) -> Check {
    let overdue = jobs
        .iter()
        .filter_map(|counts| health::overdue_job(counts, now));
    if let Some(at) = overdue.min() {
        return Check::bad("overdue since").at(at);
    }
    match jobs.iter().map(|counts| counts.failing).sum::<u64>() {
        0 => Check::good("none is late, and none fails"),
        failing => Check::bad(format!("{failing} failing")),
    }
}

async fn webhooks(console: &Console, now: Timestamp) -> Result<Check, StorageError> {
    let overview = console.storage().deliveries().overview(now).await?;
    if let Some(oldest) = health::overdue(overview.oldest_due, now) {
        let text = format!("{} due, the first", count(overview.due, "event"));
        return Ok(Check::bad(text).at(oldest));
    }
    let troubled = [
        (overview.disabled, "disabled"),
        (overview.failing, "failing"),
    ];
    let troubled = troubled.iter().filter(|(endpoints, _)| *endpoints > 0);
    let texts: Vec<_> = troubled
        .enumerate()
        .map(|(at, (endpoints, how))| match at {
            0 => format!("{} {how}", count(*endpoints, "endpoint")),
            _ => format!("{endpoints} {how}"),
        })
        .collect();
    if texts.is_empty() {
        return Ok(Check::good("every enabled endpoint works"));
    }
    let check = Check::bad(texts.join(", "));
    Ok(check.see("/operator/deliveries?only=attention", "Which?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_judged_yet_has_no_colour() {
        let classes = [Check::good(""), Check::bad(""), Check::new(None, "")];
        let classes = classes.map(|check| check.class());
        assert_eq!(classes, ["good", "attention", ""]);
    }
}
