//! A SimpleFIN server: programs claim an API key with a setup token, and read accounts with it.
//!
//! docs/simplefin.md says how data is mapped, and why.

mod accounts;
mod amounts;
mod claim;
mod collect;
mod findings;
mod history;
mod memory;
mod params;
mod posted;
mod view;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::{get, post};
use bellbird_api::front::routes::{DoorTable, post_route};
use bellbird_api::front::{Class, Credentials, Door, Problem, Route, route};
use bellbird_domain::SetupToken;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use tokio::sync::Semaphore;

pub(crate) use memory::Memory;

use crate::Interop;

/// Some clients require this in the URL.
const ROOT_PATH: &str = "/simplefin";
/// Claims that query their token at the same time. They must leave database connections to others.
const CLAIMS_MAX: usize = 4;

static ROUTES: [Route; 4] = [
    route("/simplefin/info", Class::Open),
    route("/simplefin/create", Class::Open),
    post_route("/simplefin/claim/{token}", Class::Open),
    route("/simplefin/accounts", Class::SimpleFin),
];

/// The state of the handlers. Cheap to clone.
#[derive(Clone)]
struct SimpleFin {
    interop: Interop,
    inner: Arc<Inner>,
}

struct Inner {
    /// The public URL of this door.
    root_url: String,
    claims: Semaphore,
}

pub(crate) fn door(interop: Interop) -> Door {
    let table = DoorTable { prefix: ROOT_PATH, routes: &ROUTES, credentials: Credentials::Basic, deny };
    let inner =
        Inner { root_url: format!("{}{ROOT_PATH}", interop.settings.public_url), claims: Semaphore::new(CLAIMS_MAX) };
    let router = Router::new()
        .route("/simplefin/info", get(info))
        .route("/simplefin/create", get(create))
        .route("/simplefin/claim/{token}", post(claim::claim))
        .route("/simplefin/accounts", get(accounts::list_accounts))
        .with_state(SimpleFin { interop, inner: Arc::new(inner) });
    Door { table, router }
}

/// The URL that a setup token stands for. `public_url` is that of the API.
#[must_use]
pub fn claim_url(public_url: &str, token: &SetupToken) -> String {
    format!("{public_url}{ROOT_PATH}/claim/{}", token.expose())
}

async fn info() -> Response {
    response(StatusCode::OK, "application/json", r#"{"versions":["1.0","2.0"]}"#)
}

/// Says how to get a setup token.
async fn create() -> Response {
    const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                          frame-ancestors 'none'";
    static PAGE: LazyLock<String> = LazyLock::new(|| {
        include_str!("create.html")
            .replace("/* STYLE */", include_str!("../../../../assets/base.css"))
            .replace("<!-- LOGO -->", include_str!("../../../../assets/bellbird.svg"))
    });
    let mut response = response(StatusCode::OK, "text/html; charset=utf-8", PAGE.as_str());
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// Errors are plain text. Actual takes JSON for an account set, and advises to unlink the accounts.
fn deny(problem: Problem) -> Response {
    let retry_after = problem.retry_after();
    let (status, message) = match problem {
        Problem::Unauthorized => (StatusCode::FORBIDDEN, "Forbidden".to_owned()),
        Problem::PlanRequired | Problem::ProfessionalRequired => {
            (StatusCode::PAYMENT_REQUIRED, format!("Payment required: {}", problem.message()))
        }
        Problem::NoSuchPath => (StatusCode::NOT_FOUND, "Path not found".to_owned()),
        Problem::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "Method not allowed".to_owned()),
        Problem::BadRequest { message, details } => {
            (StatusCode::BAD_REQUEST, format!("{message}\n{}", details.join("\n")))
        }
        other => (other.status(), other.message()),
    };
    let mut response = text(status, message);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
    response
}

fn text(status: StatusCode, text: String) -> Response {
    response(status, "text/plain; charset=utf-8", text)
}

fn response(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
