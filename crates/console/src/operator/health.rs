//! `/operator/health`: what the instances of the installation do together: providers, connections,
//! jobs, and what is cheap of the checks of `bellbird doctor`.

use std::collections::BTreeMap;

use askama::Template;
use bellbird_domain::ConnectionStatus;
use bellbird_providers::registry::provider_title;
use bellbird_storage::{FailingJob, Instance, JobCounts, ProviderCalls, StorageError, job_kinds};
use http::StatusCode;
use jiff::SignedDuration;

use super::checks::{self, Check, is_overdue};
use super::{Operator, status_text, users};
use crate::error_page::PageResult;
use crate::list_query::ListQuery;
use crate::pages::{LocalTime, SignedInFrame, When, count, page_response};
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
    checks: Vec<Check>,
    providers: Vec<ProviderRow>,
    jobs: Vec<JobRow>,
    failing: Vec<FailingRow>,
    instances: Vec<InstanceRow>,
}

struct ProviderRow {
    title: String,
    is_good: bool,
    status: &'static str,
    /// Such as `4310 calls, 12 failed`.
    calls: String,
    succeeded: Option<When>,
    last_failure: Option<(When, String)>,
    /// Calls that failed since the last one that succeeded.
    failures: u64,
    /// Such as `1 consent withdrawn`, with the query of the list of users who have these.
    connections: Vec<(String, String)>,
    /// Consents that end within 14 days.
    ending: u64,
}

struct JobRow {
    kind: &'static str,
    /// Such as `2 due, 1 running`.
    state: String,
    is_good: bool,
    /// When the next one is due, or since when the oldest is, behind a word for it.
    next: Option<(&'static str, When)>,
}

struct FailingRow {
    job: FailingJob,
    kind: &'static str,
    /// Its title. Empty: none.
    provider: String,
    tried: String,
    next: Option<When>,
}

struct InstanceRow {
    instance: Instance,
    started: When,
    seen: When,
    clock: String,
}

/// `GET /operator/health`
pub(super) async fn show(Operator(session): Operator) -> PageResult {
    let (storage, zone) = (session.storage(), session.zone());
    let mut jobs = storage.jobs().count(zone.now).await?;
    jobs.retain(|counts| bellbird_connections::job_kinds().any(|kind| kind == counts.kind));
    let failing = storage.jobs().list_failing(FAILING_SHOWN_MAX).await?;
    let seen_at = storage.instances().database_time(zone.now).await?;
    let seen = LocalTime::of(session.caller.timezone.iana_name(), seen_at);
    let instances = storage.instances().list(seen_at).await?;
    let page = HealthPage {
        frame: &session.frame("/operator/health"),
        checks: checks::list(&session, &instances, &zone).await?,
        providers: providers(&session, &instances, &zone).await?,
        jobs: jobs
            .into_iter()
            .map(|counts| job_row(counts, &zone))
            .collect(),
        failing: failing
            .into_iter()
            .map(|job| FailingRow {
                kind: job_words(&job.kind),
                tried: format!("tried {}", count(job.attempts.into(), "time")),
                provider: provider_title(&job.provider).to_owned(),
                next: job.next_attempt_at.map(|at| zone.when(at)),
                job,
            })
            .collect(),
        instances: instances
            .into_iter()
            .map(|instance| InstanceRow {
                started: seen.when(instance.started_at),
                seen: seen.when(instance.last_seen_at),
                clock: match (storage.kind(), instance.clock_ahead_ms) {
                    // It has no clock of its own.
                    ("sqlite", _) => String::new(),
                    (_, ahead @ 0..) => format!("clock {ahead} ms ahead of the database's"),
                    (_, behind) => {
                        format!("clock {} ms behind the database's", behind.unsigned_abs())
                    }
                },
                instance,
            })
            .collect(),
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
    zone: &LocalTime,
) -> Result<Vec<ProviderRow>, StorageError> {
    let connections = console.storage().connections();
    let mut counts: BTreeMap<String, Vec<(ConnectionStatus, u64)>> = BTreeMap::new();
    for counted in connections.count().await? {
        counts
            .entry(counted.provider)
            .or_default()
            .push((counted.status, counted.count));
    }
    let ending = connections.count_ending(zone.now).await?;
    let mut calls = calls_of_all(console, instances);
    for name in calls.keys() {
        counts.entry(name.clone()).or_default();
    }
    let row = |(name, mut counts): (String, Vec<(ConnectionStatus, u64)>)| {
        counts.sort_by_key(|(status, _)| status.as_str());
        let calls = calls.remove(&name);
        let (is_good, status) = match &calls {
            None => (false, "not configured"),
            Some(calls) if calls.is_paused => (false, "calls paused, because nearly all failed"),
            Some(calls) if calls.failed_in_a_row > 0 => (false, "last call failed"),
            Some(calls) if calls.succeeded_at.is_none() => (true, "not called yet"),
            Some(_) => (true, "last call succeeded"),
        };
        let calls = calls.unwrap_or_default();
        ProviderRow {
            title: provider_title(&name).to_owned(),
            is_good,
            status,
            calls: match (calls.calls, calls.failed) {
                (0, _) => "no calls yet".to_owned(),
                (all, 0) => format!("{}, none failed", count(all, "call")),
                (all, failed) => format!("{}, {failed} failed", count(all, "call")),
            },
            succeeded: calls.succeeded_at.map(|at| zone.when(at)),
            failures: calls.failed_in_a_row,
            last_failure: calls
                .failed_at
                .zip(calls.error)
                .map(|(at, error)| (zone.when(at), error)),
            connections: counts
                .into_iter()
                .map(|(status, count)| {
                    let filters = [("status", status.as_str()), ("provider", name.as_str())];
                    let query = ListQuery::parse(None, &users::FILTERS).with(&filters);
                    (format!("{count} {}", status_text(status)), query)
                })
                .collect(),
            ending: ending.get(&name).copied().unwrap_or_default(),
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

fn job_row(counts: JobCounts, zone: &LocalTime) -> JobRow {
    let is_overdue = is_overdue(&counts, zone.now);
    let states = [
        (counts.due, if is_overdue { "overdue" } else { "due" }),
        (counts.running, "running"),
        (counts.waiting, "later"),
        (counts.failing, "failing"),
    ];
    let states = states.iter().filter(|(number, _)| *number > 0);
    let states: Vec<_> = states
        .map(|(number, name)| format!("{number} {name}"))
        .collect();
    JobRow {
        kind: job_words(&counts.kind),
        state: match &states[..] {
            [] => "nothing to do".to_owned(),
            states => states.join(", "),
        },
        is_good: !is_overdue && counts.failing == 0,
        next: counts
            .next
            .filter(|_| is_overdue || (counts.due == 0 && counts.running == 0))
            .map(|at| {
                let mut when = zone.when(at);
                if is_overdue {
                    return ("first due", when);
                }
                if at.duration_since(zone.now) < DUE_NOW_WITHIN {
                    "now".clone_into(&mut when.text);
                    return ("", when);
                }
                ("next", when)
            }),
    }
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
            let row = job_row(
                JobCounts {
                    kind: "cleanup".to_owned(),
                    due,
                    running: 0,
                    waiting: 1,
                    failing: 0,
                    next: Some(now + SignedDuration::from_secs(seconds)),
                },
                &zone,
            );
            let (shown, at) = row.next.unwrap();
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
