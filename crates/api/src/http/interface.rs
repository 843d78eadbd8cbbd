//! An interface: routes below a prefix that share the way of sending the key and the form of
//! errors, and the listener that serves several.
//!
//! Axum finds the route. The layers that all routes share, which are given below, run after that,
//! so that they know its [`MatchedPath`](axum::extract::MatchedPath).

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use bellbird_domain::ApiKey;
use futures_util::FutureExt as _;
use http::HeaderMap;
use tower::ServiceExt as _;
use tower::util::{MapFutureLayer, MapResponseLayer, option_layer};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::http::auth::bearer_key;
use crate::http::context::ApiContext;
use crate::http::cors;
use crate::http::extract::UserState;
use crate::http::guard::{Gate, Guard, guard};
use crate::http::log::access_log;
use crate::http::operator::OperatorState;
use crate::http::problem::{Problem, json_response, json_response_with_code, write_problem};
use crate::http::quota::QuotaClass;

/// How an interface reads keys and writes errors, and which pages in a browser may call it.
#[derive(Clone, Copy)]
pub struct WireStyle {
    pub key: fn(&HeaderMap) -> Option<ApiKey>,
    pub error: fn(Problem) -> Response,
    /// Request headers that pages may send beside the usual ones. `None`: no page can call.
    pub cors_headers: Option<&'static [&'static str]>,
}

impl WireStyle {
    /// Keys in `Authorization: Bearer`, and errors in the JSON of `/v1`.
    pub const JSON: Self = Self {
        key: bearer_key,
        error: json_response,
        cors_headers: Some(&[]),
    };
}

/// Routes whose handlers share the state `S`, in groups by whom they let in.
pub struct Routes<S> {
    groups: Vec<Group<S>>,
}

enum Group<S> {
    Open(OpenApiRouter<S>),
    Users {
        routes: OpenApiRouter<UserState<S>>,
        quota: fn(&S) -> &QuotaClass,
        has_codes: bool,
    },
    Operators(OpenApiRouter<OperatorState<S>>),
}

/// The documentation of a group of routes.
pub struct DocumentedRoutes {
    pub(crate) openapi: OpenApi,
    pub(crate) needs_key: bool,
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    pub fn new() -> Self {
        Self { groups: Vec::new() }
    }

    fn with(mut self, group: Group<S>) -> Self {
        self.groups.push(group);
        self
    }

    /// For everybody: no key, no limit.
    #[must_use]
    pub fn open(self, routes: impl Into<OpenApiRouter<S>>) -> Self {
        self.with(Group::Open(routes.into()))
    }

    /// For users with a key, within a quota class.
    #[must_use]
    pub fn users(
        self,
        quota: fn(&S) -> &QuotaClass,
        routes: impl Into<OpenApiRouter<UserState<S>>>,
    ) -> Self {
        self.with(Group::Users {
            routes: routes.into(),
            quota,
            has_codes: false,
        })
    }

    /// As [`Self::users`]. The body of an error has the word of the header `Bellbird-Error` as its
    /// code.
    #[must_use]
    pub fn users_with_codes(
        self,
        quota: fn(&S) -> &QuotaClass,
        routes: impl Into<OpenApiRouter<UserState<S>>>,
    ) -> Self {
        self.with(Group::Users {
            routes: routes.into(),
            quota,
            has_codes: true,
        })
    }

    /// For operators, within the rate limit of their key.
    #[must_use]
    pub(crate) fn operators(self, routes: impl Into<OpenApiRouter<OperatorState<S>>>) -> Self {
        self.with(Group::Operators(routes.into()))
    }

    /// What the handlers' `#[utoipa::path]` say.
    pub fn documented(self) -> impl Iterator<Item = DocumentedRoutes> {
        self.groups.into_iter().map(|group| {
            let (openapi, needs_key) = match group {
                Group::Open(routes) => (routes.into_openapi(), false),
                Group::Users { routes, .. } => (routes.into_openapi(), true),
                Group::Operators(routes) => (routes.into_openapi(), true),
            };
            DocumentedRoutes { openapi, needs_key }
        })
    }
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// Who gets 404 for paths below the prefix that do not exist. Everybody else gets 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownPath {
    Public,
    Users,
    Operators,
}

/// A prefix with its routes.
pub struct Interface {
    prefix: &'static str,
    context: ApiContext,
    style: WireStyle,
    unknown_path: UnknownPath,
    routes: Router,
}

impl Interface {
    pub fn new(
        context: &ApiContext,
        prefix: &'static str,
        style: WireStyle,
        unknown_path: UnknownPath,
    ) -> Self {
        Self {
            prefix,
            context: context.clone(),
            style,
            unknown_path,
            routes: Router::new(),
        }
    }

