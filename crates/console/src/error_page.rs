//! Maps every failure of the console to HTTP: a page for browsers, the API's error object for other
//! clients.

use std::collections::HashMap;

use axum::response::{IntoResponse, Response};
use bellbird_connections::{AppReturn, ConnectionsError};
use bellbird_management::Refusal;
use bellbird_storage::{Chain, StorageError};
use http::header::{ACCEPT, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::body::BodyError;
use crate::pages::{Notice, Tone, page_response};
use crate::state::Console;

/// `Retry-After` while a provider or the database is unavailable.
const PROVIDER_RETRY_AFTER_SECONDS: u64 = 10;
const STORAGE_RETRY_AFTER_SECONDS: u64 = 2;

const REQUEST_NEW_LINK: &str = "Ask for a new link where you got this one.";
const INTERNAL_ERROR: &str = "Something went wrong on our side.";
const SEE_LOG: &str = "The operator of this service can find the cause in its log.";

/// The API's error object, with a message only.
pub(crate) fn json(status: StatusCode, message: &'static str) -> Response {
    let body = HashMap::from([("error", HashMap::from([("message", message)]))]);
    (status, axum::Json(body)).into_response()
}

pub(crate) fn with_retry_after(mut response: Response, seconds: u64) -> Response {
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

fn page(console: &Console, status: StatusCode, notice: &Notice) -> Response {
    page_response(status, &notice.page(&console.inner.frame))
}

pub(crate) fn not_found(console: &Console, headers: &HeaderMap) -> Response {
    let status = StatusCode::NOT_FOUND;
    if !accepts_html(headers) {
        return json(status, "Path not found");
    }
    page(
        console,
        status,
        &Notice::new(Tone::Neutral, "Page not found").with("There is no page at this address."),
    )
}

pub(crate) fn method_not_allowed(console: &Console, headers: &HeaderMap) -> Response {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    if !accepts_html(headers) {
        return json(status, "Method not allowed: see the Allow header");
    }
    let notice =
        Notice::new(Tone::Neutral, "That is not possible here").with("Nothing was changed.");
    page(console, status, &notice)
}

/// The link token is incomplete or made up, or its user or connection is gone.
pub(crate) fn link_not_found(console: &Console) -> Response {
    let why = "It is incomplete, or what it was for has been removed.";
    page(
        console,
        StatusCode::NOT_FOUND,
        &invalid_link("This link does not work", why),
    )
}

pub(crate) fn link_expired(console: &Console, back: Option<AppReturn>) -> Response {
    let why = "A link works for half an hour.";
    page(
        console,
        StatusCode::GONE,
        &invalid_link("This link has expired", why).with_app_return(back),
    )
}

pub(crate) fn link_used_up(console: &Console, back: Option<AppReturn>) -> Response {
    let why = "It has led to consent pages as often as a link can.";
    page(
        console,
        StatusCode::GONE,
        &invalid_link("This link is used up", why).with_app_return(back),
    )
}

fn invalid_link(title: &str, why: &str) -> Notice {
    Notice::new(Tone::Attention, title)
        .with(why)
        .with(REQUEST_NEW_LINK)
        .with_new_link()
}

/// The user of a link has no such connection.
pub(crate) fn connection_not_found(console: &Console) -> Response {
    page(
        console,
        StatusCode::NOT_FOUND,
        &removed_already().with_return_link("Back to your link"),
    )
}

/// The user who is signed in has no such connection.
pub(crate) fn bank_not_found(console: &Console) -> Response {
    page(
        console,
        StatusCode::NOT_FOUND,
        &removed_already().with_banks_link(),
    )
}

fn removed_already() -> Notice {
    Notice::new(Tone::Neutral, "It is removed already")
        .with("This bank is not linked any more. Nothing was changed.")
}

/// The client's address has used too many unknown links.
pub(crate) fn too_many_requests(console: &Console, retry_after_seconds: u64) -> Response {
    let notice = Notice::new(Tone::Waiting, "Please try again in a moment")
        .with("Too many links that do not work were opened from your network.")
        .with_retry_link();
    with_retry_after(
        page(console, StatusCode::TOO_MANY_REQUESTS, &notice),
        retry_after_seconds,
    )
}

/// The user who is signed in has sent too many requests, in whatever browser.
pub(crate) fn too_many_of_user(console: &Console, retry_after_seconds: u64) -> Response {
    let notice = Notice::new(Tone::Waiting, "Please try again in a moment")
        .with("You have opened many pages or pressed many buttons within a minute. Nothing was changed.")
        .with_retry_link();
    with_retry_after(
        page(console, StatusCode::TOO_MANY_REQUESTS, &notice),
        retry_after_seconds,
    )
}

/// Rejects a prefetch. A callback can complete a consent session, so it must not happen in advance.
pub(crate) fn prefetch(console: &Console) -> Response {
    let notice = Notice::new(Tone::Neutral, "Open this page again")
        .with("Your browser loaded it before you opened it.")
        .with_retry_link();
    page(console, StatusCode::SERVICE_UNAVAILABLE, &notice)
}

/// Either another website submits it, or somebody uses the console at another address than the
/// configured one.
pub(crate) fn cross_site_form(console: &Console) -> Response {
    let url = &console.inner.site.console_url;
    let notice = Notice::new(
        Tone::Attention,
        "This did not come from a page of this console",
    )
    .with("Another website may have tried to press a button for you. Nothing was changed.")
    .with(&format!(
        "If you pressed it yourself, open {url} in this browser, and press it there."
    ))
    .with_retry_link();
    page(console, StatusCode::FORBIDDEN, &notice)
}

pub(crate) fn form_body_error(console: &Console, error: BodyError) -> Response {
    let (status, text) = match error {
        BodyError::TooLarge => (
            StatusCode::PAYLOAD_TOO_LARGE,
            "The form is too large. The limit is 4 KiB.",
        ),
        BodyError::TimedOut => (
            StatusCode::REQUEST_TIMEOUT,
            "The form was not received in time.",
        ),
        BodyError::Incomplete => (StatusCode::BAD_REQUEST, "The form could not be read."),
    };
    page(
        console,
        status,
        &Notice::new(Tone::Attention, "That did not work")
            .with(text)
            .with_retry_link(),
    )
}

pub(crate) fn invalid_form(console: &Console) -> Response {
    let notice = Notice::new(Tone::Attention, "Choose one option")
        .with("The form did not name anything that can be done here. Nothing was changed.")
        .with_retry_link();
    page(console, StatusCode::BAD_REQUEST, &notice)
}

/// The query of a callback is longer than the limit.
pub(crate) fn query_too_long(console: &Console) -> Response {
    let notice = Notice::new(Tone::Attention, "This link does not work")
        .with("It is longer than any link that a provider uses. Nothing was changed.");
    page(console, StatusCode::BAD_REQUEST, &notice)
}

/// A database error is logged and never shown.
pub(crate) fn connections_error(console: &Console, error: &ConnectionsError) -> Response {
    if let ConnectionsError::Storage(error) = error {
        return storage_error(console, error);
    }
    if matches!(error, ConnectionsError::LinkExpired) {
        let why = "It has expired, is used up, or does not allow this. Nothing was changed.";
        return page(
            console,
            StatusCode::GONE,
            &invalid_link("This link no longer works", why),
        );
    }
    // The page says nothing of the cause, so that the operator needs it here.
    tracing::warn!(%error, "request of console failed");
    let message = error.user_message();
    if error.is_transient() {
        let notice = Notice::new(Tone::Waiting, "Please try again in a moment")
            .with(message)
            .with_retry_link();
        let response = page(console, StatusCode::SERVICE_UNAVAILABLE, &notice);
        return with_retry_after(response, PROVIDER_RETRY_AFTER_SECONDS);
    }
    let notice = Notice::new(Tone::Attention, "That did not work")
        .with(message)
        .with_retry_link();
    page(console, status_of(error), &notice)
}

fn status_of(error: &ConnectionsError) -> StatusCode {
    use ConnectionsError::{
        AlreadyConnected, ConsentInactive, ConsentNotFound, InvalidCredentials, NoAccounts,
        NotFound, NotInPlan, Provider,
    };
    match error {
        Provider(_) | ConsentInactive(_) | InvalidCredentials(_) | ConsentNotFound | NoAccounts => {
            StatusCode::BAD_GATEWAY
        }
        NotFound => StatusCode::NOT_FOUND,
        NotInPlan { .. } => StatusCode::FORBIDDEN,
        AlreadyConnected => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

pub(crate) fn storage_error(console: &Console, error: &StorageError) -> Response {
    if let StorageError::TooMany(text) = error {
        let notice = Notice::new(Tone::Attention, "That did not work")
            .with(text)
            .with_retry_link();
        return page(console, StatusCode::CONFLICT, &notice);
    }
    tracing::error!(error = %Chain(error), "{}", error.log_message());
    if !matches!(error, StorageError::Unavailable(_)) {
        return internal_error(console);
    }
    let notice = Notice::new(Tone::Waiting, "Please try again in a moment")
        .with("This service is temporarily unavailable.")
        .with_retry_link();
    with_retry_after(
        page(console, StatusCode::SERVICE_UNAVAILABLE, &notice),
        STORAGE_RETRY_AFTER_SECONDS,
    )
}

/// An operation of management that changed nothing.
pub(crate) fn refused(console: &Console, refusal: Refusal) -> Response {
    match refusal {
        Refusal::Storage(error) => storage_error(console, &error),
        Refusal::TooMany(text) => storage_error(console, &StorageError::TooMany(text)),
        Refusal::Connections(error) => connections_error(console, &error),
        other => {
            let notice = Notice::new(Tone::Attention, "That did not work")
                .with(&format!("{other}."))
                .with_retry_link();
            page(console, StatusCode::CONFLICT, &notice)
        }
    }
}

pub(crate) fn internal_error(console: &Console) -> Response {
    let notice = Notice::new(Tone::Attention, "That did not work")
        .with(INTERNAL_ERROR)
        .with(SEE_LOG)
        .with_retry_link();
    page(console, StatusCode::INTERNAL_SERVER_ERROR, &notice)
}

/// After a panic. The handler's state is lost, so there is no page.
pub(crate) fn panic_response() -> Response {
    json(
        StatusCode::INTERNAL_SERVER_ERROR,
        "Internal error: try again",
    )
}

fn accepts_html(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|accept| {
        accept
            .to_str()
            .is_ok_and(|accept| accept.contains("text/html"))
    })
}
