//! Checks of the doctor for background jobs: removals, syncs and webhook deliveries.

use bellbird_storage::{PendingRemoval, Storage};
use jiff::{SignedDuration, Timestamp};

use super::super::connection::removal_status;
use super::super::output;
use super::{Checks, Verdict};
use crate::config::Settings;

/// Jobs of one kind that are listed individually.
const SHOWN_MAX: usize = 5;
/// Providers fail now and then; from this many failed attempts on, the operator should act.
const ATTEMPTS_TOLERATED: u32 = 3;
/// A running service runs due jobs within seconds, so an older one means that the service is not running.
const OVERDUE_AFTER: SignedDuration = SignedDuration::from_mins(10);

pub(super) async fn check(checks: &mut Checks, settings: &Settings, storage: &Storage) {
    check_removals(checks, storage).await;
    check_syncs(checks, settings, storage).await;
    check_webhooks(checks, settings, storage).await;
}

async fn check_removals(checks: &mut Checks, storage: &Storage) {
    const NAME: &str = "removals";
    let removals = match storage.list_removals().await {
        Ok(removals) => removals,
        Err(error) => return checks.add(NAME, Verdict::Wrong, error.to_string()),
    };
    if removals.is_empty() {
        return checks.add(NAME, Verdict::Ok, "none pending");
    }
    let verdict = |removal: &PendingRemoval| verdict_for(removal.attempts);
    for removal in removals.iter().take(SHOWN_MAX) {
        checks.add(
            NAME,
            verdict(removal),
            format!("connection {}: {}", removal.connection.id, removal_status(removal)),
        );
    }
    if let Some(more) = removals.get(SHOWN_MAX..).filter(|more| !more.is_empty()) {
        let verdict =
            if more.iter().any(|one| verdict(one) == Verdict::Wrong) { Verdict::Wrong } else { Verdict::Note };
        checks.add(NAME, verdict, format!("{} more; `bellbird connection list` shows them", more.len()));
    }
}

async fn check_syncs(checks: &mut Checks, settings: &Settings, storage: &Storage) {
    const NAME: &str = "syncs";
    if !settings.sync.enabled {
        let detail = "sync.enabled is false: only `bellbird connection sync` syncs";
        checks.add(NAME, Verdict::Note, detail);
    }
    let overview = match storage.sync_overview(Timestamp::now()).await {
        Ok(overview) => overview,
        Err(error) => return checks.add(NAME, Verdict::Wrong, error.to_string()),
    };
    for (connection, attempts, last_error) in overview.failures.iter().take(SHOWN_MAX) {
        let detail = format!("connection {connection}: {last_error}. Tried {}", format_times(*attempts));
        checks.add(NAME, verdict_for(*attempts), detail);
    }
    let shown = u64::try_from(overview.failures.len().min(SHOWN_MAX)).unwrap_or(u64::MAX);
    // The most failed attempts come first, so the next one has the worst verdict of the rest.
    if let Some((_, attempts, _)) = overview.failures.get(SHOWN_MAX) {
        let more = overview.failing.saturating_sub(shown);
        checks.add(NAME, verdict_for(*attempts), format!("{more} more are failing; see `bellbird connection show ID`"));
    }
    if overview.failing == 0 {
        let format_next = |next| format!("; the next one at {}", output::format_instant(Some(next)));
        let next = overview.next.map_or_else(String::new, format_next);
        checks.add(NAME, Verdict::Ok, format!("{} due, {} running{next}", overview.due, overview.running));
    }
}

async fn check_webhooks(checks: &mut Checks, settings: &Settings, storage: &Storage) {
    const NAME: &str = "webhooks";
    if settings.webhooks.allow_loopback {
        let detail = "webhooks.allow_loopback is true: for development only, because endpoints can reach this machine";
        checks.add(NAME, Verdict::Note, detail);
    }
    let now = Timestamp::now();
    let overview = match storage.delivery_overview(now).await {
        Ok(overview) => overview,
        Err(error) => return checks.add(NAME, Verdict::Wrong, error.to_string()),
    };
    if overview.disabled > 0 {
        let detail = format!(
            "disabled endpoints: {}. See `bellbird webhook list`, and enable one with `bellbird webhook enable ID`",
            overview.disabled
        );
        checks.add(NAME, Verdict::Note, detail);
    }
    if overview.failing > 0 {
        let detail = format!(
            "failing endpoints: {}. See `bellbird webhook list` and `bellbird webhook deliveries ID`",
            overview.failing
        );
        checks.add(NAME, Verdict::Note, detail);
    }
    match overview.oldest_due.filter(|oldest| now.duration_since(*oldest) > OVERDUE_AFTER) {
        Some(oldest) => {
            let since = output::format_instant(Some(oldest));
            let detail = format!("{} due, the oldest since {since}: is the service running?", overview.due);
            checks.add(NAME, Verdict::Wrong, detail);
        }
        None => {
            let detail = format!(
                "{} due, {} scheduled",
                overview.due,
                (overview.pending + overview.waiting).saturating_sub(overview.due)
            );
            checks.add(NAME, Verdict::Ok, detail);
        }
    }
}

fn verdict_for(attempts: u32) -> Verdict {
    if attempts < ATTEMPTS_TOLERATED { Verdict::Note } else { Verdict::Wrong }
}

fn format_times(attempts: u32) -> String {
    if attempts == 1 { "once".to_owned() } else { format!("{attempts} times") }
}
