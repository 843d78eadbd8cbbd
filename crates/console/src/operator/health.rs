//! `/operator/health`: what the instances of the installation do together: providers, connections,
//! jobs, and what is cheap of the checks of `bellbird doctor`.

use std::collections::BTreeMap;

use askama::Template;
use bellbird_domain::ConnectionStatus;
use bellbird_management::health;
use bellbird_storage::{
    ConnectionCount, FailingJob, Instance, JobCounts, ProviderCalls, StorageError, job_kinds,
};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

use super::checks::{self, Check};
use super::{Operator, users};
use crate::error_page::PageResult;
use crate::list_query::ListQuery;
use crate::pages::{LocalTime, SignedInFrame, When, page_response};
use crate::state::Console;

/// Failing jobs that are listed individually.
const FAILING_SHOWN_MAX: u32 = 20;
/// What is due within this time is due now, as the page is read.
const DUE_NOW_WITHIN: SignedDuration = SignedDuration::from_secs(45);
const OTHER_JOB: &str = "Job of another version";

#[derive(Template)]
#[template(path = "operator_health.html")]
struct HealthPage<'a> {
    frame: &'a SignedInFrame<'a>,
    zone: LocalTime,
    checks: Vec<Check>,
    providers: Vec<ProviderRow>,
    jobs: Vec<JobCounts>,
    failing: Vec<FailingJob>,
    instances: Vec<Instance>,
    /// The clock of the database, by which instances are seen.
    seen: LocalTime,
    /// SQLite has no clock of its own.
    has_clock: bool,
}

struct ProviderRow {
    name: String,
    is_configured: bool,
    calls: ProviderCalls,
    connections: Vec<ConnectionCount>,
    /// Consents that end within 14 days.
    ending: u64,
}

impl HealthPage<'_> {
    /// Such as `2 due, 1 running`.
    fn state(&self, counts: &JobCounts) -> String {
        let due = match health::overdue_job(counts, self.zone.now) {
            Some(_) => "overdue",
            None => "due",
        };
        let states = [
            (counts.due, due),
            (counts.running, "running"),
            (counts.waiting, "scheduled"),
            (counts.failing, "failing"),
        ];
        let states = states.iter().filter(|(number, _)| *number > 0);
        let states: Vec<_> = states
            .map(|(number, name)| format!("{number} {name}"))
            .collect();
        match &states[..] {
            [] => "nothing to do".to_owned(),
            states => states.join(", "),
        }
    }
}

impl ProviderRow {
    /// Whether it is good, and why.
    fn status(&self) -> (bool, &'static str) {
        match &self.calls {
            _ if !self.is_configured => (false, "not configured"),
            calls if calls.is_paused => (false, "calls paused, because nearly all failed"),
            calls if calls.failed_in_a_row > 0 => (false, "last call failed"),
            calls if calls.succeeded_at.is_none() => (true, "not called yet"),
            _ => (true, "last call succeeded"),
        }
    }

    /// The query of the list of users who have connections in this state.
    fn users(&self, status: ConnectionStatus) -> String {
        let filters = [
            ("status", status.as_str()),
            ("provider", self.name.as_str()),
        ];
        ListQuery::parse(None, &users::FILTERS).with(&filters)
    }
}

/// `GET /operator/health`
pub(super) async fn show(Operator(session): Operator) -> PageResult {
    let (storage, zone) = (session.storage(), session.zone());
    let jobs = health::jobs(storage, zone.now).await?;
    let seen_at = storage.instances().database_time(zone.now).await?;
    let instances = storage.instances().list(seen_at).await?;
    let connections = storage.connections().count().await?;
    let page = HealthPage {
        frame: &session.frame("/operator/health"),
        checks: checks::list(&session, &instances, &jobs, &connections, zone.now).await?,
        providers: providers(&session, &instances, connections, zone.now).await?,
        zone,
        jobs,
        failing: storage.jobs().list_failing(FAILING_SHOWN_MAX).await?,
        instances,
        seen: LocalTime::of(session.caller.timezone.iana_name(), seen_at),
        has_clock: storage.kind() != "sqlite",
    };
    Ok(page_response(StatusCode::OK, &page))
}

