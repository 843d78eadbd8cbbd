//! `/setup`: the first start of a service. A code from its log opens the page in one browser, for
//! an hour, and makes the first operator there. Once there is an operator, or for a database of no
//! first start, there is no page at these addresses.

use std::sync::atomic::Ordering;

use askama::Template;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_domain::Actor;
use bellbird_limits::gcra;
use bellbird_management::first_start::{self, FirstOperator};
use bellbird_management::{Refusal, values};
use bellbird_storage::{FirstStart, StorageError};
use http::header::{LOCATION, SET_COOKIE};
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::error_page;
use crate::operator::SETUP_PATH;
use crate::pages::{Frame, Notice, Tone, page_response};
use crate::prefetch::is_prefetch;
use crate::session::GuestForm;
use crate::sign_in::{BrowserSession, record_sign_in};
use crate::state::Console;

#[derive(Template)]
#[template(path = "setup.html")]
struct SetupPage<'a> {
    frame: &'a Frame,
    /// None: the browser has a code that it has not used.
    form: Option<OperatorFields<'a>>,
}

/// What the form has, as it was sent.
#[derive(Default)]
struct OperatorFields<'a> {
    email: &'a str,
    timezone: &'a str,
    /// The field, and what it must be.
    problem: Option<(&'static str, String)>,
}

impl OperatorFields<'_> {
    fn has_problem(&self, field: &str) -> bool {
        self.problem.as_ref().is_some_and(|(of, _)| *of == field)
    }

    fn problem(&self) -> &str {
        self.problem.as_ref().map_or("", |(_, text)| text)
    }
}

/// A first start without an operator. None, and this process does not ask again once it is over:
/// there is none.
async fn find(console: &Console) -> Result<Option<FirstStart>, StorageError> {
    let is_over = &console.inner.is_setup_over;
    if is_over.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let lookup = console.storage().first_start().find();
    let found = console.inner.connections.unverified_read(lookup).await?;
    let found = found.filter(FirstStart::awaits_operator);
    is_over.store(found.is_none(), Ordering::Relaxed);
    Ok(found)
}

/// Whether nobody can sign in, because a first start has made no operator yet.
pub(crate) async fn awaits_operator(console: &Console) -> Result<bool, StorageError> {
    Ok(find(console).await?.is_some())
}

/// `GET /setup/{code}`
pub(crate) async fn open(
    State(console): State<Console>,
    headers: HeaderMap,
    extensions: Extensions,
    code: Result<Path<String>, PathRejection>,
) -> Response {
    let found = match find(&console).await {
        Ok(Some(found)) => found,
        Ok(None) => return error_page::not_found(&console, &headers),
        Err(error) => return error_page::storage_error(&console, &error),
    };
    if is_prefetch(&headers) {
        return error_page::prefetch(&console);
    }
    let now = console.inner.context.clock().now();
    if has_claim(&console, &found, &headers, now) {
        return Redirect::to(&console.path("/setup")).into_response();
    }
    match code {
        Ok(Path(code)) if found.has_code(&code, now) => {
            let response = page(&console, StatusCode::OK, None);
            // Not the one that the browser has, which without TLS may be from another program on
            // this host.
            with_cookie(&console, response, &bellbird_storage::new_token())
        }
        _ => wrong_code(&console, &extensions, &headers, now).await,
    }
}

