//! Renders a page as a response.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderValue, StatusCode, Uri};
use jiff::SignedDuration;

use super::institution::ImageOrigins;

/// Seconds after which the browser reloads a page whose result or accounts are still unknown.
pub(crate) const REFRESH_AFTER: HeaderValue = HeaderValue::from_static("5");

/// As [`REFRESH_AFTER`], for a page that a form leads to. Its URL ends with a place on the page,
/// and a browser reloads such a page only by a URL without one. A page that waits for longer than a
/// minute is reloaded less often, so that one that is left open does not ask all the time.
pub(crate) fn refresh_of(uri: &Uri, waits_for: SignedDuration) -> HeaderValue {
    let seconds = (waits_for.as_secs() / 12).max(5);
    let url = format!("{seconds}; url=?{}", uri.query().unwrap_or_default());
    HeaderValue::try_from(url).unwrap_or(REFRESH_AFTER)
}

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

/// Renders a part of a streamed page. A failure of the template is logged, and leaves its part
/// empty.
pub(crate) fn rendered_part(template: &impl Template) -> String {
    template.render().unwrap_or_else(|error| {
        tracing::error!(%error, "could not render a part of a page");
        String::new()
    })
}
