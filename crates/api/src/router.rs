//! The paths of the API and their handlers.

use crate::front::routes::DoorTable;
use crate::front::{Credentials, Door};
use axum::response::IntoResponse as _;
use axum::routing::get;
use http::HeaderMap;

use crate::docs_page::{LOGO, SCRIPT, STYLE};
use crate::openapi::Document;
use crate::routes::{DOCS_LOGO_PATH, DOCS_SCRIPT_PATH, DOCS_STYLE_PATH, ROUTES};
use crate::state::AppState;
use crate::{docs_page, handlers, openapi};

/// `document` describes the paths of this door, and of others that answer below `/v1`.
pub fn door(state: AppState, document: &'static Document) -> Door {
    let page = docs_page::render(document, &state.inner.public_url);
    let (documented, _) = handlers::documented().split_for_parts();
    let router = documented
        .route("/openapi.json", get(move || openapi::serve_json(document)))
        .route("/openapi.yaml", get(move || openapi::serve_yaml(document)))
        .route("/docs", get(|headers: HeaderMap| async move { page.response(&headers) }))
        .route(DOCS_SCRIPT_PATH, get(|headers: HeaderMap| async move { SCRIPT.response(&headers) }))
        .route(DOCS_STYLE_PATH, get(|headers: HeaderMap| async move { STYLE.response(&headers) }))
        .route(DOCS_LOGO_PATH, get(|headers: HeaderMap| async move { LOGO.response(&headers) }))
        .with_state(state);
    let table = DoorTable {
        prefix: "/v1",
        routes: &ROUTES,
        credentials: Credentials::Bearer,
        deny: |problem| problem.into_response(),
    };
    Door { table, router }
}

#[cfg(test)]
mod tests {
    use crate::front::Class;

    use crate::handlers;
    use crate::routes::ROUTES;

    #[test]
    fn every_documented_path_has_a_route_class() {
        let paths = handlers::documented().into_openapi().paths.paths;
        assert_eq!(paths.len(), 8);
        for path in paths.keys() {
            let route = ROUTES.iter().find(|route| route.path == path).unwrap();
            assert_eq!(route.class == Class::Open, path == "/health", "{path}");
        }
    }
}
