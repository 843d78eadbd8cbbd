//! The OpenAPI document of all interfaces of the API listener.

use std::sync::LazyLock;

use bellbird_api::docs::Document;
use bellbird_interop::export;

pub fn document() -> &'static Document {
    static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
        Document::new(bellbird_api::documented().chain(export::routes().documented()))
    });
    &DOCUMENT
}
