//! What the log and the metrics call a path, and its methods.

use std::borrow::Cow;
use std::sync::OnceLock;

use http::Method;
use metrics::{Counter, Histogram};

/// A path of an interface, with one method.
pub struct Route {
    /// Segments may be parameters, as in `/simplefin/claim/{token}`.
    path: Cow<'static, str>,
    /// Where the first parameter begins.
    parameter_at: Option<usize>,
    method: RouteMethod,
    /// All methods of the path, as `Allow` lists them.
    pub(crate) allow: Cow<'static, str>,
    /// Whether the body of an error has its code.
    pub(crate) has_codes: bool,
    metrics: OnceLock<RouteMetrics>,
}

/// What a route accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteMethod {
    /// `GET` and `HEAD`.
    Get,
    Post,
    Patch,
    Delete,
}

impl RouteMethod {
    /// As `Allow` lists it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Its key in the OpenAPI document.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// A route's metric handles, registered once.
pub(crate) struct RouteMetrics {
    /// Indexed by the first digit of the status, minus 1.
    pub(crate) requests: [Counter; 5],
    pub(crate) seconds: Histogram,
}

impl Route {
    pub(crate) fn new(path: Cow<'static, str>, method: RouteMethod) -> Self {
        let (parameter_at, allow) = (path.find('{'), method.as_str().into());
        Self {
            path,
            parameter_at,
            method,
            allow,
            has_codes: false,
            metrics: OnceLock::new(),
        }
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
        match self.method {
            RouteMethod::Get => matches!(*method, Method::GET | Method::HEAD),
            RouteMethod::Post => method == Method::POST,
            RouteMethod::Patch => method == Method::PATCH,
            RouteMethod::Delete => method == Method::DELETE,
        }
    }

    pub(crate) fn method(&self) -> RouteMethod {
        self.method
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        match self.parameter_at {
            None => self.path == path,
            Some(at) => path
                .strip_prefix(&self.path[..at])
                .is_some_and(|rest| have_form(&self.path[at..], rest)),
        }
    }

    /// The parameters of a path that matches, in their order.
    pub(crate) fn parameters<'p>(
        &self,
        path: &'p str,
    ) -> impl Iterator<Item = &'p str> + use<'_, 'p> {
        let segments = self.path.split('/').zip(path.split('/'));
        segments
            .filter(|(template, _)| template.starts_with('{'))
            .map(|(_, segment)| segment)
    }
}

/// Whether the segments are those of the template, and none of its parameters is empty.
fn have_form(template: &str, path: &str) -> bool {
    let (mut templates, mut segments) = (template.split('/'), path.split('/'));
    loop {
        match (templates.next(), segments.next()) {
            (None, None) => return true,
            (Some(template), Some(segment)) if template.starts_with('{') && !segment.is_empty() => {
            }
            (Some(template), Some(segment)) if template == segment => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_is_one_segment() {
        let route = Route::new("/other/claim/{token}".into(), RouteMethod::Post);
        assert!(route.matches("/other/claim/abc"));
        assert!(!route.matches("/other/claim/") && !route.matches("/other/claim/a/b"));
        let route = Route::new("/users/{id}/keys".into(), RouteMethod::Get);
        assert!(route.matches("/users/a/keys"));
        assert_eq!(route.parameters("/users/a/keys").collect::<Vec<_>>(), ["a"]);
        for path in [
            "/users//keys",
            "/users/a",
            "/users/a/",
            "/users/a/keys/",
            "/users/a/b/keys",
            "/users/a/keyz",
        ] {
            assert!(!route.matches(path), "{path}");
        }
    }

    #[test]
    fn path_may_have_two_parameters() {
        let route = Route::new(
            "/endpoints/{id}/deliveries/{eventId}".into(),
            RouteMethod::Get,
        );
        assert!(route.matches("/endpoints/a/deliveries/b"));
        assert!(
            !route.matches("/endpoints/a/deliveries/") && !route.matches("/endpoints/a/deliveries")
        );
        assert_eq!(
            route
                .parameters("/endpoints/a/deliveries/b")
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
    }

    #[test]
    fn route_accepts_its_methods() {
        use RouteMethod::{Delete, Get, Patch, Post};
        let all = [
            Method::GET,
            Method::HEAD,
            Method::POST,
            Method::PATCH,
            Method::DELETE,
            Method::PUT,
        ];
        for (method, accepted) in [
            (Get, "GET, HEAD"),
            (Post, "POST"),
            (Patch, "PATCH"),
            (Delete, "DELETE"),
        ] {
            let route = Route::new("/path".into(), method);
            let accepts: Vec<&str> = all
                .iter()
                .filter(|other| route.accepts(other))
                .map(Method::as_str)
                .collect();
            assert_eq!(accepts.join(", "), accepted);
        }
    }
}
