//! An interface and its paths. A path is written once, with its method, handler, quota class and
//! description.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use bellbird_domain::ApiKey;
use http::{HeaderMap, Method};

use crate::front::access::Access;
use crate::front::auth::bearer_key;
use crate::front::extract::{Authorized, Guarded};
use crate::front::operation::{Operation, PathDocs};
use crate::front::operator::{ForOperators, Operator};
use crate::front::problem::{Problem, json_response};
use crate::front::quota::QuotaClass;
use crate::front::route::{Route, RouteMethod};

type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;
type Call<S> = Arc<dyn Fn(Request, S) -> ResponseFuture + Send + Sync>;

/// A path whose handler has the state `S`.
pub struct Path<S> {
    path: &'static str,
    method: RouteMethod,
    has_codes: bool,
    handler: PathHandler<S>,
    /// A parameter of the path, and its values. Each value is a route.
    parameter: Option<(&'static str, Vec<&'static str>)>,
    operation: Option<Operation>,
}

enum PathHandler<S> {
    Open(Call<S>),
    Guarded {
        quota: fn(&S) -> &QuotaClass,
        call: Call<Guarded<S>>,
    },
    ForOperators(Call<ForOperators<S>>),
}

impl<S: Clone + Send + Sync + 'static> Path<S> {
    /// `GET` and `HEAD`, for callers with a key, within a quota class.
    pub fn get<T: 'static, H: Handler<T, Guarded<S>> + Sync>(
        path: &'static str,
        quota: fn(&S) -> &QuotaClass,
        handler: H,
    ) -> Self {
        Self::new(
            path,
            RouteMethod::Get,
            PathHandler::Guarded {
                quota,
                call: call(handler),
            },
        )
    }

    /// As [`Self::get`], for `POST`.
    pub fn post<T: 'static, H: Handler<T, Guarded<S>> + Sync>(
        path: &'static str,
        quota: fn(&S) -> &QuotaClass,
        handler: H,
    ) -> Self {
        Self::new(
            path,
            RouteMethod::Post,
            PathHandler::Guarded {
                quota,
                call: call(handler),
            },
        )
    }

    /// `GET` and `HEAD` for everybody: no key, no limit.
    pub fn open<T: 'static, H: Handler<T, S> + Sync>(path: &'static str, handler: H) -> Self {
        Self::new(path, RouteMethod::Get, PathHandler::Open(call(handler)))
    }

    /// As [`Self::open`], for `POST`.
    pub fn open_post<T: 'static, H: Handler<T, S> + Sync>(path: &'static str, handler: H) -> Self {
        Self::new(path, RouteMethod::Post, PathHandler::Open(call(handler)))
    }

    /// For operators, within their rate limit. A path may have several methods, each with a handler
    /// of its own.
    pub fn for_operators<T: 'static, H: Handler<T, ForOperators<S>> + Sync>(
        method: RouteMethod,
        path: &'static str,
        handler: H,
    ) -> Self {
        Self::new(path, method, PathHandler::ForOperators(call(handler)))
    }

    fn new(path: &'static str, method: RouteMethod, handler: PathHandler<S>) -> Self {
        Self {
            path,
            method,
            has_codes: false,
            handler,
            parameter: None,
            operation: None,
        }
    }

    /// The body of an error has the word of the header `Bellbird-Error` as its code.
    #[must_use]
    pub(crate) fn with_codes(self) -> Self {
        Self {
            has_codes: true,
            ..self
        }
    }

    /// The values of a parameter of the path. Log and metrics name each of them, as a path of its
    /// own.
    #[must_use]
    pub fn with_values(self, parameter: &'static str, values: Vec<&'static str>) -> Self {
        Self {
            parameter: Some((parameter, values)),
            ..self
        }
    }

    /// The description in the OpenAPI document, which lacks paths without one.
    #[must_use]
    pub fn described(self, operation: Operation) -> Self {
        Self {
            operation: Some(operation),
            ..self
        }
    }

    /// The description, if the path has one.
    #[must_use]
    pub fn into_docs(self) -> Option<PathDocs> {
        let Self {
            path,
            method,
            handler,
            parameter,
            operation,
            ..
        } = self;
        let needs_key = !matches!(handler, PathHandler::Open(_));
        Some(PathDocs {
            path,
            method,
            needs_key,
            parameter,
            operation: operation?,
        })
    }

    fn routes(&self) -> Vec<Cow<'static, str>> {
        match &self.parameter {
            Some((name, values)) => values
                .iter()
                .map(|value| self.path.replace(&format!("{{{name}}}"), value).into())
                .collect(),
            None => vec![self.path.into()],
        }
    }
}

