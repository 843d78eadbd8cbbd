//! The API listener: what its interfaces share, the JSON API below `/v1`, the operator's API below
//! `/admin/v1`, their documentation, and the loop that accepts connections for every listener.

pub mod admin;
pub mod docs;
pub mod http;
pub mod serve;
pub mod v1;

use bellbird_domain::CurrentText;
use docs::Document;
use http::{DocumentedRoutes, Interface, UnknownPath, WireStyle};

pub use v1::{ApiSettings, V1State};

/// The JSON API. `document` describes its routes, and those that other crates add to it.
pub fn interface(state: &V1State, document: fn() -> &'static Document) -> Interface {
    let urls = [&state.inner.public_url, &state.inner.console_url].map(CurrentText::clone);
    let docs = docs::routes(document, urls, &docs::V1_PATHS);
    Interface::new(state.context(), "/v1", WireStyle::JSON, UnknownPath::Users)
        .add(state, v1::routes())
        .add(&(), docs)
}

/// The documentation of the JSON API's own routes.
pub fn documented() -> impl Iterator<Item = DocumentedRoutes> {
    v1::routes().documented()
}
