//! `/operator/health`: providers, connections, jobs and instances.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use bellbird_connections::job_kinds;
use bellbird_domain::ConnectionStatus;
use bellbird_storage::{FailingJob, Instance, JobCounts, StorageError};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

use super::{Operator, status_text};
use crate::error_page;
use crate::pages::{LocalTime, SignedInFrame, page_response};
use crate::state::Console;

/// A running service runs due jobs within seconds.
const OVERDUE_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// Failing jobs that are listed individually.
const FAILING_SHOWN_MAX: u32 = 20;

#[derive(Template)]
#[template(path = "operator_health.html")]
struct HealthPage<'a> {
    frame: &'a SignedInFrame<'a>,
    providers: Vec<ProviderRow>,
    jobs: Vec<JobRow>,
    failing: Vec<FailingRow>,
    instances: Vec<InstanceRow>,
    has_worker: bool,
}

struct ProviderRow {
    title: String,
    is_good: bool,
    status: &'static str,
    /// The last call of this instance that succeeded. None: none since its start.
    succeeded: Option<String>,
    /// Calls of this instance that failed since then.
    failures: u64,
    last_failure: Option<(String, String)>,
    /// When it last gave data, to any instance.
    refreshed: Option<String>,
    connections: Vec<(&'static str, u64)>,
    /// Consents that end within 14 days.
    ending: u64,
}

struct JobRow {
    kind: String,
    waiting: u64,
    due: u64,
    running: u64,
    failing: u64,
    /// Since when the oldest is due, if that is long ago.
    overdue: Option<String>,
    /// When the next one is due.
    next: Option<String>,
}

struct FailingRow {
    kind: String,
    provider: String,
    subject: String,
    attempts: u32,
    error: String,
    next: Option<String>,
}

struct InstanceRow {
    name: String,
    version: String,
    roles: String,
    started: String,
    seen: String,
    clock_ahead_ms: i64,
}

/// `GET /operator/health`
pub(super) async fn show(State(console): State<Console>, Operator(session): Operator) -> Response {
    let frame = session.frame(&console, "/operator/health");
    match load(&console, &frame, session.now, &session.zone()).await {
        Ok(page) => page_response(StatusCode::OK, &page),
        Err(error) => error_page::storage_error(&console, &error),
    }
}

async fn load<'a>(
    console: &Console,
    frame: &'a SignedInFrame<'a>,
    now: Timestamp,
    zone: &LocalTime,
) -> Result<HealthPage<'a>, StorageError> {
    let storage = console.storage();
    let mut jobs = storage.jobs().count(now).await?;
    jobs.retain(|counts| job_kinds().any(|kind| kind == counts.kind));
    let failing = storage.jobs().list_failing(FAILING_SHOWN_MAX).await?;
    let instances = storage
        .instances()
        .list(storage.instances().database_time(now).await?)
        .await?;
    Ok(HealthPage {
        frame,
        providers: providers(console, now, zone).await?,
        jobs: jobs
            .into_iter()
            .map(|counts| job_row(counts, now, zone))
            .collect(),
        failing: failing
            .into_iter()
            .map(|job| failing_row(job, zone))
            .collect(),
        has_worker: instances
            .iter()
            .any(|instance| instance.roles.iter().any(|role| role == "worker")),
        instances: instances
            .iter()
            .map(|instance| instance_row(instance, zone))
            .collect(),
    })
}

/// The configured ones, and others that have connections.
async fn providers(
    console: &Console,
    now: Timestamp,
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
    let (ending, refreshed) = (
        connections.count_ending(now).await?,
        connections.last_refreshed().await?,
    );
    let mut health: BTreeMap<_, _> = console
        .inner
        .connections
        .provider_health()
        .into_iter()
        .collect();
    for name in health.keys() {
        counts.entry((*name).to_owned()).or_default();
    }
    let row = |(name, mut counts): (String, Vec<(ConnectionStatus, u64)>)| {
        counts.sort_by_key(|(status, _)| status.as_str());
        let health = health.remove(&*name);
        let (is_good, status) = match &health {
            None => (false, "not configured"),
            Some(health) if health.is_breaker_open => {
                (false, "calls paused, because nearly all failed")
            }
            Some(health) if health.failures > 0 => (false, "last call failed"),
            Some(health) if health.succeeded_at.is_none() => {
                (true, "not called by this instance yet")
            }
            Some(_) => (true, "last call succeeded"),
        };
        let health = health.unwrap_or_default();
        ProviderRow {
            title: console
                .inner
                .connections
                .links()
                .provider_title(&name)
                .to_owned(),
            is_good,
            status,
            succeeded: health.succeeded_at.map(|at| zone.at(at)),
            failures: health.failures,
            last_failure: health.last_failure.map(|(at, error)| (zone.at(at), error)),
            refreshed: refreshed.get(&name).map(|at| zone.at(*at)),
            connections: counts
                .into_iter()
                .map(|(status, count)| (status_text(status), count))
                .collect(),
            ending: ending.get(&name).copied().unwrap_or_default(),
        }
    };
    Ok(counts.into_iter().map(row).collect())
}

fn job_row(counts: JobCounts, now: Timestamp, zone: &LocalTime) -> JobRow {
    let JobCounts {
        kind,
        due,
        running,
        failing,
        waiting,
        next,
    } = counts;
    let is_overdue = due > 0 && next.is_some_and(|next| now.duration_since(next) > OVERDUE_AFTER);
    JobRow {
        kind,
        waiting,
        due,
        running,
        failing,
        overdue: next.filter(|_| is_overdue).map(|at| zone.at(at)),
        next: next
            .filter(|_| due == 0 && running == 0)
            .map(|at| zone.at(at)),
    }
}

fn failing_row(job: FailingJob, zone: &LocalTime) -> FailingRow {
    let FailingJob {
        kind,
        provider,
        subject,
        attempts,
        last_error,
        next_attempt_at,
    } = job;
    let next = next_attempt_at.map(|at| zone.at(at));
    FailingRow {
        kind,
        provider,
        subject,
        attempts,
        error: last_error,
        next,
    }
}

fn instance_row(instance: &Instance, zone: &LocalTime) -> InstanceRow {
    InstanceRow {
        name: instance.to_string(),
        version: instance.version.clone(),
        roles: instance.roles.join(", "),
        started: zone.at(instance.started_at),
        seen: zone.at(instance.last_seen_at),
        clock_ahead_ms: instance.clock_ahead_ms,
    }
}