fn call<T: 'static, S: 'static, H: Handler<T, S> + Sync>(handler: H) -> Call<S> {
    Arc::new(move |request, state| Box::pin(handler.clone().call(request, state)))
}

/// An interface: paths below a prefix that share the way of sending the key, and the form of
/// errors.
pub struct Mount {
    prefix: &'static str,
    form: Form,
    cors_headers: &'static [&'static str],
    allows_browsers: bool,
    unlisted: Unlisted,
    endpoints: Vec<(Route, EndpointHandler)>,
}

/// How an interface reads keys and writes errors.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) key: fn(&HeaderMap) -> Option<ApiKey>,
    pub(crate) error: fn(Problem) -> Response,
}

/// A path, and the handler of its requests.
pub(crate) struct Endpoint {
    pub(crate) route: Arc<Route>,
    pub(crate) form: Form,
    pub(crate) handler: EndpointHandler,
}

pub(crate) enum EndpointHandler {
    Open(Box<dyn Fn(Request) -> ResponseFuture + Send + Sync>),
    Guarded {
        quota: QuotaClass,
        call: Box<dyn Fn(Request, Access, Authorized) -> ResponseFuture + Send + Sync>,
    },
    ForOperators(Box<dyn Fn(Request, Operator) -> ResponseFuture + Send + Sync>),
    Missing(Unlisted),
}

/// Who gets 404 for paths below a prefix that do not exist. Everybody else gets 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unlisted {
    Public,
    Users,
    Operators,
}

impl Mount {
    /// An interface with keys in `Authorization: Bearer` and JSON errors.
    #[must_use]
    pub fn new(prefix: &'static str) -> Self {
        let form = Form {
            key: bearer_key,
            error: json_response,
        };
        let unlisted = Unlisted::Public;
        Self {
            prefix,
            form,
            cors_headers: &[],
            allows_browsers: true,
            unlisted,
            endpoints: Vec::new(),
        }
    }

    /// How a request sends its key.
    #[must_use]
    pub fn with_key(mut self, key: fn(&HeaderMap) -> Option<ApiKey>) -> Self {
        self.form.key = key;
        self
    }

    /// How errors are written, also those of handlers.
    #[must_use]
    pub fn with_errors(mut self, error: fn(Problem) -> Response) -> Self {
        self.form.error = error;
        self
    }

