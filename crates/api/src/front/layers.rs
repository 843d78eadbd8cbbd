//! The router of the API listener: the layers around all interfaces.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse as _;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method};
use tower::util::option_layer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::front::access::Access;
use crate::front::guard::guard;
use crate::front::log::{AccessLog, access_log};
use crate::front::mount::{Mount, Mounts, is_below};
use crate::front::problem::Problem;

/// How long a response may take, from its head to its end. The listener closes the connection then,
/// because a client that takes a few bytes now and then would hold what the response holds forever.
/// An extension of a response.
#[derive(Debug, Clone, Copy)]
pub struct ResponseTimeout(pub Duration);

/// `first` words the errors of paths that the prefix of no interface begins.
pub fn router(access: Access, first: Mount, others: Vec<Mount>) -> Router {
    let mounts = Mounts::new(first, others);
    let trusted_proxies = access.trusted_proxies().to_vec();
    let cors = cors(access.cors_origins(), &mounts);
    // Outermost first. One call, because each one would box every request, response and body once
    // more.
    let layers = (
        from_fn_with_state(
            Arc::new(AccessLog {
                mounts,
                trusted_proxies,
            }),
            access_log,
        ),
        option_layer(cors),
        CatchPanicLayer::custom(|_| Problem::Internal.into_response()),
    );
    Router::new()
        .fallback(guard)
        .with_state(access)
        .layer(layers)
}

fn cors(origins: &[String], mounts: &Mounts) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = origins
        .iter()
        .filter_map(|origin| origin.parse().ok())
        .collect();
    let exposed = [
        "content-disposition",
        "x-request-id",
        "bellbird-error",
        "bellbird-left-out",
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
    let allowed = allowed.chain(
        mounts
            .cors_headers
            .iter()
            .map(|name| HeaderName::from_static(name)),
    );
    let without_browsers = mounts.without_browsers.clone();
    (!origins.is_empty()).then(|| {
        let is_allowed = move |origin: &HeaderValue, request: &Parts| {
            origins.contains(origin)
                && !without_browsers
                    .iter()
                    .any(|prefix| is_below(request.uri.path(), prefix))
        };
        CorsLayer::new()
            .allow_origin(AllowOrigin::predicate(is_allowed))
            .allow_methods([Method::GET, Method::HEAD, Method::POST])
            .allow_headers(allowed.collect::<Vec<_>>())
            .expose_headers(exposed.map(HeaderName::from_static))
    })
}
