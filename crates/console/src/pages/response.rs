//! Renders a page as a response.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;

pub(crate) fn page_response(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "could not render page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
