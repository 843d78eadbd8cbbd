//! The metrics of each route, whose handles are registered once.

use std::collections::HashMap;
use std::time::Duration;

use metrics::{Counter, Histogram};
use parking_lot::RwLock;

/// The name of paths that do not exist, in log and metrics: clients cannot create labels.
pub(crate) const UNKNOWN_ROUTE: &str = "(none)";

/// By the name of the route.
#[derive(Default)]
pub(crate) struct RouteMetrics(RwLock<HashMap<String, Handles>>);

struct Handles {
    /// Indexed by the first digit of the status, minus 1.
    requests: [Counter; 5],
    seconds: Histogram,
}

impl RouteMetrics {
    pub(crate) fn record(&self, route: &str, status: u16, elapsed: Duration) {
        if let Some(handles) = self.0.read().get(route) {
            return handles.record(status, elapsed);
        }
        let handles = Handles::register(route);
        handles.record(status, elapsed);
        self.0.write().insert(route.to_owned(), handles);
    }
}

impl Handles {
    fn register(route: &str) -> Self {
        let name = || route.to_owned();
        Self {
            requests: ["1xx", "2xx", "3xx", "4xx", "5xx"].map(|status| {
                metrics::counter!("bellbird_requests_total", "route" => name(), "status" => status)
            }),
            seconds: metrics::histogram!("bellbird_request_seconds", "route" => name()),
        }
    }

    fn record(&self, status: u16, elapsed: Duration) {
        self.requests[usize::from(status / 100).clamp(1, 5) - 1].increment(1);
        self.seconds.record(elapsed);
    }
}
