//! A SimpleFIN server: programs claim an API key with a setup token, and read accounts with it.
//!
//! docs/simplefin.md says how data is mapped, and why.

mod accounts;
mod amounts;
mod claim;
mod findings;
mod memory;
mod params;
mod posted;
mod read;
mod view;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_api::http::{
    ApiContext, Interface, Problem, QuotaClass, Routes, UnknownPath, UserState, WireStyle,
    authorization,
};
use bellbird_domain::ApiKey;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::Semaphore;

use crate::{Interop, InteropSettings};
use memory::Memory;

/// Some clients require this in the URL.
pub(crate) const ROOT_PATH: &str = "/simplefin";
/// JSON of accounts, of all requests, that is read or waits for its client.
const JSON_BYTES_MAX: usize = 128 * 1024 * 1024;

/// What only the handlers of this interface need.
pub(crate) struct SimpleFin {
    /// Accounts with rows, read from providers.
    quota: QuotaClass,
    /// Bytes.
    json_room: Arc<Semaphore>,
    pub(crate) memory: Memory,
}

impl SimpleFin {
    pub(crate) fn new(context: &ApiContext, settings: InteropSettings) -> Self {
        let calls = settings.simplefin_per_minute;
        let quota = QuotaClass::per_minute("simplefin", calls, context.shared_store());
        Self {
            quota: quota.with_permit(),
            json_room: Arc::new(Semaphore::new(JSON_BYTES_MAX)),
            memory: Memory::new(),
        }
    }
}

const STYLE: WireStyle = WireStyle {
    key: basic_key,
    error: error_response,
    ..WireStyle::JSON
};

pub(crate) fn interface(interop: &Interop) -> Interface {
    let open: Router<Interop> = Router::new()
        .route("/simplefin/info", get(info))
        .route("/simplefin/create", get(create))
        .route("/simplefin/claim/{token}", post(claim::claim));
    let accounts: Router<UserState<Interop>> =
        Router::new().route("/simplefin/accounts", get(accounts::list_accounts));
    let routes = Routes::new()
        .open(open)
        .users(|interop: &Interop| &interop.simplefin.quota, accounts);
    Interface::new(&interop.context, ROOT_PATH, STYLE, UnknownPath::Public).add(interop, routes)
}

/// The key that is the password of the `Authorization: Basic` header. The user name is ignored.
fn basic_key(headers: &HeaderMap) -> Option<ApiKey> {
    let decoded = STANDARD.decode(authorization(headers, "basic")?).ok()?;
    let (_user, password) = str::from_utf8(&decoded).ok()?.split_once(':')?;
    ApiKey::parse(password).ok()
}

async fn info() -> Response {
    response(
        StatusCode::OK,
        "application/json",
        r#"{"versions":["1.0","2.0"]}"#,
    )
}

/// Says how to get a setup token.
async fn create() -> Response {
    const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                          frame-ancestors 'none'";
    static PAGE: LazyLock<String> = LazyLock::new(|| {
        include_str!("create.html")
            .replace("/* STYLE */", include_str!("../../../../assets/base.css"))
            .replace(
                "<!-- LOGO -->",
                include_str!("../../../../assets/bellbird.svg"),
            )
    });
    let mut response = response(StatusCode::OK, "text/html; charset=utf-8", PAGE.as_str());
    response
        .headers_mut()
        .insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// The same for whatever is missing, unknown, used, expired or revoked, so that nobody learns which
/// tokens there were.
const FORBIDDEN: &str = "Forbidden: no setup token or access URL that is valid was sent. A setup token works once, \
    for an hour: make a new one where you got it\n";

/// Errors are plain text. Actual takes JSON for an account set, and advises to unlink the accounts.
fn error_response(problem: Problem) -> Response {
    let retry_after = problem.retry_after();
    let (status, message) = match problem {
        Problem::Unauthorized => (StatusCode::FORBIDDEN, FORBIDDEN.to_owned()),
        Problem::PlanRequired | Problem::ProfessionalRequired => (
            StatusCode::PAYMENT_REQUIRED,
            format!("Payment required: {}", problem.message()),
        ),
        Problem::NoSuchPath => (StatusCode::NOT_FOUND, "Path not found".to_owned()),
        Problem::MethodNotAllowed => (
            StatusCode::METHOD_NOT_ALLOWED,
            "Method not allowed".to_owned(),
        ),
        Problem::BadRequest { message, details } => (
            StatusCode::BAD_REQUEST,
            format!("{message}\n{}", details.join("\n")),
        ),
        other => (other.status(), other.message()),
    };
    let mut response = text(status, message);
    if let Some(seconds) = retry_after {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
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

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;

    use super::*;

    #[test]
    fn basic_key_is_the_password() {
        let key = ApiKey::from_random([7; 32]).expose().to_owned();
        let read = |scheme: &str, text: &str| {
            let mut headers = HeaderMap::new();
            let line = format!("{scheme} {}", STANDARD.encode(text));
            headers.append(AUTHORIZATION, HeaderValue::from_str(&line).unwrap());
            basic_key(&headers).map(|key| key.expose().to_owned())
        };
        assert_eq!(read("Basic", &format!("anyone:{key}")), Some(key.clone()));
        assert_eq!(read("basic", &format!(":{key}")), Some(key.clone()));
        assert_eq!(read("Basic", &key), None);
        assert_eq!(read("Basic", ":"), None);
        assert_eq!(read("Bearer", &format!("anyone:{key}")), None);
        assert_eq!(read("Basic", &format!("{key}:anyone")), None);
    }
}
