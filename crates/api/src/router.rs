//! Every route on one page.

use std::sync::OnceLock;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use http::{HeaderName, HeaderValue, Method};
use metrics::{Counter, Histogram};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::guard::guard;
use crate::handlers::{accounts, balances, categories, connections, health, holdings, trades, transactions};
use crate::observe::observe;
use crate::problem::Problem;
use crate::state::AppState;
use crate::{docs_page, openapi};

/// What a path is, for its limits, the log and the metrics.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) class: Class,
    metrics: OnceLock<RouteMetrics>,
}

/// A route's metrics, looked up once.
pub(crate) struct RouteMetrics {
    /// By the first digit of the status, from 1 on.
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

/// Which limit a path counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// No key needed.
    Open,
    /// Answered from our own database.
    Metadata,
    /// Balances.
    Balances,
    /// Read live, row by row.
    Live,
    /// Read live, and part of the Professional plan only.
    Brokerage,
    /// Nothing there.
    Unknown,
}

const fn route(path: &'static str, class: Class) -> Route {
    Route { path, class, metrics: OnceLock::new() }
}

static ROUTES: [Route; 13] = [
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
    route(docs_page::SCRIPT_PATH, Class::Open),
    route(docs_page::STYLE_PATH, Class::Open),
];
static UNKNOWN_OPEN: Route = route("(none)", Class::Open);
static UNKNOWN_GUARDED: Route = route("(none)", Class::Unknown);

/// Handlers with their documentation.
fn documented() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(connections::list_connections))
        .routes(routes!(accounts::list_accounts))
        .routes(routes!(balances::list_balances))
        .routes(routes!(categories::list_categories))
        .routes(routes!(transactions::list_transactions))
        .routes(routes!(holdings::list_holdings))
        .routes(routes!(trades::list_trades))
}

/// The paths and schemas as the handlers' attributes describe them.
pub(crate) fn described() -> utoipa::openapi::OpenApi {
    documented().into_openapi()
}

/// The whole API.
pub fn router(state: AppState) -> Router {
    let (handlers, _) = documented().split_for_parts();
    let guarded = handlers
        .route("/openapi.json", get(openapi::serve_json))
        .route("/openapi.yaml", get(openapi::serve_yaml))
        .route("/docs", get(docs_page::serve_page))
        .route(docs_page::SCRIPT_PATH, get(docs_page::serve_script))
        .route(docs_page::STYLE_PATH, get(docs_page::serve_style))
        .fallback(|| async { Problem::NoSuchPath })
        .method_not_allowed_fallback(|| async { Problem::MethodNotAllowed })
        .layer(from_fn_with_state(state.clone(), guard))
        .layer(CatchPanicLayer::custom(|_| axum::response::IntoResponse::into_response(Problem::Internal)));
    let guarded = match cors(&state.inner.settings.cors_origins) {
        Some(cors) => guarded.layer(cors),
        None => guarded,
    };
    guarded.layer(from_fn(observe)).with_state(state)
}

/// What a path is.
pub(crate) fn route_of(path: &str) -> &'static Route {
    let guarded = path == "/v1" || path.starts_with("/v1/");
    let unknown = if guarded { &UNKNOWN_GUARDED } else { &UNKNOWN_OPEN };
    ROUTES.iter().find(|route| route.path == path).unwrap_or(unknown)
}

fn cors(origins: &[String]) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    let exposed = [
        "x-request-id",
        "x-cache",
        "age",
        "retry-after",
        "x-service-truncated",
        "deprecation",
        "sunset",
        "link",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    (!origins.is_empty()).then(|| {
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods([Method::GET, Method::HEAD])
            .allow_headers([http::header::AUTHORIZATION])
            .expose_headers(exposed.map(HeaderName::from_static))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_path_is_known_by_its_class() {
        let paths = described().paths.paths;
        assert_eq!(paths.len(), 8);
        for path in paths.keys() {
            let route = route_of(path);
            assert_eq!(route.path, path);
            assert_eq!(route.class == Class::Open, path == "/health", "{path}");
        }
        assert_eq!(route_of("/v1").class, Class::Unknown);
        assert_eq!(route_of("/v1/accounts/").class, Class::Unknown);
        assert_eq!(route_of("/v1x").class, Class::Open);
    }
}
