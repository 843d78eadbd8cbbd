//! The reference page `/docs`, rendered once from the OpenAPI document, with its style sheet,
//! script and logo. The page loads nothing from other servers, and its script calls this API only.

mod contents;
mod schema;
mod text;

use std::io::Write as _;

use askama::Template as _;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue};

use crate::docs::{DocsPaths, Document};
use contents::Contents;
pub(super) use schema::example;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file in memory, also compressed.
pub(crate) struct File {
    content_type: &'static str,
    plain: Bytes,
    gzip: Bytes,
}

impl File {
    /// Renders the page. The first URL begins those of the `curl` lines, and the second one is the
    /// console's, or empty.
    pub(crate) fn page(document: &Document, urls: &[String; 2], docs: &DocsPaths) -> Self {
        let contents = Contents::new(document.value(), &document.paths, urls, docs);
        Self::new(
            "text/html; charset=utf-8",
            &contents.render().unwrap_or_default(),
        )
    }

    pub(crate) fn style() -> Self {
        let style = concat!(
            include_str!("../../../../../assets/base.css"),
            include_str!("docs.css")
        );
        Self::new("text/css; charset=utf-8", style)
    }

    pub(crate) fn script() -> Self {
        Self::new("text/javascript; charset=utf-8", include_str!("docs.js"))
    }

    pub(crate) fn logo() -> Self {
        Self::new(
            "image/svg+xml",
            include_str!("../../../../../assets/bellbird.svg"),
        )
    }

    fn new(content_type: &'static str, content: &str) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail.
        let gzip = encoder
            .write_all(content.as_bytes())
            .and_then(|()| encoder.finish())
            .unwrap_or_default();
        Self {
            content_type,
            plain: Bytes::copy_from_slice(content.as_bytes()),
            gzip: gzip.into(),
        }
    }

    /// The file, as gzip if the client accepts it.
    pub(crate) fn response(&self, request: &HeaderMap) -> Response {
        let accepted = request
            .get(ACCEPT_ENCODING)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("");
        let gzip = accepted.split(',').any(|coding| {
            coding.trim().split(';').next() == Some("gzip") && !coding.ends_with("q=0")
        });
        let body = if gzip { &self.gzip } else { &self.plain };
        let mut response = Response::new(Body::from(body.clone()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(
            CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=300"),
        );
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}
