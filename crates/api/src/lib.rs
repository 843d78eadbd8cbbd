//! The API listener: what its interfaces share, the JSON API below `/v1`, its documentation, and
//! the loop that accepts connections for every listener.

pub mod docs;
pub mod front;
pub mod serve;
pub mod v1;

use docs::Document;
use front::Mount;
use front::operation::PathDocs;

pub use v1::{ApiSettings, V1State};

/// The JSON API. `document` describes its paths, and those that other crates add to it.
pub fn mount(state: &V1State, document: fn() -> &'static Document) -> Mount {
    let docs = docs::paths(document, state.public_url(), &docs::V1_PATHS);
    Mount::new("/v1")
        .guarded()
        .add(state, v1::paths())
        .add(&(), docs)
}

/// The descriptions of the JSON API's own paths.
#[must_use]
pub fn documented() -> Vec<PathDocs> {
    v1::paths()
        .into_iter()
        .filter_map(front::Path::into_docs)
        .collect()
}
