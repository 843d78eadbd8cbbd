//! The list of all metrics. Each crate records its own; a test compares their names with this list,
//! the list with docs/monitoring.md, and both with a scrape.

use metrics::{describe_counter, describe_gauge, describe_histogram};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    /// In seconds.
    Histogram,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// The help text of `/metrics`.
    pub help: &'static str,
}

const fn metric(
    kind: Kind,
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        labels,
        help,
    }
}

use Kind::{Counter, Gauge, Histogram};

#[rustfmt::skip]
pub const METRICS: &[Metric] = &[
    metric(Counter, "bellbird_requests_total", &["route", "status"], "Requests, by route and class of status."),
    metric(Histogram, "bellbird_request_seconds", &["route"], "Time until the response began."),
    metric(Counter, "bellbird_exports_total", &["route", "end"], "Files that began to be sent, by how they ended."),
    metric(Counter, "bellbird_provider_calls_total", &["provider", "operation", "outcome"],
        "Calls to providers, retries included."),
    metric(Counter, "bellbird_provider_calls_rejected_total", &["provider", "reason"],
        "Provider calls that were not made, to keep within a limit."),
    metric(Histogram, "bellbird_provider_call_seconds", &["provider", "operation"], "Duration of calls to providers."),
    metric(Counter, "bellbird_dropped_rows_total", &["provider", "reason"], "Provider rows that could not be shown."),
    metric(Counter, "bellbird_unreadable_rows_total", &["provider", "reason"],
        "Provider rows that could not be read, each time."),
    metric(Counter, "bellbird_unknown_categories_total", &["provider"], "Provider categories outside the sixteen."),
    metric(Counter, "bellbird_provider_events_total", &["provider", "outcome"], "Webhooks received from providers."),
    metric(Counter, "bellbird_console_requests_total", &["route", "status"],
        "Requests to the console, by route and class of status."),
    metric(Counter, "bellbird_console_sign_ins_total", &["by", "outcome"], "Sign-ins to the console that ended."),
    metric(Counter, "bellbird_consent_sessions_total", &["outcome"], "Consent sessions that ended."),
    metric(Gauge, "bellbird_connections", &["provider", "status"], "Connections, by status."),
    metric(Gauge, "bellbird_consents_ending", &["provider"], "Active connections whose consent ends within 14 days."),
    metric(Gauge, "bellbird_jobs", &["kind", "state"], "Jobs that are due, running or failing."),
    metric(Counter, "bellbird_job_runs_total", &["kind", "outcome"], "Runs of jobs by this instance."),
    metric(Gauge, "bellbird_webhook_deliveries", &["state"], "Webhook deliveries that are not finished."),
    metric(Gauge, "bellbird_webhook_lateness_seconds", &[], "How long the oldest due delivery has been due."),
    metric(Counter, "bellbird_webhook_attempts_total", &["outcome"], "Delivery attempts of this instance."),
    metric(Gauge, "bellbird_webhook_endpoints", &["state"],
        "Webhook endpoints that are failing, or disabled by the service."),
    metric(Counter, "bellbird_emails_total", &["outcome"], "E-mails of this instance, by whether they were sent."),
    metric(Gauge, "bellbird_shared_store_available", &[], "1 if Valkey responds, else 0."),
    metric(Gauge, "bellbird_database_available", &[],
        "1 if this instance's regular writes to the database succeed, else 0."),
    metric(Gauge, "bellbird_database_write_age_seconds", &[], "How long ago this instance last wrote to the database."),
    metric(Gauge, "bellbird_database_connections", &["state"],
        "Connections of this instance to PostgreSQL, and requests that wait for one."),
    metric(Gauge, "bellbird_instances", &[], "Instances that run on this database."),
    metric(Gauge, "bellbird_backup_age_seconds", &[],
        "Time since the last `bellbird backup`. Without one, since the SQLite database was created."),
    metric(Gauge, "bellbird_build_info", &["version", "commit"], "1, with the version and commit of this instance."),
    metric(Gauge, "bellbird_tasks", &[], "Tasks of this instance that have not ended."),
    metric(Gauge, "process_resident_memory_bytes", &[], "Memory of this process."),
    metric(Counter, "process_cpu_seconds_total", &[], "Processor time of this process, in whole seconds."),
    metric(Gauge, "process_open_fds", &[], "Open files and sockets of this process."),
    metric(Counter, "bellbird_log_lines_dropped_total", &[], "Log lines dropped because the log was not read."),
];

/// Gives the recorder the help texts.
pub(super) fn describe() {
    for &Metric {
        name, kind, help, ..
    } in METRICS
    {
        match kind {
            Counter => describe_counter!(name, help),
            Gauge => describe_gauge!(name, help),
            Histogram => describe_histogram!(name, help),
        }
    }
}
