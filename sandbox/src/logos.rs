//! `/logos/{id}.svg`: a logo for each institution, a coloured square with its initials. Real
//! providers serve logos from servers of their own. Not counted, and without faults.

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;

/// Below it are all of them.
pub(crate) const PREFIX: &str = "/logos/";

/// The URL of a logo at the provider with this base URL.
pub(crate) fn url(base_url: &str, id: &str) -> String {
    format!("{base_url}{PREFIX}{id}.svg")
}

/// `name_of` returns the name of the institution with an id.
pub(crate) fn routes(name_of: fn(&str) -> Option<&'static str>) -> Router {
    let show = async move |Path(file): Path<String>| -> Response {
        match file.strip_suffix(".svg").and_then(name_of) {
            Some(name) => ([(CONTENT_TYPE, "image/svg+xml")], svg(name)).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    };
    Router::new().route(&format!("{PREFIX}{{file}}"), get(show))
}

fn svg(name: &str) -> String {
    let initials: String = name
        .split(' ')
        .filter_map(|word| word.chars().next())
        .take(2)
        .collect();
    let hue = name
        .bytes()
        .fold(0_u32, |sum, byte| (sum * 31 + u32::from(byte)) % 360);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 48 48\"><rect width=\"48\" height=\"48\" \
         fill=\"hsl({hue} 55% 38%)\"/><text x=\"24\" y=\"31\" font-family=\"sans-serif\" font-size=\"20\" \
         font-weight=\"700\" text-anchor=\"middle\" fill=\"#fff\">{initials}</text></svg>"
    )
}