    /// Adds routes whose handlers share a state.
    #[must_use]
    pub fn add<S: Clone + Send + Sync + 'static>(mut self, state: &S, routes: Routes<S>) -> Self {
        for group in routes.groups {
            let routes = match group {
                Group::Open(routes) => {
                    self.layered(routes, self.style, None, UnknownPath::Public, state.clone())
                }
                Group::Users {
                    routes,
                    quota,
                    has_codes,
                } => {
                    let style = match has_codes {
                        true => WireStyle {
                            error: json_response_with_code,
                            ..self.style
                        },
                        false => self.style,
                    };
                    let gate = Gate::Users(self.style.key, quota(state).clone());
                    let state = UserState::new(state.clone(), self.context.clone());
                    self.layered(routes, style, Some(gate), UnknownPath::Users, state)
                }
                Group::Operators(routes) => {
                    let state = OperatorState::new(state.clone());
                    let gate = Some(Gate::Operators);
                    self.layered(routes, self.style, gate, UnknownPath::Operators, state)
                }
            };
            self.routes = self.routes.merge(routes);
        }
        self
    }

    /// The routes of a group behind its gate. Axum rejects other methods than theirs, and adds the
    /// header `Allow`.
    fn layered<S: Clone + Send + Sync + 'static>(
        &self,
        routes: OpenApiRouter<S>,
        style: WireStyle,
        gate: Option<Gate>,
        known_to: UnknownPath,
        state: S,
    ) -> Router {
        let guard = gate.map(|gate| self.guard(gate));
        let other_methods = self.rejecting(known_to, style, Problem::MethodNotAllowed);
        with_layers(Router::from(routes), &self.context, style, guard)
            .method_not_allowed_fallback(move |request: Request| {
                other_methods.clone().oneshot(request)
            })
            .with_state(state)
    }

    fn guard(&self, gate: Gate) -> Arc<Guard> {
        let context = self.context.clone();
        Arc::new(Guard { context, gate })
    }

    /// Rejects every request.
    fn rejecting(&self, known_to: UnknownPath, style: WireStyle, problem: Problem) -> Router {
        let guard = match known_to {
            UnknownPath::Public => None,
            UnknownPath::Users => {
                let quota = self.context.quotas().metadata.clone();
                Some(self.guard(Gate::Users(self.style.key, quota)))
            }
            UnknownPath::Operators => Some(self.guard(Gate::Operators)),
        };
        let reject = move |request: Request| reject(guard.clone(), request, problem.clone());
        with_layers(Router::new().fallback(reject), &self.context, style, None)
    }
}

async fn reject(guard: Option<Arc<Guard>>, request: Request, problem: Problem) -> Response {
    match guard {
        Some(guard) => guard.reject(request, problem).await,
        None => problem.into_response(),
    }
}

/// The layers of every route, outermost first, with the guard of those that have one. One call,
/// because each one would box every request and response once more.
fn with_layers<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    context: &ApiContext,
    style: WireStyle,
    route_guard: Option<Arc<Guard>>,
) -> Router<S> {
    let cors = style
        .cors_headers
        .and_then(|headers| cors::layer(context.cors_origins(), headers));
    routes.layer((
        MapResponseLayer::new(move |response| write_problem(response, style.error)),
        from_fn_with_state(context.clone(), access_log),
        option_layer(cors),
        MapFutureLayer::new(without_panic),
        option_layer(route_guard.map(|route_guard| from_fn_with_state(route_guard, guard))),
    ))
}

/// Responds in place of a handler that panics. The panic is in the log.
async fn without_panic(
    handler: impl Future<Output = Result<Response, Infallible>>,
) -> Result<Response, Infallible> {
    let outcome = AssertUnwindSafe(handler).catch_unwind().await;
    outcome.unwrap_or_else(|_| Ok(Problem::Internal.into_response()))
}

/// The router of a listener. `first` words the errors of paths that no prefix begins.
pub fn listener(first: Interface, others: Vec<Interface>) -> Router {
    let unknown_path = |interface: &Interface, known_to| {
        interface.rejecting(known_to, interface.style, Problem::NoSuchPath)
    };
    let elsewhere = unknown_path(&first, UnknownPath::Public);
    let (mut router, mut unknown) = (Router::new(), Vec::new());
    for interface in [first].into_iter().chain(others) {
        unknown.push((
            interface.prefix,
            unknown_path(&interface, interface.unknown_path),
        ));
        router = router.merge(interface.routes);
    }
    let unknown = Arc::new(unknown);
    router.fallback(move |request: Request| {
        let path = request.uri().path();
        let below = unknown.iter().find(|(prefix, _)| is_below(path, prefix));
        let fallback = below.map_or(&elsewhere, |(_, fallback)| fallback);
        fallback.clone().oneshot(request)
    })
}

/// Whether a path is a prefix or begins with it and a slash.
fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
