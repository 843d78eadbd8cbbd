//! What the console listener serves: for now one page, which says what the listener is for and how connections are
//! managed until the console is there.

use axum::Router;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};

const PAGE: &str = include_str!("../assets/index.html");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";

/// The page at `/`, and 404 elsewhere. `api_url` is where the API can be reached.
pub fn router(api_url: &str) -> Router {
    // A configured URL, but still not to be trusted as HTML.
    let escaped = api_url.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;");
    let page = PAGE.replace("{api_url}", &escaped);
    Router::new()
        .route("/", get(move || std::future::ready(([(CONTENT_SECURITY_POLICY, POLICY)], Html(page.clone())))))
        .fallback(not_found)
}

async fn not_found() -> Response {
    let body = r#"{"error":{"message":"There is nothing at this path"}}"#;
    (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "application/json")], body).into_response()
}
