//! Merges the routers of all doors and puts the layers around them: access log, CORS, panics, guard.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Method};
use tower::util::option_layer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::front::access::Access;
use crate::front::access_log::{Panicked, access_log};
use crate::front::guard::{Guard, guard};
use crate::front::problem::Problem;
use crate::front::routes::{Door, Doors};

/// What a page sends with a message of MCP.
const MCP_HEADERS: [&str; 3] = ["mcp-protocol-version", "mcp-method", "mcp-name"];

/// The first door answers the paths that no door's prefix begins.
pub fn router(access: Access, doors: Vec<Door>) -> Router {
    let mut routes = Router::new();
    let mut tables = Vec::new();
    for door in doors {
        routes = routes.merge(door.router);
        tables.push(door.table);
    }
    let doors = Arc::new(Doors(tables));
    let fallback = |problem: Problem| {
        let doors = Arc::clone(&doors);
        move |request: Request| async move { doors.find(request.uri().path()).1.deny(problem) }
    };
    let routes =
        routes.fallback(fallback(Problem::NoSuchPath)).method_not_allowed_fallback(fallback(Problem::MethodNotAllowed));
    let cors = cors(access.cors_origins());
    // Outermost first. One call, because each one would box every request, response and body once more.
    let layers = (
        from_fn_with_state(Arc::clone(&doors), access_log),
        option_layer(cors),
        CatchPanicLayer::custom(|_| {
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(Panicked);
            response
        }),
        from_fn_with_state(Guard { access, doors }, guard),
    );
    routes.layer(layers)
}

fn cors(origins: &[String]) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    let exposed = [
        "content-disposition",
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
    let allowed = [AUTHORIZATION, CONTENT_TYPE].into_iter();
    let allowed: Vec<HeaderName> = allowed.chain(MCP_HEADERS.map(HeaderName::from_static)).collect();
    (!origins.is_empty()).then(|| {
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods([Method::GET, Method::HEAD, Method::POST])
            .allow_headers(allowed)
            .expose_headers(exposed.map(HeaderName::from_static))
    })
}
