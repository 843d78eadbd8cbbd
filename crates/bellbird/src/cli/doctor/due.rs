//! What of the doctor is about due work: removals, syncs, deliveries.

use bellbird_storage::{PendingRemoval, Storage};
use jiff::{SignedDuration, Timestamp};

use super::super::connection::stands;
use super::super::output;
use super::{Checks, Verdict};
use crate::config::Settings;

/// Things of one kind that are shown one by one.
const SHOWN_MAX: usize = 5;
/// A provider may fail to take a consent back a few times, or to be read; after that, somebody should look.
const ATTEMPTS_FINE: u32 = 3;
/// A running service does what is due within seconds.
const LATE: SignedDuration = SignedDuration::from_mins(10);

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
        return checks.add(NAME, Verdict::Ok, "none waits");
    }
    let verdict = |removal: &PendingRemoval| judge(removal.attempts);
    for removal in removals.iter().take(SHOWN_MAX) {
        checks.add(NAME, verdict(removal), format!("connection {}: {}", removal.connection.id, stands(removal)));
    }
    if let Some(more) = removals.get(SHOWN_MAX..).filter(|more| !more.is_empty()) {
        let verdict =
            if more.iter().any(|one| verdict(one) == Verdict::Wrong) { Verdict::Wrong } else { Verdict::Note };
        checks.add(NAME, verdict, format!("{} more: `bellbird connection list` shows them", more.len()));
    }
}

async fn check_syncs(checks: &mut Checks, settings: &Settings, storage: &Storage) {
    const NAME: &str = "syncs";
    if !settings.sync.enabled {
        let detail = "sync.enabled is false: nothing is synced but by `bellbird connection sync`";
        checks.add(NAME, Verdict::Note, detail);
    }
    let overview = match storage.sync_overview(Timestamp::now()).await {
        Ok(overview) => overview,
        Err(error) => return checks.add(NAME, Verdict::Wrong, error.to_string()),
    };
    for (connection, attempts, problem) in overview.problems.iter().take(SHOWN_MAX) {
        let detail = format!("connection {connection}: {problem}. Tried {}", times(*attempts));
        checks.add(NAME, judge(*attempts), detail);
    }
    let shown = u64::try_from(overview.problems.len().min(SHOWN_MAX)).unwrap_or(u64::MAX);
    // Those that failed most often come first: the next one tells the worst of the rest.
    if let Some((_, attempts, _)) = overview.problems.get(SHOWN_MAX) {
        let more = overview.failing.saturating_sub(shown);
        checks.add(NAME, judge(*attempts), format!("{more} more fail: `bellbird connection show ID` says why"));
    }
    if overview.failing == 0 {
        let next =
            overview.next.map_or_else(String::new, |next| format!("; the next one at {}", output::when(Some(next))));
        checks.add(NAME, Verdict::Ok, format!("{} due, {} under way{next}", overview.due, overview.under_way));
    }
}

async fn check_webhooks(checks: &mut Checks, settings: &Settings, storage: &Storage) {
    const NAME: &str = "webhooks";
    if settings.webhooks.allow_loopback {
        let detail = "webhooks.allow_loopback is true: for development only, as endpoints can reach this machine";
        checks.add(NAME, Verdict::Note, detail);
    }
    let now = Timestamp::now();
    let overview = match storage.delivery_overview(now).await {
        Ok(overview) => overview,
        Err(error) => return checks.add(NAME, Verdict::Wrong, error.to_string()),
    };
    if overview.disabled > 0 {
        let detail = format!(
            "endpoints that are disabled: {}. `bellbird webhook list` says why, `bellbird webhook enable ID` enables them",
            overview.disabled
        );
        checks.add(NAME, Verdict::Note, detail);
    }
    if overview.failing > 0 {
        let detail = format!(
            "endpoints that only fail: {}. `bellbird webhook list` says since when, `bellbird webhook deliveries ID` why",
            overview.failing
        );
        checks.add(NAME, Verdict::Note, detail);
    }
    match overview.oldest_due.filter(|oldest| now.duration_since(*oldest) > LATE) {
        Some(oldest) => {
            let since = output::when(Some(oldest));
            let detail = format!("{} due, the oldest since {since}: is the service running?", overview.due);
            checks.add(NAME, Verdict::Wrong, detail);
        }
        None => {
            let detail = format!(
                "{} due, {} later",
                overview.due,
                (overview.pending + overview.waiting).saturating_sub(overview.due)
            );
            checks.add(NAME, Verdict::Ok, detail);
        }
    }
}

fn judge(attempts: u32) -> Verdict {
    if attempts < ATTEMPTS_FINE { Verdict::Note } else { Verdict::Wrong }
}

fn times(attempts: u32) -> String {
    if attempts == 1 { "once".to_owned() } else { format!("{attempts} times") }
}
