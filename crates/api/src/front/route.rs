//! What the log and the metrics call a path, and its methods.

use std::borrow::Cow;
use std::sync::OnceLock;

use http::Method;
use metrics::{Counter, Histogram};

/// A path of an interface.
pub struct Route {
    /// The last segment may be a parameter, as in `/simplefin/claim/{token}`.
    path: Cow<'static, str>,
    /// Where the parameter begins.
    parameter_at: Option<usize>,
    /// `POST` instead of `GET` and `HEAD`.
    is_post: bool,
    /// Whether the body of an error has its code.
    pub(crate) has_codes: bool,
    metrics: OnceLock<RouteMetrics>,
}

/// A route's metric handles, registered once.
pub(crate) struct RouteMetrics {
    /// Indexed by the first digit of the status, minus 1.
    pub(crate) requests: [Counter; 5],
    pub(crate) seconds: Histogram,
}

impl Route {
    pub(crate) fn new(path: Cow<'static, str>, is_post: bool) -> Self {
        Self { parameter_at: path.find('{'), path, is_post, has_codes: false, metrics: OnceLock::new() }
    }

    /// As it was mounted, which is its name in log and metrics.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn metrics(&self) -> &RouteMetrics {
        self.metrics.get_or_init(|| {
            let path = || self.path.to_string();
            RouteMetrics {
                requests: ["1xx", "2xx", "3xx", "4xx", "5xx"]
                    .map(|status| metrics::counter!("bellbird_requests_total", "route" => path(), "status" => status)),
                seconds: metrics::histogram!("bellbird_request_seconds", "route" => path()),
            }
        })
    }

    pub(crate) fn accepts(&self, method: &Method) -> bool {
        if self.is_post { method == Method::POST } else { matches!(*method, Method::GET | Method::HEAD) }
    }

    /// The methods, as `Allow` lists them.
    pub(crate) fn methods(&self) -> &'static str {
        if self.is_post { "POST" } else { "GET, HEAD" }
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        match self.parameter_at {
            None => self.path == path,
            Some(at) => path.strip_prefix(&self.path[..at]).is_some_and(|rest| !rest.is_empty() && !rest.contains('/')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_is_one_segment() {
        let route = Route::new("/other/claim/{token}".into(), true);
        assert!(route.matches("/other/claim/abc"));
        assert!(!route.matches("/other/claim/") && !route.matches("/other/claim/a/b"));
    }

    #[test]
    fn route_accepts_its_methods() {
        let [get, post] = [false, true].map(|is_post| Route::new("/path".into(), is_post));
        assert!(post.accepts(&Method::POST) && !post.accepts(&Method::GET));
        assert!(get.accepts(&Method::HEAD) && !get.accepts(&Method::POST));
    }
}
