//! The OpenAPI document of the operator's API, and its reference page.

use std::sync::OnceLock;

use bellbird_api::docs::{self, DocsPaths, Document};
use bellbird_api::front::Path;

use crate::state::Admin;

const PATHS: DocsPaths = DocsPaths {
    document: ["/admin/v1/openapi.json", "/admin/v1/openapi.yaml"],
    page: [
        "/admin/docs",
        "/admin/docs/page.js",
        "/admin/docs/page.css",
        "/admin/docs/logo.svg",
    ],
    folder: "/admin",
};

/// The document, made of `described` when it is first asked for.
pub(crate) fn document(described: fn() -> Vec<Path<Admin>>) -> &'static Document {
    static DOCUMENT: OnceLock<Document> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let described = described().into_iter().filter_map(Path::into_docs);
        Document::for_operators(include_str!("openapi.yaml"), described.collect())
    })
}

pub(crate) fn paths(document: fn() -> &'static Document, public_url: &str) -> Vec<Path<()>> {
    docs::paths(document, public_url, &PATHS)
}
