//! The only place of the console where a failure becomes HTTP: a page for browsers, the API's error object for the rest.

use axum::response::{IntoResponse, Response};
use bellbird_connections::ConnectionsError;
use bellbird_storage::{Chain, StorageError};
use http::header::{ACCEPT, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;

use crate::Console;
use crate::body::Unread;
use crate::pages::{Notice, Tone, answer};

/// How long a browser is asked to wait for a provider, and for our own database.
const PROVIDER_RETRY_AFTER_SECONDS: u64 = 10;
const STORAGE_RETRY_AFTER_SECONDS: u64 = 2;

const LINK_COMMAND: &str = "bellbird connection link --user you@example.com";
const NOT_COMPLETE: &str = "It has expired, was used up, or is not complete.";
const ASK_FOR_ANOTHER: &str = "Ask for a new one where you got it. In a terminal that is:";
const OUR_FAULT: &str = "Something went wrong on our side.";
const IN_THE_LOG: &str = "Whoever runs this service finds the cause in its log.";

#[derive(Serialize)]
struct ErrorBody {
    error: ErrorObject,
}

#[derive(Serialize)]
struct ErrorObject {
    message: &'static str,
}

/// The error object.
pub(crate) fn json(status: StatusCode, message: &'static str) -> Response {
    (status, axum::Json(ErrorBody { error: ErrorObject { message } })).into_response()
}

/// An answer that says when to come again.
pub(crate) fn with_retry_after(mut response: Response, seconds: u64) -> Response {
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

fn page(console: &Console, status: StatusCode, notice: &Notice) -> Response {
    answer(status, &notice.page(&console.inner.assets))
}

/// Nothing at this path.
pub(crate) fn nothing_here(console: &Console, headers: &HeaderMap) -> Response {
    let status = StatusCode::NOT_FOUND;
    if !takes_html(headers) {
        return json(status, "There is nothing at this path");
    }
    page(console, status, &Notice::new(Tone::Neutral, "There is nothing here").with("No page has this address."))
}

/// A method that the path does not know.
pub(crate) fn wrong_method(console: &Console, headers: &HeaderMap) -> Response {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    if !takes_html(headers) {
        return json(status, "This path does not take this method: see the Allow header");
    }
    let notice = Notice::new(Tone::Neutral, "That is not possible here").with("Nothing was changed.");
    page(console, status, &notice)
}

/// An address that is none, or no longer.
pub(crate) fn no_such_address(console: &Console) -> Response {
    page(console, StatusCode::NOT_FOUND, &ended_address())
}

fn ended_address() -> Notice {
    Notice::new(Tone::Attention, "This address does not work any more")
        .with(NOT_COMPLETE)
        .with(ASK_FOR_ANOTHER)
        .with_command(LINK_COMMAND)
}

/// A browser that only looks ahead.
pub(crate) fn prefetched(console: &Console) -> Response {
    let notice = Notice::new(Tone::Neutral, "Not yet").with("This page is made when you open it.").with_way_back();
    page(console, StatusCode::SERVICE_UNAVAILABLE, &notice)
}

/// A form that another site sent.
pub(crate) fn from_elsewhere(console: &Console) -> Response {
    let notice = Notice::new(Tone::Attention, "That came from another site")
        .with("Another website tried to press a button for you. Nothing was changed.")
        .with("To link an account, press the button on this page yourself.")
        .with_way_back();
    page(console, StatusCode::FORBIDDEN, &notice)
}

/// A form that could not be read.
pub(crate) fn form_unread(console: &Console, unread: Unread) -> Response {
    let (status, text) = match unread {
        Unread::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The form is too large: at most 4 KiB are read."),
        Unread::TooSlow => (StatusCode::REQUEST_TIMEOUT, "The form took too long to arrive."),
        Unread::Broken => (StatusCode::BAD_REQUEST, "The form could not be read."),
    };
    page(console, status, &Notice::new(Tone::Attention, "That did not work").with(text).with_way_back())
}

/// A form without exactly one choice.
pub(crate) fn wrong_form(console: &Console) -> Response {
    let notice = Notice::new(Tone::Attention, "That is not a choice")
        .with("The form named nothing that can be linked here. Nothing was changed.")
        .with_way_back();
    page(console, StatusCode::BAD_REQUEST, &notice)
}

/// A return from a provider with more in its address than is read.
pub(crate) fn long_query(console: &Console) -> Response {
    let notice = Notice::new(Tone::Attention, "This address is not one of ours")
        .with("It is longer than any that a provider sends you back with. Nothing was changed.");
    page(console, StatusCode::BAD_REQUEST, &notice)
}

/// What went wrong in a connection's life. Of our database, nothing is told.
pub(crate) fn failed(console: &Console, error: &ConnectionsError) -> Response {
    if let ConnectionsError::Storage(error) = error {
        return database_failed(console, error);
    }
    if matches!(error, ConnectionsError::AddressEnded) {
        return page(console, StatusCode::GONE, &ended_address());
    }
    let said = error.for_people();
    if error.is_passing() {
        let notice = Notice::new(Tone::Waiting, "Not at the moment").with(said).with_way_back();
        let response = page(console, StatusCode::SERVICE_UNAVAILABLE, &notice);
        return with_retry_after(response, PROVIDER_RETRY_AFTER_SECONDS);
    }
    let notice = Notice::new(Tone::Attention, "That did not work").with(said).with_way_back();
    page(console, status_of(error), &notice)
}

fn status_of(error: &ConnectionsError) -> StatusCode {
    use ConnectionsError::{BadGrant, Broken, NoAccounts, NoConsent, NotFound, Provider, Taken};
    match error {
        Provider(_) | Broken(_) | BadGrant(_) | NoConsent | NoAccounts => StatusCode::BAD_GATEWAY,
        NotFound => StatusCode::NOT_FOUND,
        Taken => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn database_failed(console: &Console, error: &StorageError) -> Response {
    tracing::error!(error = %Chain(error), "database failed");
    if !matches!(error, StorageError::Unavailable(_)) {
        return broke(console);
    }
    let notice = Notice::new(Tone::Waiting, "Not at the moment")
        .with("This service is not available for a moment.")
        .with_way_back();
    with_retry_after(page(console, StatusCode::SERVICE_UNAVAILABLE, &notice), STORAGE_RETRY_AFTER_SECONDS)
}

/// A fault of ours.
pub(crate) fn broke(console: &Console) -> Response {
    let notice = Notice::new(Tone::Attention, "That did not work").with(OUR_FAULT).with(IN_THE_LOG).with_way_back();
    page(console, StatusCode::INTERNAL_SERVER_ERROR, &notice)
}

/// A fault of ours, where no page can be made any more.
pub(crate) fn panicked() -> Response {
    json(StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong on our side")
}

fn takes_html(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|accept| accept.to_str().is_ok_and(|accept| accept.contains("text/html")))
}
