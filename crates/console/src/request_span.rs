//! The outermost layer. It counts requests, and gives each an id, which the response has as
//! `X-Request-Id`, and a span with this id for all lines that the request causes.

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderValue;
use http::header::HeaderName;
use tracing::Instrument as _;
use uuid::Uuid;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The span has the template of the path, because paths and queries contain link tokens.
pub(crate) async fn enter(request: Request, next: Next) -> Response {
    let id = Uuid::new_v4().hyphenated().to_string();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map_or("(none)", MatchedPath::as_str);
    let span = tracing::error_span!("request", request_id = id, route);
    let mut response = next.run(request).instrument(span).await;
    // As in `bellbird_requests_total`.
    let status = format!("{}xx", response.status().as_u16() / 100);
    let route = route.to_owned();
    metrics::counter!("bellbird_console_requests_total", "route" => route, "status" => status)
        .increment(1);
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
    response
}
