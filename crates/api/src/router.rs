//! Builds the axum router: every route, the middleware around them and CORS.

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tower::util::option_layer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::docs_page::{LOGO, SCRIPT, STYLE};
use crate::middleware::access_log::access_log;
use crate::middleware::guard::guard;
use crate::problem::Problem;
use crate::routes::{DOCS_LOGO_PATH, DOCS_SCRIPT_PATH, DOCS_STYLE_PATH};
use crate::state::AppState;
use crate::{docs_page, handlers, openapi};

pub fn router(state: AppState) -> Router {
    let page = docs_page::render(&state.inner.settings.public_url);
    let (documented, _) = handlers::documented().split_for_parts();
    let routes = documented
        .route("/openapi.json", get(openapi::serve_json))
        .route("/openapi.yaml", get(openapi::serve_yaml))
        .route("/docs", get(|headers: HeaderMap| async move { page.response(&headers) }))
        .route(DOCS_SCRIPT_PATH, get(|headers: HeaderMap| async move { SCRIPT.response(&headers) }))
        .route(DOCS_STYLE_PATH, get(|headers: HeaderMap| async move { STYLE.response(&headers) }))
        .route(DOCS_LOGO_PATH, get(|headers: HeaderMap| async move { LOGO.response(&headers) }))
        .fallback(|| async { Problem::NoSuchPath })
        .method_not_allowed_fallback(|| async { Problem::MethodNotAllowed });
    // Outermost first. One call, because each one would box every request, response and body once more.
    let layers = (
        from_fn(access_log),
        option_layer(cors(&state.inner.settings.cors_origins)),
        CatchPanicLayer::custom(|_| axum::response::IntoResponse::into_response(Problem::Internal)),
        from_fn_with_state(state.clone(), guard),
    );
    routes.layer(layers).with_state(state)
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
    use crate::handlers;
    use crate::routes::{Class, route_of};

    #[test]
    fn every_documented_path_has_a_route_class() {
        let paths = handlers::documented().into_openapi().paths.paths;
        assert_eq!(paths.len(), 8);
        for path in paths.keys() {
            let route = route_of(path);
            assert_eq!(route.path, path);
            assert_eq!(route.class == Class::Open, path == "/health", "{path}");
        }
    }
}
