//! The reference page `/docs`: one page, one script and one style sheet, all embedded. The page loads nothing from
//! other servers. The script is RapiDoc 9.3.8 (MIT, `assets/rapidoc.LICENSE.txt`), embedded as gzip.

use std::io::Read;
use std::sync::LazyLock;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue};

static PAGE: &[u8] = include_bytes!("../assets/docs.html");
static STYLE: &[u8] = include_bytes!("../assets/docs.css");
static SCRIPT_GZIP: &[u8] = include_bytes!("../assets/rapidoc-min.js.gz");
static SCRIPT: LazyLock<Bytes> = LazyLock::new(|| {
    let mut script = Vec::new();
    let read = GzDecoder::new(SCRIPT_GZIP).read_to_end(&mut script);
    if read.is_err() {
        script.clear();
    }
    script.into()
});

/// `'unsafe-inline'` is for RapiDoc, which sets styles from its script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
                      img-src 'self' data:; connect-src 'self'; font-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn static_file(body: &'static [u8], content_type: &'static str, cache: &'static str) -> Response {
    let mut response = Response::new(Body::from(Bytes::from_static(body)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// `GET /docs`
pub(crate) async fn serve_page() -> Response {
    let mut response = static_file(PAGE, "text/html; charset=utf-8", "public, max-age=300");
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// `GET /docs/page.css`
pub(crate) async fn serve_style() -> Response {
    static_file(STYLE, "text/css; charset=utf-8", "public, max-age=300")
}

/// The script, as gzip if the client accepts it.
pub(crate) async fn serve_script(headers: HeaderMap) -> Response {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    let gzip =
        accepted.split(',').any(|coding| coding.trim().split(';').next() == Some("gzip") && !coding.ends_with("q=0"));
    let mut response =
        static_file(SCRIPT_GZIP, "text/javascript; charset=utf-8", "public, max-age=31536000, immutable");
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    if gzip {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    } else {
        *response.body_mut() = Body::from(SCRIPT.clone());
    }
    response
}