    /// Request headers that pages in a browser may send, beside those of all interfaces.
    #[must_use]
    pub fn with_cors_headers(self, cors_headers: &'static [&'static str]) -> Self {
        Self {
            cors_headers,
            ..self
        }
    }

    /// Paths below the prefix that do not exist need a key too, so that 401 comes before 404.
    #[must_use]
    pub fn guarded(self) -> Self {
        Self {
            unlisted: Unlisted::Users,
            ..self
        }
    }

    /// As [`Self::guarded`], with an operator's key. Pages in a browser cannot call the paths below
    /// the prefix.
    #[must_use]
    pub fn guarded_for_operators(self) -> Self {
        Self {
            unlisted: Unlisted::Operators,
            allows_browsers: false,
            ..self
        }
    }

    /// Adds paths whose handlers share a state.
    #[must_use]
    pub fn add<S: Clone + Send + Sync + 'static>(mut self, state: &S, paths: Vec<Path<S>>) -> Self {
        for path in paths {
            for route in path.routes() {
                let state = state.clone();
                let handler = match &path.handler {
                    PathHandler::Open(call) => {
                        let call = Arc::clone(call);
                        EndpointHandler::Open(Box::new(move |request| call(request, state.clone())))
                    }
                    PathHandler::Guarded { quota, call } => {
                        let (quota, call) = (quota(&state).clone(), Arc::clone(call));
                        let call = move |request, access, authorized| {
                            call(request, Guarded::new(state.clone(), access, authorized))
                        };
                        EndpointHandler::Guarded {
                            quota,
                            call: Box::new(call),
                        }
                    }
                    PathHandler::ForOperators(call) => {
                        let call = Arc::clone(call);
                        let call = move |request, operator| {
                            call(request, ForOperators::new(state.clone(), operator))
                        };
                        EndpointHandler::ForOperators(Box::new(call))
                    }
                };
                let mut route = Route::new(route, path.method);
                route.has_codes = path.has_codes;
                self.endpoints.push((route, handler));
            }
        }
        self
    }

    fn missing(&self, unlisted: Unlisted) -> Arc<Endpoint> {
        self.endpoint(
            Route::new("(none)".into(), RouteMethod::Get),
            EndpointHandler::Missing(unlisted),
        )
    }

    /// Lists all methods of a path in each of its routes.
    fn join_methods(&mut self) {
        let methods: Vec<_> = self
            .endpoints
            .iter()
            .map(|(route, _)| (route.path().to_owned(), route.method().as_str()))
            .collect();
        for (route, _) in &mut self.endpoints {
            let of_path = methods
                .iter()
                .filter(|(path, _)| path == route.path())
                .map(|(_, method)| *method);
            let allow = of_path.collect::<Vec<_>>().join(", ");
            route.allow = allow.into();
        }
    }

    fn endpoint(&self, route: Route, handler: EndpointHandler) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            route: Arc::new(route),
            form: self.form,
            handler,
        })
    }
}

/// All interfaces of the listener.
pub(crate) struct Mounts {
    endpoints: Vec<Arc<Endpoint>>,
    /// For paths below each prefix that do not exist.
    missing: Vec<(&'static str, Arc<Endpoint>)>,
    /// For all other paths.
    fallback: Arc<Endpoint>,
    pub(crate) cors_headers: Vec<&'static str>,
    /// The prefixes below which pages in a browser cannot call.
    pub(crate) without_browsers: Vec<&'static str>,
}

impl Mounts {
    /// The first one words the errors of paths that no prefix begins.
    pub(crate) fn new(first: Mount, others: Vec<Mount>) -> Self {
        let mut mounts = Self {
            endpoints: Vec::new(),
            missing: Vec::new(),
            fallback: first.missing(Unlisted::Public),
            cors_headers: Vec::new(),
            without_browsers: Vec::new(),
        };
        for mut mount in [first].into_iter().chain(others) {
            mount.join_methods();
            let endpoints = std::mem::take(&mut mount.endpoints);
            mounts.endpoints.extend(
                endpoints
                    .into_iter()
                    .map(|(route, handler)| mount.endpoint(route, handler)),
            );
            mounts
                .missing
                .push((mount.prefix, mount.missing(mount.unlisted)));
            mounts.cors_headers.extend(mount.cors_headers);
            mounts
                .without_browsers
                .extend((!mount.allows_browsers).then_some(mount.prefix));
        }
        mounts
    }

    /// The endpoint of a path and a method, or else one of the path. Paths that do not exist share
    /// one route name, so that clients cannot create metric labels.
    pub(crate) fn find(&self, path: &str, method: &Method) -> &Arc<Endpoint> {
        let mut of_path = self
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.route.matches(path));
        let Some(first) = of_path.next() else {
            let missing = self
                .missing
                .iter()
                .find(|(prefix, _)| is_below(path, prefix));
            return missing.map_or(&self.fallback, |(_, endpoint)| endpoint);
        };
        if first.route.accepts(method) {
            return first;
        }
        of_path
            .find(|endpoint| endpoint.route.accepts(method))
            .unwrap_or(first)
    }
}

