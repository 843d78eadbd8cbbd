//! The operator's API below `/admin/v1`: users, their keys, setup tokens, link sessions,
//! connections and webhook endpoints, and what operators did.
//!
//! No response holds financial data, opened credentials or an account number, and a key or a secret
//! only where it is created. A change commits together with its row in the audit and with the
//! response that a repeated request gets.

mod audit;
mod change;
mod connections;
mod deliveries;
mod inputs;
mod keys;
mod link_sessions;
mod list;
mod setup_tokens;
mod state;
mod users;
mod webhook_endpoints;

use std::sync::LazyLock;

use axum::response::Response;
use bellbird_domain::CurrentText;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::docs::{self, DocsPaths, Document};
use crate::http::problem::json_response_with_message;
use crate::http::{Interface, Problem, Routes, UnknownPath, WireStyle};

pub use state::Admin;

/// Pages in a browser cannot call it.
const STYLE: WireStyle = WireStyle {
    error: error_response,
    cors_headers: None,
    ..WireStyle::JSON
};

const DOCS: DocsPaths = DocsPaths {
    document: ["/admin/v1/openapi.json", "/admin/v1/openapi.yaml"],
    folder: "/admin",
    samples: include_str!("samples.yaml"),
};

/// The interface of operators.
pub fn interface(admin: &Admin) -> Interface {
    let urls = [&*admin.admin_url, ""].map(CurrentText::from);
    Interface::new(&admin.context, "/admin", STYLE, UnknownPath::Operators)
        .add(admin, routes())
        .add(&(), docs::routes(document, urls, &DOCS))
}

/// The OpenAPI document, made when it is first asked for.
pub fn document() -> &'static Document {
    static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
        Document::for_operators(include_str!("openapi.yaml"), routes().documented())
    });
    &DOCUMENT
}

/// In the order of the reference page.
fn routes() -> Routes<Admin> {
    let routes = OpenApiRouter::default()
        .routes(routes!(users::list_users, users::create_user))
        .routes(routes!(
            users::get_user,
            users::update_user,
            users::remove_user
        ))
        .routes(routes!(keys::list_keys, keys::create_key))
        .routes(routes!(keys::rotate_key))
        .routes(routes!(keys::revoke_key))
        .routes(routes!(
            setup_tokens::create_setup_token,
            setup_tokens::revoke_setup_tokens
        ))
        .routes(routes!(link_sessions::create_link_session))
        .routes(routes!(link_sessions::get_link_session))
        .routes(routes!(connections::list_connections))
        .routes(routes!(
            connections::get_connection,
            connections::remove_connection
        ))
        .routes(routes!(connections::sync_connection))
        .routes(routes!(
            webhook_endpoints::list_webhook_endpoints,
            webhook_endpoints::create_webhook_endpoint
        ))
        .routes(routes!(
            webhook_endpoints::get_webhook_endpoint,
            webhook_endpoints::update_webhook_endpoint,
            webhook_endpoints::remove_webhook_endpoint
        ))
        .routes(routes!(webhook_endpoints::rotate_webhook_secret))
        .routes(routes!(webhook_endpoints::ping_webhook_endpoint))
        .routes(routes!(deliveries::list_deliveries))
        .routes(routes!(deliveries::get_delivery))
        .routes(routes!(deliveries::redeliver))
        .routes(routes!(deliveries::recover))
        .routes(routes!(audit::list_audit));
    Routes::new().operators(routes)
}

/// The error object of `/v1`, always with its code.
fn error_response(problem: Problem) -> Response {
    let message = match &problem {
        Problem::Unauthorized => {
            "The operator key is missing or not valid: send the header \"Authorization: Bearer <key>\"".to_owned()
        }
        Problem::NoSuchPath => "Path not found: see /admin/docs for all paths".to_owned(),
        Problem::MethodNotAllowed => "Method not allowed: use one of those in the header Allow".to_owned(),
        other => other.message(),
    };
    json_response_with_message(problem, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    const CODES: [&str; 14] = [
        "invalid_key",
        "rate_limited",
        "invalid_parameters",
        "not_found",
        "no_such_path",
        "method_not_allowed",
        "conflict",
        "idempotency_conflict",
        "uri_too_long",
        "headers_too_large",
        "body_too_large",
        "provider_unavailable",
        "service_unavailable",
        "internal",
    ];

    #[test]
    fn template_has_the_codes_of_errors() {
        let header = &super::document().value()["components"]["headers"]["Bellbird-Error"];
        assert_eq!(header["schema"]["examples"], json!(CODES));
    }
}
