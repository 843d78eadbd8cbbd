//! The outermost layer, which counts requests around the span of each.

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use bellbird_api::http::log;

/// The label is the template of the path, because paths and queries contain link tokens.
pub(crate) async fn count(request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let response = log::request_span(request, next).await;
    // As in `bellbird_requests_total`.
    let route = matched.as_ref().map_or("(none)", MatchedPath::as_str);
    let status = format!("{}xx", response.status().as_u16() / 100);
    let route = route.to_owned();
    metrics::counter!("bellbird_console_requests_total", "route" => route, "status" => status)
        .increment(1);
    response
}
