//! Maps every failure of the console to HTTP: a page for browsers, the API's error object for other
//! clients.

use std::sync::Arc;

use axum::Extension;
use axum::response::{IntoResponse, Response};
use bellbird_api::http::body::BodyError;
use bellbird_connections::{AppReturn, ConnectionsError};
use bellbird_management::Refusal;
use bellbird_storage::{Chain, StorageError};
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use crate::cookie::with_cookies;
use crate::local::is_loopback_url;
use crate::pages::{Notice, SignedInFrame, Tone, try_again_in};
use crate::state::Console;

/// `Retry-After` while a provider or the database is unavailable.
const PROVIDER_RETRY_AFTER_SECONDS: u64 = 10;
const STORAGE_RETRY_AFTER_SECONDS: u64 = 2;

/// Why a handler has no page of its own. As a response it has nothing to show, until a layer of the
/// router makes its page.
#[derive(Clone)]
pub(crate) enum Failure {
    NotFound,
    MethodNotAllowed,
    /// The link token is incomplete or made up, or its user or connection is gone.
    LinkNotFound,
    /// The user who is signed in has no such connection.
    BankNotFound,
    InvalidForm,
    FormBody(BodyError),
    /// Either another website submits the form, or somebody uses the console at another address
    /// than the configured one.
    CrossSite,
    /// Nobody is signed in. The cookie leads back to the page after a sign-in.
    NotSignedIn(Option<HeaderValue>),
    /// The user who is signed in has sent too many requests, in whatever browser. After so many
    /// seconds, one is allowed.
    TooManyOfUser(u64),
    /// The query of a callback is longer than the limit.
    QueryTooLong,
    /// A callback can complete a consent session, so it must not happen in advance.
    Prefetch,
    Internal,
    Refused(Arc<Refusal>),
}

/// What a handler shows.
pub(crate) type PageResult = Result<Response, Failure>;

/// Of the errors of operations, of connections and of the database.
impl<E: Into<Refusal>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Refused(Arc::new(error.into()))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, Extension(self)).into_response()
    }
}

impl Failure {
    /// Whether it is the page for a browser at an address without one.
    pub(crate) fn is_missing_page(&self, headers: &HeaderMap) -> bool {
        matches!(self, Self::NotFound | Self::BankNotFound) && accepts_html(headers)
    }
}

/// `menus`: of the user who is signed in. None: the page has none.
pub(crate) fn page_of(
    console: &Console,
    headers: &HeaderMap,
    failure: Failure,
    menus: Option<&SignedInFrame<'_>>,
) -> Response {
    let notice = match failure {
        Failure::NotFound if !accepts_html(headers) => {
            return json(StatusCode::NOT_FOUND, "Path not found");
        }
        Failure::MethodNotAllowed if !accepts_html(headers) => {
            let message = "Method not allowed: see the Allow header";
            return json(StatusCode::METHOD_NOT_ALLOWED, message);
        }
        Failure::NotFound => Notice::new(Tone::Neutral, "Page not found")
            .with("There is no page at this address.")
            .with_status(StatusCode::NOT_FOUND),
        Failure::MethodNotAllowed => Notice::new(Tone::Neutral, "That is not possible here")
            .with("Nothing was changed.")
            .with_status(StatusCode::METHOD_NOT_ALLOWED),
        Failure::LinkNotFound => {
            let why = "It is incomplete, or what it was for has been removed.";
            invalid_link("This link does not work", why).with_status(StatusCode::NOT_FOUND)
        }
        Failure::BankNotFound => removed_already().with_banks_link(),
        Failure::InvalidForm => Notice::new(Tone::Attention, "Choose one option")
            .with("The form did not name anything that can be done here. Nothing was changed.")
            .with_retry_link()
            .with_status(StatusCode::BAD_REQUEST),
        Failure::FormBody(error) => form_body_error(error),
        Failure::CrossSite => cross_site_form(&console.site.console_url),
        Failure::NotSignedIn(page) => return with_cookies(console.redirect("/sign-in"), [page]),
        Failure::TooManyOfUser(seconds) => {
            let why = "You have opened many pages or pressed many buttons within a minute. Nothing was changed.";
            too_often(why, seconds)
        }
        Failure::QueryTooLong => Notice::new(Tone::Attention, "This link does not work")
            .with("It is longer than any link that a provider uses. Nothing was changed.")
            .with_status(StatusCode::BAD_REQUEST),
        Failure::Prefetch => Notice::new(Tone::Neutral, "Open this page again")
            .with("Your browser loaded it before you opened it.")
            .with_retry_link()
            .with_status(StatusCode::SERVICE_UNAVAILABLE),
        Failure::Internal => internal_error(),
        Failure::Refused(refusal) => refused(&refusal),
    };
    match menus {
        Some(frame) => notice.response_with_menus(frame),
        None => notice.response(&console.frame),
    }
}

/// The API's error object, with a message only.
pub(crate) fn json(status: StatusCode, message: &'static str) -> Response {
    let body = json!({ "error": { "message": message } });
    (status, axum::Json(body)).into_response()
}

