//! The table of paths. Each has a class, which determines its rate limit, a name for the access log, and metrics.

use std::sync::OnceLock;

use metrics::{Counter, Histogram};

pub(crate) const DOCS_SCRIPT_PATH: &str = "/docs/page.js";
pub(crate) const DOCS_STYLE_PATH: &str = "/docs/page.css";
pub(crate) const DOCS_LOGO_PATH: &str = "/docs/logo.svg";

pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) class: Class,
    metrics: OnceLock<RouteMetrics>,
}

/// A route's metric handles, registered once.
pub(crate) struct RouteMetrics {
    /// Indexed by the first digit of the status, minus 1.
    pub(crate) requests: [Counter; 5],
    pub(crate) seconds: Histogram,
}

impl Route {
    pub(crate) fn metrics(&self) -> &RouteMetrics {
        self.metrics.get_or_init(|| RouteMetrics {
            requests: ["1xx", "2xx", "3xx", "4xx", "5xx"]
                .map(|status| metrics::counter!("bellbird_requests_total", "route" => self.path, "status" => status)),
            seconds: metrics::histogram!("bellbird_request_seconds", "route" => self.path),
        })
    }
}

/// The kind of path, which determines its rate limit and plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Needs no key and has no limit.
    Open,
    /// Served from the database.
    Metadata,
    /// Read from providers, cached.
    Balances,
    /// Read from providers, row by row.
    Live,
    /// Read from providers; needs the Professional plan.
    Brokerage,
    /// A path under `/v1` that does not exist. It needs a key, so that 401 comes before 404.
    Unknown,
}

const fn route(path: &'static str, class: Class) -> Route {
    Route { path, class, metrics: OnceLock::new() }
}

static ROUTES: [Route; 14] = [
    route("/health", Class::Open),
    route("/v1/connections", Class::Metadata),
    route("/v1/accounts", Class::Metadata),
    route("/v1/balances", Class::Balances),
    route("/v1/categories", Class::Metadata),
    route("/v1/transactions", Class::Live),
    route("/v1/holdings", Class::Brokerage),
    route("/v1/trades", Class::Brokerage),
    route("/openapi.json", Class::Open),
    route("/openapi.yaml", Class::Open),
    route("/docs", Class::Open),
    route(DOCS_SCRIPT_PATH, Class::Open),
    route(DOCS_STYLE_PATH, Class::Open),
    route(DOCS_LOGO_PATH, Class::Open),
];
static UNKNOWN_OPEN: Route = route("(none)", Class::Open);
static UNKNOWN_GUARDED: Route = route("(none)", Class::Unknown);

/// Every path, in the order of the reference page.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    ROUTES.iter().map(|route| route.path)
}

/// Paths that do not exist share one route name, so that clients cannot create metric labels.
pub(crate) fn route_of(path: &str) -> &'static Route {
    let guarded = path == "/v1" || path.starts_with("/v1/");
    let unknown = if guarded { &UNKNOWN_GUARDED } else { &UNKNOWN_OPEN };
    ROUTES.iter().find(|route| route.path == path).unwrap_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_paths_need_a_key_below_v1_only() {
        assert_eq!(route_of("/v1").class, Class::Unknown);
        assert_eq!(route_of("/v1/accounts/").class, Class::Unknown);
        assert_eq!(route_of("/v1x").class, Class::Open);
    }
}
