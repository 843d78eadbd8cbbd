//! The OpenAPI document of all doors of the API listener.

use std::sync::LazyLock;

use bellbird_api::openapi::Document;

#[must_use]
pub fn document() -> &'static Document {
    static DOCUMENT: LazyLock<Document> = LazyLock::new(|| Document::new(vec![bellbird_interop::export::documented()]));
    &DOCUMENT
}