/// The calls of all instances together. Those of this one are from now, the others' from their last
/// renewal.
fn calls_of_all(console: &Console, instances: &[Instance]) -> BTreeMap<String, ProviderCalls> {
    let own = console.storage().holder();
    let mut all = console.connections.provider_calls();
    for instance in instances.iter().filter(|one| Some(one.id) != own) {
        for (name, calls) in &instance.provider_calls {
            let sum = all.remove(name).unwrap_or_default().and(calls.clone());
            all.insert(name.clone(), sum);
        }
    }
    all
}

/// The configured ones, and others that have connections.
async fn providers(
    console: &Console,
    instances: &[Instance],
    connections: Vec<ConnectionCount>,
    now: Timestamp,
) -> Result<Vec<ProviderRow>, StorageError> {
    let mut counts: BTreeMap<String, Vec<ConnectionCount>> = BTreeMap::new();
    for counted in connections {
        let of_provider = counts.entry(counted.provider.clone()).or_default();
        of_provider.push(counted);
    }
    let ending = console.storage().connections().count_ending(now).await?;
    let mut calls = calls_of_all(console, instances);
    for name in calls.keys() {
        counts.entry(name.clone()).or_default();
    }
    let row = |(name, mut connections): (String, Vec<ConnectionCount>)| {
        connections.sort_by_key(|counted| counted.status.as_str());
        ProviderRow {
            is_configured: calls.contains_key(&name),
            calls: calls.remove(&name).unwrap_or_default(),
            ending: ending.get(&name).copied().unwrap_or_default(),
            connections,
            name,
        }
    };
    Ok(counts.into_iter().map(row).collect())
}

/// The kinds of jobs, for people.
fn job_words(kind: &str) -> &'static str {
    match kind {
        job_kinds::REFRESH => "Refresh of a bank",
        job_kinds::SYNC => "Sync",
        job_kinds::REMOVAL => "Removal of a bank",
        job_kinds::USER_REMOVAL => "Removal of a user",
        job_kinds::CONSENT_SESSION => "Linking",
        job_kinds::PROVIDER_USER => "Registration of a user",
        "cleanup" => "Cleanup",
        _ => OTHER_JOB,
    }
}

/// When the next job of a kind is due, or since when the oldest is, behind a word for it.
fn next(counts: &JobCounts, zone: &LocalTime) -> Option<(&'static str, When)> {
    let at = counts.next?;
    let mut when = zone.when(at);
    if health::overdue_job(counts, zone.now).is_some() {
        return Some(("first due", when));
    }
    if counts.due > 0 || counts.running > 0 {
        return None;
    }
    if at.duration_since(zone.now) < DUE_NOW_WITHIN {
        "now".clone_into(&mut when.text);
        return Some(("", when));
    }
    Some(("next", when))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_that_is_due_in_a_moment_is_due_now() {
        let now = "2026-11-20T13:40:00Z".parse().unwrap();
        let zone = LocalTime::of(Some("UTC"), now);
        for (seconds, due, label, text) in [
            (-1, 0, "", "now"),
            (30, 0, "", "now"),
            (3 * 60, 0, "next", "in 3 minutes"),
            (-3600, 1, "first due", "1 hour ago"),
        ] {
            let counts = JobCounts {
                kind: "cleanup".to_owned(),
                due,
                running: 0,
                waiting: 1,
                failing: 0,
                next: Some(now + SignedDuration::from_secs(seconds)),
            };
            let (shown, at) = next(&counts, &zone).unwrap();
            assert_eq!((shown, at.text.as_str()), (label, text));
        }
    }

    #[test]
    fn every_kind_of_job_has_words() {
        for kind in bellbird_connections::job_kinds() {
            assert_ne!(job_words(kind), OTHER_JOB, "{kind}");
        }
    }
}
