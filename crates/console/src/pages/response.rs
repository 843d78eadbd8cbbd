//! Renders a page as a response.

use askama::Template;
use axum::body::Body;
use axum::response::{Html, IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, StatusCode};

use super::institution::ImageOrigins;

/// Seconds after which the browser reloads a page whose result or accounts are still unknown.
pub(crate) const REFRESH_AFTER: HeaderValue = HeaderValue::from_static("5");

const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub(crate) fn page_response(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "could not render page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A page with images from other servers, which `security_headers.rs` adds to its policy.
pub(crate) fn page_with_images(
    status: StatusCode,
    page: &impl Template,
    origins: ImageOrigins,
) -> Response {
    let mut response = page_response(status, page);
    response.extensions_mut().insert(origins);
    response
}

/// A page that is sent while its parts are still being read.
pub(crate) fn streamed_page(body: Body) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    // nginx would hold the first part back until the others are there.
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Renders a part of a streamed page. A failure of the template is logged, and leaves its part
/// empty.
pub(crate) fn rendered_part(template: &impl Template) -> String {
    template.render().unwrap_or_else(|error| {
        tracing::error!(%error, "could not render a part of a page");
        String::new()
    })
}