fn did_not_work(status: StatusCode, why: &str) -> Notice {
    Notice::new(Tone::Attention, "That did not work")
        .with(why)
        .with_retry_link()
        .with_status(status)
}

fn try_again(status: StatusCode, why: &str, retry_after_seconds: u64) -> Notice {
    Notice::new(Tone::Waiting, "Please try again in a moment")
        .with(why)
        .with_retry_link()
        .with_status(status)
        .with_retry_after(retry_after_seconds)
}

pub(crate) fn link_expired(back: Option<AppReturn>) -> Notice {
    invalid_link("This link has expired", "A link works for half an hour.").with_app_return(back)
}

pub(crate) fn link_used_up(back: Option<AppReturn>) -> Notice {
    let why = "It has led to consent pages as often as a link can.";
    invalid_link("This link is used up", why).with_app_return(back)
}

fn invalid_link(title: &str, why: &str) -> Notice {
    Notice::new(Tone::Attention, title)
        .with(why)
        .with("Ask for a new link where you got this one.")
        .with_new_link()
        .with_status(StatusCode::GONE)
}

/// The user of a link has no such connection.
pub(crate) fn connection_not_found() -> Notice {
    removed_already().with_return_link("Back to your link")
}

fn removed_already() -> Notice {
    Notice::new(Tone::Neutral, "It is removed already")
        .with("This bank is not linked any more. Nothing was changed.")
        .with_status(StatusCode::NOT_FOUND)
}

/// The client's address has used too many unknown links.
pub(crate) fn too_many_requests(retry_after_seconds: u64) -> Notice {
    let why = "Too many links that do not work were opened from your network.";
    too_often(why, retry_after_seconds)
}

fn too_often(why: &str, retry_after_seconds: u64) -> Notice {
    try_again(StatusCode::TOO_MANY_REQUESTS, why, retry_after_seconds)
        .with(&try_again_in(retry_after_seconds))
}

fn cross_site_form(console_url: &str) -> Notice {
    let title = "This did not come from a page of this console";
    let elsewhere = match is_loopback_url(console_url) {
        true => {
            " From another device, write the IP address or the .local name of the machine in the place of 127.0.0.1. \
             Any other name has to be in console.public_url."
        }
        // An operator may have entered it, and then nobody could enter another one.
        false => {
            " If nothing is there any more, the operator sets console.public_url to another one, and restarts Bellbird."
        }
    };
    Notice::new(Tone::Attention, title)
        .with("Another website may have tried to press a button for you. Nothing was changed.")
        .with(&format!(
            "If you pressed it yourself, open {console_url} in this browser, and press it there.{elsewhere}"
        ))
        .with_retry_link()
        .with_status(StatusCode::FORBIDDEN)
}

fn form_body_error(error: BodyError) -> Notice {
    let text = match error {
        BodyError::TooLarge => "The form is too large. The limit is 4 KiB.",
        BodyError::TooSlow => "The form was not received in time.",
        BodyError::Incomplete => "The form could not be read.",
    };
    did_not_work(error.status(), text)
}

fn connections_error(error: &ConnectionsError) -> Notice {
    if matches!(error, ConnectionsError::LinkExpired) {
        let why = "It has expired, is used up, or does not allow this. Nothing was changed.";
        return invalid_link("This link no longer works", why);
    }
    // The page says nothing of the cause, so that the operator needs it here.
    tracing::warn!(%error, "request of console failed");
    let message = error.user_message();
    if error.is_transient() {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return try_again(status, message, PROVIDER_RETRY_AFTER_SECONDS);
    }
    did_not_work(status_of(error), message)
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

/// Logged, and never shown.
fn storage_error(error: &StorageError) -> Notice {
    tracing::error!(error = %Chain(error), "{}", error.log_message());
    match error {
        StorageError::Unavailable(_) => try_again(
            StatusCode::SERVICE_UNAVAILABLE,
            "This service is temporarily unavailable.",
            STORAGE_RETRY_AFTER_SECONDS,
        ),
        _ => internal_error(),
    }
}

/// An operation that changed nothing.
fn refused(refusal: &Refusal) -> Notice {
    match refusal {
        Refusal::Storage(error) => storage_error(error),
        Refusal::Connections(error) => connections_error(error),
        Refusal::TooMany(text) => did_not_work(StatusCode::CONFLICT, text),
        // Another browser has removed it meanwhile.
        Refusal::NotFound(_) => did_not_work(StatusCode::NOT_FOUND, &format!("{refusal}.")),
        other => did_not_work(StatusCode::CONFLICT, &format!("{other}.")),
    }
}

fn internal_error() -> Notice {
    let why = "Something went wrong on our side.";
    did_not_work(StatusCode::INTERNAL_SERVER_ERROR, why)
        .with("The operator of this service can find the cause in its log.")
}

/// After a panic. The handler's state is lost, so there is no page.
pub(crate) fn panic_response() -> Response {
    json(
        StatusCode::INTERNAL_SERVER_ERROR,
        "Internal error: try again",
    )
}

fn accepts_html(headers: &HeaderMap) -> bool {
    let is_html = |accept: &HeaderValue| accept.to_str().is_ok_and(|one| one.contains("text/html"));
    headers.get_all(ACCEPT).iter().any(is_html)
}
