//! The outermost layer. It counts requests, and gives each an id, which the response has as
//! `X-Request-Id`, and a span with this id for all lines that the request causes.

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::header::HeaderName;
use http::{HeaderValue, StatusCode};
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
    let (route, status) = (route.to_owned(), status_class(response.status()));
    metrics::counter!("bellbird_console_requests_total", "route" => route, "status" => status)
        .increment(1);
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
    response
}

/// As in `bellbird_requests_total`.
fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}
