//! Those checks of `bellbird doctor` that cost a page nothing: of the database, the instances, the
//! backups, the shared limits, and of what waits for too long.

use bellbird_domain::ConnectionStatus;
use bellbird_storage::{CLOCK_NOTICED, ConnectionCount, Instance, JobCounts, StorageError};
use jiff::{SignedDuration, Timestamp};

use crate::pages::count;
use crate::state::Console;

/// As the alert in `deploy/prometheus/rules.yml`.
const BACKUP_AGE_MAX: SignedDuration = SignedDuration::from_hours(48);
/// As `bellbird doctor`.
const FREE_BYTES_NOTED: u64 = 256 * 1024 * 1024;

/// A running service runs due jobs and deliveries within seconds.
const OVERDUE_AFTER: SignedDuration = SignedDuration::from_mins(10);

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

/// Whether the oldest due job should have run long ago.
pub(super) fn is_overdue(counts: &JobCounts, now: Timestamp) -> bool {
    let is_late = |next: Timestamp| now.duration_since(next) > OVERDUE_AFTER;
    counts.due > 0 && counts.next.is_some_and(is_late)
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
    if let Some(free) = storage.free_bytes().filter(|free| *free < FREE_BYTES_NOTED) {
        let text = format!("{} MiB are free on its disk", free / (1024 * 1024));
        return Check::bad(text);
    }
    let kind = match storage.kind() {
        "sqlite" => "SQLite",
        _ => "PostgreSQL",
    };
    Check::good(format!("{kind}, read and written"))
}

fn worker(instances: &[Instance]) -> Check {
    let is_worker = |instance: &&Instance| instance.roles.iter().any(|role| role == "worker");
    match instances.iter().filter(is_worker).count() as u64 {
        0 => Check::bad("no instance is one, so nothing is synced or delivered"),
        workers => Check::good(format!("{} running", count(workers, "instance"))),
    }
}

/// Only if one is wrong. How far each is from the database's is in the list of instances.
fn clock(instances: &[Instance]) -> Option<Check> {
    let apart = |instance: &Instance| SignedDuration::from_millis(instance.clock_ahead_ms);
    let worst = instances.iter().max_by_key(|one| apart(one).abs())?;
    if apart(worst).abs() < CLOCK_NOTICED {
        return None;
    }
    let (seconds, direction) = match apart(worst).as_secs() {
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

/// None: this is PostgreSQL, which may have backups that nobody records.
async fn backup(console: &Console, now: Timestamp) -> Result<Option<Check>, StorageError> {
    let audit = console.storage().audit();
    let Some(at) = audit.unsaved_since().await? else {
        return Ok(None);
    };
    let is_recent = now.duration_since(at) <= BACKUP_AGE_MAX;
    let (is_good, text) = match (is_recent, audit.last_backup_at().await?) {
        (true, Some(_)) => (Some(true), "the last one"),
        (true, None) => (None, "none yet of this database, which was made"),
        (false, _) => (Some(false), "make one with bellbird backup: none since"),
    };
    Ok(Some(Check::new(is_good, text).at(at)))
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
    use ConnectionStatus::{Invalidated, PendingMfa, Revoked};
    let broken = connections
        .iter()
        .filter(|counted| matches!(counted.status, Invalidated | PendingMfa | Revoked));
    let text = match broken.map(|counted| counted.count).sum::<u64>() {
        0 => return Check::good("no user has to reconnect one"),
        1 => "1 must be reconnected by its user".to_owned(),
        many => format!("{many} must be reconnected by their users"),
    };
    Check::bad(text).see("/operator/users?only=bank", "Whose?")
}

fn jobs(jobs: &[JobCounts], now: Timestamp) -> Check {
    let overdue = jobs.iter().filter(|counts| is_overdue(counts, now));
    if let Some(at) = overdue.filter_map(|counts| counts.next).min() {
        return Check::bad("overdue since").at(at);
    }
    match jobs.iter().map(|counts| counts.failing).sum::<u64>() {
        0 => Check::good("none is late, and none fails"),
        failing => Check::bad(format!("{failing} failing")),
    }
}

async fn webhooks(console: &Console, now: Timestamp) -> Result<Check, StorageError> {
    let overview = console.storage().deliveries().overview(now).await?;
    let is_late = |oldest: &Timestamp| now.duration_since(*oldest) > OVERDUE_AFTER;
    if let Some(oldest) = overview.oldest_due.filter(is_late) {
        let text = format!("{} due, the first", count(overview.due, "event"));
        return Ok(Check::bad(text).at(oldest));
    }
    let troubled = [
        (overview.disabled, "disabled"),
        (overview.failing, "failing"),
    ];
    let troubled = troubled.iter().filter(|(endpoints, _)| *endpoints > 0);
    let texts: Vec<_> = troubled
        .map(|(endpoints, how)| format!("{} {how}", count(*endpoints, "endpoint")))
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
