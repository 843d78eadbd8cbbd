//! The OpenAPI document of the operator's API, and its reference page.

use std::sync::OnceLock;

use bellbird_api::docs::{self, DocsPaths, Document};
use bellbird_api::http::Routes;

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
    samples: include_str!("samples.yaml"),
};

/// The document, made when it is first asked for.
pub(crate) fn document(described: fn() -> Routes<Admin>) -> &'static Document {
    static DOCUMENT: OnceLock<Document> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        Document::for_operators(include_str!("openapi.yaml"), described().documented())
    })
}

pub(crate) fn routes(document: fn() -> &'static Document, public_url: &str) -> Routes<()> {
    docs::routes(document, public_url, &PATHS)
}