/// Whether a path is a prefix or begins with it and a slash.
pub(crate) fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn mounts() -> Mounts {
        let teapot = |_: Problem| {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
            response
        };
        let paths = |paths: &[&'static str]| {
            paths
                .iter()
                .map(|path| Path::open(path, async || ""))
                .collect()
        };
        let v1 = Mount::new("/v1")
            .guarded()
            .add(&(), paths(&["/v1/accounts", "/health"]));
        let other = Mount::new("/other").with_errors(teapot).add(
            &(),
            vec![
                Path::open("/other/list", async || ""),
                Path::open_post("/other/claim/{token}", async || ""),
                Path::open("/other/file.{format}", async || "")
                    .with_values("format", vec!["csv", "ofx"]),
            ],
        );
        Mounts::new(v1, vec![other])
    }

    #[test]
    fn unlisted_paths_need_a_key_below_a_guarded_prefix_only() {
        let mounts = mounts();
        let needs_key = |path| match &mounts.find(path, &Method::GET).handler {
            EndpointHandler::Missing(unlisted) => Some(*unlisted == Unlisted::Users),
            _ => None,
        };
        for path in ["/v1", "/v1/", "/v1/accounts/", "/v1/none"] {
            assert_eq!(needs_key(path), Some(true), "{path}");
        }
        for path in ["/v1x", "/", "/other", "/other/list/2", "/otherwise"] {
            assert_eq!(needs_key(path), Some(false), "{path}");
        }
        assert_eq!(needs_key("/v1/accounts"), None);
    }

    #[test]
    fn route_is_named_by_its_template_and_by_each_value() {
        let mounts = mounts();
        let found = |path| mounts.find(path, &Method::GET).route.path().to_owned();
        assert_eq!(found("/other/claim/abc"), "/other/claim/{token}");
        assert_eq!(found("/other/file.ofx"), "/other/file.ofx");
        for path in [
            "/other/claim/",
            "/other/claim/a/b",
            "/other/file.qif",
            "/other/file.{format}",
            "/none",
        ] {
            assert_eq!(found(path), "(none)", "{path}");
        }
    }

    #[test]
    fn methods_of_a_path_have_handlers_of_their_own() {
        let for_operators = |method| Path::for_operators(method, "/admin/users/{id}", async || "");
        let methods = [RouteMethod::Get, RouteMethod::Patch, RouteMethod::Delete];
        let admin = Mount::new("/admin")
            .guarded_for_operators()
            .add(&(), methods.map(for_operators).into());
        let mounts = Mounts::new(Mount::new("/v1"), vec![admin]);
        let found = |method| &mounts.find("/admin/users/a", &method).route;
        assert_eq!(found(Method::PATCH).method(), RouteMethod::Patch);
        assert_eq!(found(Method::DELETE).method(), RouteMethod::Delete);
        assert_eq!(found(Method::PUT).method(), RouteMethod::Get);
        for method in [Method::HEAD, Method::PATCH, Method::PUT] {
            assert_eq!(found(method).allow, "GET, HEAD, PATCH, DELETE");
        }
        assert!(matches!(
            mounts.find("/admin/users", &Method::GET).handler,
            EndpointHandler::Missing(Unlisted::Operators)
        ));
        assert_eq!(mounts.without_browsers, ["/admin"]);
    }

    #[test]
    fn unknown_path_has_the_errors_of_its_prefix() {
        let mounts = mounts();
        let status =
            |path| (mounts.find(path, &Method::GET).form.error)(Problem::NoSuchPath).status();
        assert_eq!(status("/other"), StatusCode::IM_A_TEAPOT);
        assert_eq!(status("/other/none"), StatusCode::IM_A_TEAPOT);
        assert_eq!(status("/otherwise"), StatusCode::NOT_FOUND);
        assert_eq!(status("/"), StatusCode::NOT_FOUND);
    }
}
