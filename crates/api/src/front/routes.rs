//! The tables of paths. Each path has a class, which determines its rate limit, a name for the access log, and metrics.

use std::sync::OnceLock;

use axum::Router;
use axum::response::Response;
use http::Method;
use metrics::{Counter, Histogram};

use crate::front::problem::Problem;

/// A set of paths that speaks one protocol.
pub struct Door {
    pub table: DoorTable,
    pub router: Router,
}

/// What the layers know about a door.
#[derive(Clone, Copy)]
pub struct DoorTable {
    /// Begins the paths of the door, also those that do not exist.
    pub prefix: &'static str,
    pub routes: &'static [Route],
    pub credentials: Credentials,
    /// Words an error of the layers.
    pub deny: fn(Problem) -> Response,
}

/// Where a request carries its API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credentials {
    /// `Authorization: Bearer <key>`
    Bearer,
    /// `Authorization: Basic`, with the key as password. The user name is ignored.
    Basic,
}

/// A path of a door.
pub struct Route {
    /// The last segment may be a parameter, as in `/simplefin/claim/{token}`.
    pub path: &'static str,
    pub class: Class,
    /// `POST` instead of `GET` and `HEAD`.
    pub is_post: bool,
    metrics: OnceLock<RouteMetrics>,
}

/// A route's metric handles, registered once.
pub(crate) struct RouteMetrics {
    /// Indexed by the first digit of the status, minus 1.
    pub(crate) requests: [Counter; 5],
    pub(crate) seconds: Histogram,
}

/// The kind of path, which determines its rate limit and plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
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
    /// Accounts with rows, read from providers; has a limit of its own.
    SimpleFin,
    /// A path under `/v1` that does not exist. It needs a key, so that 401 comes before 404.
    Unknown,
}

/// A path for `GET` and `HEAD`.
#[must_use]
pub const fn route(path: &'static str, class: Class) -> Route {
    Route { path, class, is_post: false, metrics: OnceLock::new() }
}

/// A path for `POST`.
#[must_use]
pub const fn post_route(path: &'static str, class: Class) -> Route {
    Route { path, class, is_post: true, metrics: OnceLock::new() }
}

impl Route {
    pub(crate) fn metrics(&self) -> &RouteMetrics {
        self.metrics.get_or_init(|| RouteMetrics {
            requests: ["1xx", "2xx", "3xx", "4xx", "5xx"]
                .map(|status| metrics::counter!("bellbird_requests_total", "route" => self.path, "status" => status)),
            seconds: metrics::histogram!("bellbird_request_seconds", "route" => self.path),
        })
    }

    pub(crate) fn accepts(&self, method: &Method) -> bool {
        if self.is_post { method == Method::POST } else { matches!(*method, Method::GET | Method::HEAD) }
    }

    fn matches(&self, path: &str) -> bool {
        match self.path.split_once('{') {
            None => self.path == path,
            Some((start, _)) => path.strip_prefix(start).is_some_and(|rest| !rest.is_empty() && !rest.contains('/')),
        }
    }
}

impl DoorTable {
    pub(crate) fn deny(&self, problem: Problem) -> Response {
        (self.deny)(problem)
    }
}

static UNKNOWN_OPEN: Route = route("(none)", Class::Open);
static UNKNOWN_GUARDED: Route = route("(none)", Class::Unknown);

/// All doors, the one for unknown paths first.
pub(crate) struct Doors(pub(crate) Vec<DoorTable>);

impl Doors {
    /// The route of a path and its door. Paths that do not exist share one route name, so that clients cannot create
    /// metric labels.
    pub(crate) fn find(&self, path: &str) -> (&'static Route, &DoorTable) {
        for door in &self.0 {
            if let Some(route) = door.routes.iter().find(|route| route.matches(path)) {
                return (route, door);
            }
        }
        let guarded = is_below(path, "/v1");
        let unknown = if guarded { &UNKNOWN_GUARDED } else { &UNKNOWN_OPEN };
        let mut others = self.0.iter().skip(1);
        (unknown, others.find(|door| is_below(path, door.prefix)).unwrap_or(&self.0[0]))
    }
}

fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    static FIRST: [Route; 1] = [route("/v1/accounts", Class::Metadata)];
    static SECOND: [Route; 2] = [route("/other/list", Class::Live), post_route("/other/claim/{token}", Class::Open)];

    fn doors() -> Doors {
        let table = |prefix, routes| DoorTable {
            prefix,
            routes,
            credentials: Credentials::Bearer,
            deny: |problem| problem.into_response(),
        };
        Doors(vec![table("/v1", &FIRST), table("/other", &SECOND)])
    }

    #[test]
    fn unlisted_paths_need_a_key_below_v1_only() {
        let doors = doors();
        let class = |path| doors.find(path).0.class;
        assert_eq!(class("/v1"), Class::Unknown);
        assert_eq!(class("/v1/accounts"), Class::Metadata);
        assert_eq!(class("/v1/accounts/"), Class::Unknown);
        assert_eq!(class("/v1x"), Class::Open);
        assert_eq!(class("/other/list/2"), Class::Open);
    }

    #[test]
    fn parameter_is_one_segment_and_named_by_its_template() {
        let doors = doors();
        let found = |path| doors.find(path).0.path;
        assert_eq!(found("/other/claim/abc"), "/other/claim/{token}");
        assert_eq!(found("/other/claim/"), "(none)");
        assert_eq!(found("/other/claim/a/b"), "(none)");
    }

    #[test]
    fn unknown_path_belongs_to_the_door_of_its_prefix() {
        let doors = doors();
        let prefix = |path| doors.find(path).1.prefix;
        assert_eq!(prefix("/other"), "/other");
        assert_eq!(prefix("/other/none"), "/other");
        assert_eq!(prefix("/otherwise"), "/v1");
        assert_eq!(prefix("/"), "/v1");
    }

    #[test]
    fn route_accepts_the_methods_that_it_answers() {
        assert!(SECOND[1].accepts(&Method::POST) && !SECOND[1].accepts(&Method::GET));
        assert!(SECOND[0].accepts(&Method::HEAD) && !SECOND[0].accepts(&Method::POST));
    }
}
