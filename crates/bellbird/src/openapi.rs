//! The OpenAPI document of all interfaces of the API listener.

use std::sync::LazyLock;

use bellbird_api::docs::Document;

#[must_use]
pub fn document() -> &'static Document {
    static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
        let paths = bellbird_api::documented()
            .into_iter()
            .chain(bellbird_interop::export::documented());
        Document::new(paths.collect())
    });
    &DOCUMENT
}
