//! Starts the log and the metrics recorder.
//!
//! The log goes to standard error; commands print their results on standard output. Only Bellbird's own crates log
//! below `warn`: HTTP and database libraries log headers and queries at `debug` and `trace`, which contain keys.

mod json;
mod queue;

use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::background::JOB_STATES;
use crate::config::{Log, LogFormat, LogLevel, terminal};
use bellbird_connections::PROVIDER_EVENTS_METRIC;
use queue::LineQueue;

/// Histograms keep raw samples until upkeep aggregates them.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Upper bounds of duration buckets, in seconds: fine for cached responses, then coarse up to the request deadline.
const DURATION_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// Keeps the log running. Dropping it writes the queued lines.
#[must_use]
pub struct LogGuard(#[expect(dead_code, reason = "held for its Drop")] queue::QueueGuard);

/// Starts the log. A second call in the same process leaves the first log in place.
pub fn start_log(log: &Log) -> LogGuard {
    let (lines, guard) = LineQueue::start(std::io::stderr());
    let as_text = match log.format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => terminal::stderr_is_terminal(),
    };
    let layer = if as_text {
        fmt::layer().with_writer(lines).with_ansi(terminal::stderr_wants_colour()).boxed()
    } else {
        fmt::layer().with_writer(lines).with_ansi(false).event_format(json::JsonLines).boxed()
    };
    let _ = tracing_subscriber::registry().with(layer.with_filter(filter(log.level))).try_init();
    LogGuard(guard)
}

fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // The hickory crates log the host names of endpoints when a name server fails.
    Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("hickory", LevelFilter::OFF)
        .with_target("bellbird", level)
}

/// Installs the metrics recorder and runs its upkeep until `stop`. Fails if this process already has a recorder.
pub fn start_metrics(stop: CancellationToken) -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &DURATION_BUCKETS)?
        .install_recorder()?;
    describe_metrics();
    let upkeep = handle.clone();
    tokio::spawn(async move {
        while !stop.is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(UPKEEP_INTERVAL) => upkeep.run_upkeep(),
                () = stop.cancelled() => {}
            }
        }
    });
    Ok(handle)
}

/// Help texts of `/metrics`. docs/hosting.md lists all metrics.
fn describe_metrics() {
    metrics::describe_counter!("bellbird_requests_total", "Requests, by route and status class.");
    metrics::describe_histogram!("bellbird_request_seconds", "Time to the first byte of the response, by route.");
    metrics::describe_counter!(
        "bellbird_provider_calls_total",
        "Calls to providers, retries included, by operation and outcome."
    );
    metrics::describe_histogram!("bellbird_provider_call_seconds", "Duration of calls to providers, by operation.");
    metrics::describe_counter!("bellbird_dropped_rows_total", "Provider rows that could not be mapped, by reason.");
    metrics::describe_counter!(
        "bellbird_unknown_categories_total",
        "Provider categories outside the sixteen known ones."
    );
    metrics::describe_counter!(PROVIDER_EVENTS_METRIC, "Webhooks received from providers, by outcome.");
    metrics::describe_gauge!(JOB_STATES, "Jobs by kind and state.");
}
