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
pub mod inputs;
mod keys;
mod link_sessions;
mod list;
mod openapi;
mod setup_tokens;
mod state;
mod users;
mod webhook_endpoints;

use axum::response::Response;
use bellbird_api::docs::Document;
use bellbird_api::front::problem::json_response_with_message;
use bellbird_api::front::{Mount, Path, Problem};

pub use state::Admin;
pub use users::has_connections;

/// The interface of operators.
#[must_use]
pub fn mount(admin: &Admin) -> Mount {
    Mount::new("/admin")
        .guarded_for_operators()
        .with_errors(error_response)
        .add(admin, paths())
        .add(&(), openapi::paths(document, &admin.admin_url))
}

/// The OpenAPI document.
#[must_use]
pub fn document() -> &'static Document {
    openapi::document(paths)
}

/// In the order of the reference page.
fn paths() -> Vec<Path<Admin>> {
    [
        users::paths(),
        keys::paths(),
        setup_tokens::paths(),
        link_sessions::paths(),
        connections::paths(),
        webhook_endpoints::paths(),
        deliveries::paths(),
        audit::paths(),
    ]
    .into_iter()
    .flatten()
    .collect()
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
