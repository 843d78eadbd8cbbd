//! Checks of the doctor for jobs and webhook deliveries.

use bellbird_management::health;
use bellbird_storage::{DegradedConnection, FailingJob, Storage, StorageError};
use jiff::Timestamp;

use super::super::connection::unreadable;
use super::super::output::{self, format_instant};
use super::{Checks, Verdict};
use crate::config::Settings;

/// Failing jobs that are listed individually.
const SHOWN_MAX: u32 = 5;
/// Providers fail now and then; from this many failed attempts on, the operator should act.
const ATTEMPTS_TOLERATED: u32 = 3;

pub(super) async fn check(checks: &mut Checks, settings: &Settings, storage: &Storage) {
    let checked = check_jobs(checks, settings, storage).await;
    checks.value("jobs", checked);
    let checked = check_unreadable_rows(checks, storage).await;
    checks.value("rows", checked);
    check_webhooks(checks, settings, storage).await;
}

/// Reports connections whose last sync could not read all rows.
async fn check_unreadable_rows(checks: &mut Checks, storage: &Storage) -> Result<(), StorageError> {
    const NAME: &str = "rows";
    let degraded = storage.syncs().list_degraded(SHOWN_MAX + 1).await?;
    for DegradedConnection { id, provider, rows } in degraded.iter().take(SHOWN_MAX as usize) {
        let detail = format!(
            "connection {id} at {provider}: could not read {}",
            unreadable(rows)
        );
        checks.note(NAME, detail);
    }
    if degraded.len() > SHOWN_MAX as usize {
        checks.note(
            NAME,
            "more connections have unreadable rows; see `bellbird connection show ID`",
        );
    }
    Ok(())
}

async fn check_jobs(
    checks: &mut Checks,
    settings: &Settings,
    storage: &Storage,
) -> Result<(), StorageError> {
    const NAME: &str = "jobs";
    if !settings.sync.enabled {
        checks.note(
            NAME,
            "sync.enabled is false: only `bellbird connection sync` syncs",
        );
    }
    let now = Timestamp::now();
    let jobs = health::jobs(storage, now).await?;
    // Most failures first, so the first job that is not shown has the worst verdict of the rest.
    let failing = storage.jobs().list_failing(SHOWN_MAX + 1).await?;
    for job in failing.iter().take(SHOWN_MAX as usize) {
        let FailingJob {
            kind,
            subject,
            provider,
            attempts,
            last_error,
            next_attempt_at,
        } = job;
        let next = format_instant(*next_attempt_at);
        let times = output::times(*attempts);
        let detail = format!(
            "{kind} {subject} at {provider}: {last_error}. Tried {times}; next attempt at {next}"
        );
        checks.add(NAME, verdict_for(*attempts), detail);
    }
    if let Some(job) = failing.get(SHOWN_MAX as usize) {
        let all: u64 = jobs.iter().map(|counts| counts.failing).sum();
        let more = all.saturating_sub(SHOWN_MAX.into());
        let detail = format!(
            "{more} more are failing; see `bellbird connection list` and `bellbird connection show ID`"
        );
        checks.add(NAME, verdict_for(job.attempts), detail);
    }
    for counts in &jobs {
        let name = format!("jobs: {}", counts.kind);
        let state = format!("{} due, {} running", counts.due, counts.running);
        if let Some(oldest) = health::overdue_job(counts, now) {
            let since = format_instant(oldest);
            let detail = format!("{state}, the oldest since {since}: is the service running?");
            checks.note(&name, detail);
            continue;
        }
        let next = match counts.next {
            _ if counts.due > 0 || counts.running > 0 => String::new(),
            Some(next) => format!(", next at {}", format_instant(next)),
            None => ", none planned".to_owned(),
        };
        checks.ok(&name, state + &next);
    }
    if jobs.is_empty() {
        checks.ok(NAME, "none");
    }
    Ok(())
}

async fn check_webhooks(checks: &mut Checks, settings: &Settings, storage: &Storage) {
    const NAME: &str = "webhooks";
    if settings.webhooks.rules.allow_loopback {
        let detail = "webhooks.allow_loopback is true: for development only, because endpoints can reach this machine";
        checks.note(NAME, detail);
    }
    let now = Timestamp::now();
    let Some(overview) = checks.value(NAME, storage.deliveries().overview(now).await) else {
        return;
    };
    if overview.disabled > 0 {
        let detail = format!(
            "endpoints disabled by the service or a restore: {}. `bellbird webhook list` says which, and `bellbird \
             webhook enable ID` enables one",
            overview.disabled
        );
        checks.note(NAME, detail);
    }
    if overview.failing > 0 {
        let detail = format!(
            "failing endpoints: {}. See `bellbird webhook list` and `bellbird webhook deliveries ID`",
            overview.failing
        );
        checks.note(NAME, detail);
    }
    let due = overview.due;
    match health::overdue(overview.oldest_due, now) {
        Some(oldest) => {
            let since = format_instant(oldest);
            let detail = format!("{due} due, the oldest since {since}: is the service running?");
            checks.wrong(NAME, detail);
        }
        None => {
            let scheduled = (overview.pending + overview.waiting).saturating_sub(due);
            checks.ok(NAME, format!("{due} due, {scheduled} scheduled"));
        }
    }
}

fn verdict_for(attempts: u32) -> Verdict {
    Verdict::of(attempts >= ATTEMPTS_TOLERATED)
}