/// `POST /setup/{code}`: binds the first start to this browser, by the cookie of the page. If the
/// response is lost, the browser has its claim, and goes on with the same form.
pub(crate) async fn claim(
    State(console): State<Console>,
    extensions: Extensions,
    code: Result<Path<String>, PathRejection>,
    form: GuestForm,
) -> Response {
    let headers = &form.headers;
    let found = match find(&console).await {
        Ok(Some(found)) => found,
        Ok(None) => return error_page::not_found(&console, headers),
        Err(error) => return error_page::storage_error(&console, &error),
    };
    let now = console.inner.context.clock().now();
    if has_claim(&console, &found, headers, now) {
        return Redirect::to(&console.path("/setup")).into_response();
    }
    // Before the transaction, which takes SQLite's one writer.
    let code = match code {
        Ok(Path(code)) if found.has_code(&code, now) => code,
        _ => return wrong_code(&console, &extensions, headers, now).await,
    };
    let Some(browser) = console.inner.cookie.value(headers) else {
        return Redirect::to(&console.path(&format!("/setup/{code}"))).into_response();
    };
    let claimed = async {
        let storage = console.storage();
        let mut change = storage.begin_change(Actor::first_start(), now).await?;
        first_start::claim(&mut change, &code, browser).await?;
        Ok(change.commit().await?)
    };
    let to_form = || Redirect::to(&console.path("/setup")).into_response();
    match claimed.await {
        Ok(()) => {
            tracing::warn!("first start claimed by a browser");
            to_form()
        }
        Err(Refusal::NoFirstStart) => match find(&console).await {
            // The same form, sent twice at once.
            Ok(Some(found)) if has_claim(&console, &found, headers, now) => to_form(),
            _ => wrong_code(&console, &extensions, headers, now).await,
        },
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

/// `GET /setup`
pub(crate) async fn show(State(console): State<Console>, headers: HeaderMap) -> Response {
    let now = console.inner.context.clock().now();
    match find(&console).await {
        Ok(Some(found)) if has_claim(&console, &found, &headers, now) => {
            page(&console, StatusCode::OK, Some(OperatorFields::default()))
        }
        Ok(_) => error_page::not_found(&console, &headers),
        Err(error) => error_page::storage_error(&console, &error),
    }
}

/// `POST /setup`, with the fields `email` and `timezone`: makes the operator, signed in.
pub(crate) async fn create_operator(State(console): State<Console>, form: GuestForm) -> Response {
    let (headers, now) = (&form.headers, console.inner.context.clock().now());
    match find(&console).await {
        Ok(Some(found)) if has_claim(&console, &found, headers, now) => {}
        Ok(_) => return error_page::not_found(&console, headers),
        Err(error) => return error_page::storage_error(&console, &error),
    }
    let browser = console.inner.cookie.value(headers).unwrap_or_default();
    let fields = |problem| OperatorFields {
        email: form.field("email").unwrap_or_default(),
        timezone: form.field("timezone").unwrap_or_default(),
        problem: Some(problem),
    };
    let rejected = |field, expected: &str| {
        let problem = (field, format!("Write {expected}."));
        page(&console, StatusCode::BAD_REQUEST, Some(fields(problem)))
    };
    let email = match values::email(form.field("email").unwrap_or_default()) {
        Ok(email) => email,
        Err(expected) => return rejected("email", expected),
    };
    let timezone = match values::timezone(form.field("timezone").unwrap_or_default().trim()) {
        Ok(timezone) => timezone,
        Err(expected) => return rejected("timezone", expected),
    };
    let session = BrowserSession::new(&console, headers, now);
    let created = async {
        let storage = console.storage();
        let mut change = storage.begin_change(Actor::first_start(), now).await?;
        let operator = FirstOperator {
            email: &email,
            timezone: Some(&timezone),
        };
        let row = session.row();
        let (_, begun) = first_start::create_operator(&mut change, browser, operator, &row).await?;
        change.commit().await?;
        Ok(begun)
    };
    match created.await {
        Ok(begun) => {
            console.inner.is_setup_over.store(true, Ordering::Relaxed);
            record_sign_in("first_start", "signed_in", Some(&begun));
            let mut response = session.begun(&console, headers, &begun, now).await;
            if let Ok(path) = HeaderValue::try_from(console.path(SETUP_PATH))
                && response.status().is_redirection()
            {
                response.headers_mut().insert(LOCATION, path);
            }
            response
        }
        Err(Refusal::InUse(_)) => rejected("email", "another address, because a user has this one"),
        Err(Refusal::NoFirstStart) => error_page::not_found(&console, headers),
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

fn has_claim(console: &Console, found: &FirstStart, headers: &HeaderMap, now: Timestamp) -> bool {
    let browser = console.inner.cookie.value(headers);
    browser.is_some_and(|browser| found.has_browser(browser, now))
}

fn with_cookie(console: &Console, mut response: Response, value: &SecretString) -> Response {
    if let Some(cookie) = console.inner.cookie.header(value.expose_secret()) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

fn page(console: &Console, status: StatusCode, form: Option<OperatorFields<'_>>) -> Response {
    let frame = &console.inner.frame;
    page_response(status, &SetupPage { frame, form })
}

/// Rejects an address that has tried too many wrong codes or links.
async fn check_limit(
    console: &Console,
    extensions: &Extensions,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<(), Response> {
    let address = console.limited_address(extensions, headers);
    if let (Some(limit), Some(address)) = (&console.inner.failed_auth_limit, address) {
        let decision = limit.peek(&address, now).await;
        if !decision.allowed {
            let seconds = gcra::whole_seconds(decision.wait_us);
            return Err(error_page::too_many_requests(console, seconds));
        }
    }
    Ok(())
}

/// It has ended, was used, or never was: the page does not say which. Only here is the limit, so
/// that a right code works for everybody behind a proxy that is not trusted, while somebody there
/// guesses: codes have 128 bits.
async fn wrong_code(
    console: &Console,
    extensions: &Extensions,
    headers: &HeaderMap,
    now: Timestamp,
) -> Response {
    if let Err(rejection) = check_limit(console, extensions, headers, now).await {
        return rejection;
    }
    let address = console.limited_address(extensions, headers);
    if let (Some(limit), Some(address)) = (&console.inner.failed_auth_limit, address) {
        limit.take(address, now).await;
    }
    let notice = Notice::new(Tone::Attention, "This address does not work")
        .with(
            "The address in the log of Bellbird works once, in one browser, for an hour. Stop Bellbird and start it \
             again: its log then has a new one.",
        );
    page_response(StatusCode::GONE, &notice.page(&console.inner.frame))
}

#[cfg(test)]
mod tests;
