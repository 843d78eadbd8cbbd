//! Adds security headers to every response. They forbid caching, framing by other pages, and
//! sending link URLs to other sites as `Referer`.

use axum::response::Response;
use http::HeaderValue;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};

use crate::pages::ImageOrigins;

/// With `no-referrer`, browsers would send `Origin: null` with the console's own forms.
const SECURITY_HEADERS: [(HeaderName, &str); 4] = [
    (REFERRER_POLICY, "same-origin"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
];

pub(crate) async fn add(mut response: Response) -> Response {
    let images = response.extensions_mut().remove::<ImageOrigins>();
    let policy = HeaderValue::try_from(policy(&images.unwrap_or_default())).ok();
    let headers = response.headers_mut();
    // The pages of simulated providers have a stricter one, with the hash of their style.
    headers
        .entry(CONTENT_SECURITY_POLICY)
        .or_insert_with(|| policy.unwrap_or(HeaderValue::from_static("default-src 'none'")));
    for (name, value) in SECURITY_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Has no `form-action`, because browsers also apply it to the redirect after a form, which goes to
/// the provider.
fn policy(images: &ImageOrigins) -> String {
    let origins = images.0.iter().map(|origin| format!(" {origin}"));
    let origins: String = origins.collect();
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:{origins}; base-uri 'none'; \
         frame-ancestors 'none'"
    )
}
