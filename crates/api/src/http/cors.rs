//! Which pages in a browser may call, and which headers they may send and read (CORS).

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method};
use tower_http::cors::{AllowOrigin, CorsLayer};

const EXPOSED_HEADERS: [&str; 14] = [
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

/// `None` if no origin is allowed. Pages may send `headers` beside the usual ones.
pub(crate) fn layer(origins: &[String], headers: &[&'static str]) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = origins
        .iter()
        .filter_map(|origin| origin.parse().ok())
        .collect();
    let headers = headers.iter().map(|name| HeaderName::from_static(name));
    let allowed: Vec<_> = [AUTHORIZATION, CONTENT_TYPE]
        .into_iter()
        .chain(headers)
        .collect();
    (!origins.is_empty()).then(|| {
        let is_allowed = move |origin: &HeaderValue, _: &Parts| origins.contains(origin);
        CorsLayer::new()
            .allow_origin(AllowOrigin::predicate(is_allowed))
            .allow_methods([Method::GET, Method::HEAD, Method::POST])
            .allow_headers(allowed)
            .expose_headers(EXPOSED_HEADERS.map(HeaderName::from_static))
    })
}
