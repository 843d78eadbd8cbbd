//! The outermost layer. It gives each request an id, which the response has as `X-Request-Id`, and a span with this id
//! for all lines that the request causes.

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
    let route = request.extensions().get::<MatchedPath>().map_or("(none)", MatchedPath::as_str);
    let span = tracing::error_span!("request", request_id = id, route);
    let mut response = next.run(request).instrument(span).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
    response
}
