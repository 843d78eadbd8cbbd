//! Starts the log and the metrics recorder.
//!
//! The log goes to standard error; commands print their results on standard output. Only Bellbird's
//! own crates log below `warn`: HTTP and database libraries log headers and queries at `debug` and
//! `trace`, which contain keys.

mod json;
pub mod metrics;
pub mod traces;
mod writer;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use parking_lot::RwLock;
use rustix::param::{clock_ticks_per_second, page_size};
use tokio_util::sync::CancellationToken;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, WorkerGuard};
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, fmt};

use crate::config::{Log, LogFormat, LogLevel, terminal};
use crate::instances::COMMIT;
use traces::Traces;

/// A gauge that nothing has set for this long vanishes, because a number that cannot be counted any
/// more would otherwise stay at its last value. Longer than the 15 seconds from one count to the
/// next, and shorter than the lease of the instance that counts.
const GAUGE_TIMEOUT: Duration = Duration::from_secs(40);

/// Histograms keep raw samples until upkeep aggregates them.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Upper bounds of duration buckets, in seconds: fine for cached responses, then coarse up to the
/// request deadline.
const DURATION_BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0,
];

/// Keeps the log running. Dropping it writes the queued lines.
#[must_use]
pub struct LogGuard {
    _worker: WorkerGuard,
    dropped: ErrorCounter,
    /// Has the level of the running log.
    pub filter: AdjustableFilter,
}

/// Makes panics say only where they happened. Rust's own message holds values, which may be a row's
/// text.
pub fn hide_panic_messages() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(|place| format!("{}:{}", place.file(), place.line()))
            .unwrap_or_default();
        if tracing::dispatcher::has_been_set() {
            tracing::error!(place, "panicked");
        } else {
            let _ = writeln!(std::io::stderr(), "bellbird: panicked at {place}");
        }
    }));
}

/// Starts the log, and sends traces if they are on. A second call in the same process leaves the
/// first log in place.
pub fn start_log(log: &Log, traces: Option<&Traces>) -> LogGuard {
    let (lines, worker) = writer::start(std::io::stderr());
    let dropped = lines.error_counter();
    let as_text = match log.format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => terminal::stderr_is_terminal(),
    };
    let layer = fmt::layer().with_writer(lines);
    let layer = if as_text {
        layer.with_ansi(terminal::stderr_wants_colour()).boxed()
    } else {
        layer
            .with_ansi(false)
            .event_format(json::JsonLines)
            .fmt_fields(json::JsonLines)
            .boxed()
    };
    let filter = AdjustableFilter(Arc::new(RwLock::new(targets(log.level))));
    let _ = if let Some(traces) = traces {
        let spans = tracing_opentelemetry::layer()
            .with_tracer(traces.tracer())
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(|metadata| {
                metadata.is_span() && metadata.target().starts_with("bellbird")
            }));
        tracing_subscriber::registry()
            .with(layer.with_filter(filter.clone()))
            .with(spans)
            .try_init()
    } else {
        // One filter for all is cheaper than one for each layer: what it decides about a line is
        // cached.
        tracing_subscriber::registry()
            .with(layer)
            .with(filter.clone())
            .try_init()
    };
    LogGuard {
        _worker: worker,
        dropped,
        filter,
    }
}

/// Decides which lines and spans are kept.
///
/// `tracing` asks once for each place in the code, and again when the level changes, so a request
/// pays nothing for it. The `reload` of tracing-subscriber takes a lock for each step of each span.
#[derive(Clone)]
pub struct AdjustableFilter(Arc<RwLock<Targets>>);

impl AdjustableFilter {
    pub fn set(&self, level: LogLevel) {
        *self.0.write() = targets(level);
        tracing::callsite::rebuild_interest_cache();
    }
}

impl<S: Subscriber> Layer<S> for AdjustableFilter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Layer::<S>::register_callsite(&*self.0.read(), metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        Layer::<S>::enabled(&*self.0.read(), metadata, context)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Layer::<S>::max_level_hint(&*self.0.read())
    }
}

impl<S> Filter<S> for AdjustableFilter {
    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        Filter::<S>::callsite_enabled(&*self.0.read(), metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        Filter::<S>::enabled(&*self.0.read(), metadata, context)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Filter::<S>::max_level_hint(&*self.0.read())
    }
}

fn targets(level: LogLevel) -> Targets {
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

/// Installs the metrics recorder and runs its upkeep until `stop`. Fails if this process already
/// has a recorder.
pub fn start_metrics(
    log: &LogGuard,
    stop: CancellationToken,
) -> Result<PrometheusHandle, BuildError> {
    let handle = recorder(GAUGE_TIMEOUT)?.install_recorder()?;
    metrics::describe();
    let (upkeep, dropped) = (handle.clone(), log.dropped.clone());
    tokio::spawn(async move {
        while !stop.is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(UPKEEP_INTERVAL) => upkeep.run_upkeep(),
                () = stop.cancelled() => {}
            }
            let lines = u64::try_from(dropped.dropped_lines()).unwrap_or(u64::MAX);
            ::metrics::counter!("bellbird_log_lines_dropped_total").absolute(lines);
        }
    });
    Ok(handle)
}

fn recorder(gauge_timeout: Duration) -> Result<PrometheusBuilder, BuildError> {
    let builder = PrometheusBuilder::new().idle_timeout(MetricKindMask::GAUGE, Some(gauge_timeout));
    builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &DURATION_BUCKETS)
}

/// Sets what a scrape finds out: which build this is, and what the process takes. Linux has the
/// latter.
pub fn set_process_metrics() {
    ::metrics::gauge!("bellbird_build_info", "version" => env!("CARGO_PKG_VERSION"), "commit" => COMMIT).set(1);
    if let Some(pages) = field_of("/proc/self/statm", 1) {
        ::metrics::gauge!("process_resident_memory_bytes").set(to_f64(pages * page_size() as u64));
    }
    // The name of the program, which comes second, has no space.
    if let (Some(user), Some(system)) = (
        field_of("/proc/self/stat", 13),
        field_of("/proc/self/stat", 14),
    ) {
        ::metrics::counter!("process_cpu_seconds_total")
            .absolute((user + system) / clock_ticks_per_second());
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        ::metrics::gauge!("process_open_fds").set(to_f64(files.count() as u64));
    }
}

/// A number of a file whose fields spaces separate.
fn field_of(file: &str, index: usize) -> Option<u64> {
    std::fs::read_to_string(file)
        .ok()?
        .split(' ')
        .nth(index)?
        .parse()
        .ok()
}

/// A gauge is a float, which holds these numbers exactly: no process has 2^53 bytes.
pub(crate) fn to_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauge_that_nothing_sets_vanishes_and_a_counter_stays() {
        let recorder = recorder(Duration::from_nanos(1)).unwrap().build_recorder();
        let handle = recorder.handle();
        ::metrics::with_local_recorder(&recorder, || {
            ::metrics::gauge!("bellbird_jobs").set(1);
            ::metrics::counter!("bellbird_requests_total").increment(1);
        });
        assert!(handle.render().contains("bellbird_jobs 1"));
        let later = handle.render();
        assert!(
            !later.contains("bellbird_jobs 1") && later.contains("bellbird_requests_total 1"),
            "{later}"
        );
    }
}
