//! `/setup`: the first start of a service. A code from its log opens the page in one browser, for
//! an hour, and makes the first operator there. Once there is an operator, or for a database of no
//! first start, there is no page at these addresses.

use std::sync::atomic::Ordering;

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use bellbird_domain::Actor;
use bellbird_management::first_start::{self, FirstOperator};
use bellbird_management::{Refusal, provider_settings, values};
use bellbird_storage::{FirstStart, StorageError, StoredConsole};
use http::StatusCode;
use secrecy::ExposeSecret as _;

use crate::cookie::with_cookies;
use crate::error_page::{self, Failure, PageResult};
use crate::operator::{OPERATOR_NAME, SETUP_PATH};
use crate::pages::{Frame, Notice, Tone, page_response};
use crate::prefetch::reject_prefetch;
use crate::session::{Anybody, Guest, GuestForm, PathText};
use crate::settings_page::timezone_of;
use crate::sign_in::{BrowserSession, record_sign_in};
use crate::state::Console;

#[derive(Template)]
#[template(path = "setup.html")]
struct SetupPage<'a> {
    frame: &'a Frame,
    /// None: the browser has a code that it has not used.
    form: Option<OperatorFields<'a>>,
    /// Whether no setting has the operator's name.
    asks_name: bool,
}

/// What the form has, as it was sent.
#[derive(Default)]
struct OperatorFields<'a> {
    name: &'a str,
    email: &'a str,
    timezone: &'a str,
    /// The field, and what it must be.
    problem: Option<(&'static str, String)>,
}

impl OperatorFields<'_> {
    fn problem(&self, field: &str) -> Option<&str> {
        let (of, text) = self.problem.as_ref()?;
        (*of == field).then_some(text.as_str())
    }
}

/// A first start without an operator. None, and this process does not ask again once it is over:
/// there is none.
pub(crate) async fn find(console: &Console) -> Result<Option<FirstStart>, StorageError> {
    let is_over = &console.is_setup_over;
    if is_over.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let lookup = console.storage().first_start().find();
    let found = console.connections.unverified_read(lookup).await?;
    let found = found.filter(FirstStart::awaits_operator);
    is_over.store(found.is_none(), Ordering::Relaxed);
    Ok(found)
}

/// Whether this browser has opened the address of a first start.
pub(crate) fn has_claim(guest: &Guest, found: &FirstStart) -> bool {
    let browser = guest.browser();
    browser.is_some_and(|browser| found.has_browser(browser, guest.now))
}

/// The code in a path, if it is that of the first start.
fn right_code(guest: &Guest, found: &FirstStart, code: PathText) -> Option<String> {
    let Path(code) = code.ok()?;
    found.has_code(&code, guest.now).then_some(code)
}

/// `GET /setup/{code}`
pub(crate) async fn open(_: Anybody, guest: Guest, code: PathText) -> PageResult {
    reject_prefetch(guest.headers())?;
    let found = find(&guest).await?.ok_or(Failure::NotFound)?;
    if has_claim(&guest, &found) {
        return Ok(guest.redirect("/setup"));
    }
    if right_code(&guest, &found, code).is_none() {
        return Ok(wrong_code(&guest).await);
    }
    // Not the one that the browser has, which without TLS may be from another program on this host.
    let browser = bellbird_storage::new_token();
    let cookie = guest.cookies.browser.header(browser.expose_secret());
    Ok(with_cookies(page(&guest, StatusCode::OK, None), [cookie]))
}

/// `POST /setup/{code}`: binds the first start to this browser, by the cookie of the page. If the
/// response is lost, the browser has its claim, and goes on with the same form.
pub(crate) async fn claim(code: PathText, GuestForm { guest, .. }: GuestForm) -> PageResult {
    let found = find(&guest).await?.ok_or(Failure::NotFound)?;
    if has_claim(&guest, &found) {
        return Ok(guest.redirect("/setup"));
    }
    // Before the transaction, which takes SQLite's one writer.
    let Some(code) = right_code(&guest, &found, code) else {
        return Ok(wrong_code(&guest).await);
    };
    // It says what is to be done without a cookie, or if another form was faster.
    let same_page = guest.redirect(&format!("/setup/{code}"));
    let Some(browser) = guest.browser() else {
        return Ok(same_page);
    };
    let storage = guest.storage();
    let mut change = storage
        .begin_change(Actor::first_start(), guest.now)
        .await?;
    let claimed = first_start::claim(&mut change, &code, browser).await;
    if let Err(Refusal::NoFirstStart) = claimed {
        return Ok(same_page);
    }
    claimed?;
    change.commit().await?;
    tracing::warn!("first start claimed by a browser");
    Ok(guest.redirect("/setup"))
}

/// The browser that has opened the address, by its cookie. None: the hour of its claim is over, a
/// restart has ended it, or it had none.
async fn claimed_by(guest: &Guest) -> Result<Option<&str>, Failure> {
    let found = find(guest).await?.ok_or(Failure::NotFound)?;
    Ok(guest.browser().filter(|_| has_claim(guest, &found)))
}

fn no_claim() -> Response {
    Notice::new(Tone::Attention, "Open the newest address in the log")
        .with(
            "Bellbird is set up in the one browser that has opened the address in its log, for an hour. Each start \
             writes a new address there, and ends what was begun with the one before.",
        )
        .with_status(StatusCode::NOT_FOUND)
        .into_response()
}

/// `GET /setup`. Gives the browser the cookie of the session that the form begins, so that it is
/// signed in also if the response to the form is lost. The form does not read that cookie, because
/// without TLS another program on this host may set one.
pub(crate) async fn show(_: Anybody, guest: Guest) -> PageResult {
    let Some(browser) = claimed_by(&guest).await? else {
        return Ok(no_claim());
    };
    let token = bellbird_storage::first_session_token(browser);
    let cookie = guest.cookies.session.header(token.expose_secret());
    let page = page(&guest, StatusCode::OK, Some(OperatorFields::default()));
    Ok(with_cookies(page, [cookie]))
}

/// `POST /setup`, with the fields `email`, `timezone` and perhaps `name`: makes the operator,
/// signed in. Sent again by that browser, it goes on.
pub(crate) async fn create_operator(form: GuestForm) -> PageResult {
    let submitted = submit(&form).await;
    let is_gone = matches!(submitted, Err(Failure::NotFound));
    if is_gone && is_of_operator(&form.guest).await? {
        return Ok(form.guest.redirect(SETUP_PATH));
    }
    submitted
}

/// Whether an operator is signed in.
async fn is_of_operator(guest: &Guest) -> Result<bool, StorageError> {
    let Some(token) = guest.cookies.session.value(guest.headers()) else {
        return Ok(false);
    };
    let found = guest.find_session(token, guest.now).await?;
    Ok(found.is_some_and(|found| found.is_operator))
}

async fn submit(form: &GuestForm) -> PageResult {
    let guest = &form.guest;
    let Some(browser) = claimed_by(guest).await? else {
        return Ok(no_claim());
    };
    let written = |field| form.field(field).unwrap_or_default();
    let rejected = |field, problem: String| {
        let fields = OperatorFields {
            name: written("name"),
            email: written("email"),
            timezone: written("timezone"),
            problem: Some((field, problem)),
        };
        Ok(page(guest, StatusCode::BAD_REQUEST, Some(fields)))
    };
    let name = match values::operator_name(written("name")) {
        Ok(name) => name.filter(|_| asks_name(guest)),
        Err(expected) => return rejected("name", format!("Write {expected}.")),
    };
    let email = match values::email(written("email")) {
        Ok(email) => email,
        Err(expected) => return rejected("email", format!("Write {expected}.")),
    };
    let timezone = match timezone_of(written("timezone")) {
        Ok(timezone) => timezone,
        Err(problem) => return rejected("timezone", problem),
    };
    let token = bellbird_storage::first_session_token(browser);
    let session = BrowserSession::with_token(guest, token);
    let operator = FirstOperator {
        email: &email,
        timezone: Some(&timezone),
    };
    let storage = guest.storage();
    let mut change = storage
        .begin_change(Actor::first_start(), guest.now)
        .await?;
    let row = session.row();
    let created = first_start::create_operator(&mut change, browser, operator, &row).await;
    let begun = match created {
        Ok((_, begun)) => begun,
        Err(Refusal::InUse(_)) => return rejected("email", "A user has this address.".to_owned()),
        Err(Refusal::NoFirstStart) => return Err(Failure::NotFound),
        Err(refusal) => return Err(refusal.into()),
    };
    let is_named = name.is_some();
    if is_named {
        let entered = StoredConsole {
            operator_name: name,
            ..StoredConsole::default()
        };
        provider_settings::set_console(&mut change, &entered, OPERATOR_NAME).await?;
    }
    change.commit().await?;
    guest.is_setup_over.store(true, Ordering::Relaxed);
    if is_named {
        guest.site.providers.apply().await?;
    }
    record_sign_in("first_start", "signed_in", Some(&begun));
    let response = session.begun(&begun, Some(SETUP_PATH)).await?;
    // The session follows from it.
    let browser = guest.cookies.browser.removal();
    Ok(with_cookies(response, [browser]))
}

fn page(console: &Console, status: StatusCode, form: Option<OperatorFields<'_>>) -> Response {
    let page = SetupPage {
        frame: &console.frame,
        form,
        asks_name: asks_name(console),
    };
    page_response(status, &page)
}

fn asks_name(console: &Console) -> bool {
    console.site.providers.set_by(OPERATOR_NAME).is_none()
}

/// It has ended, was used, or never was: the page does not say which. Only here is the limit, so
/// that a right code works for everybody behind a proxy that is not trusted, while somebody there
/// guesses: codes have 128 bits.
async fn wrong_code(guest: &Guest) -> Response {
    if let (Some(limit), Some(address)) = (&guest.failed_auth_limit, guest.address()) {
        let decision = limit.take(address, guest.now).await;
        if let Some(seconds) = decision.seconds_to_wait() {
            return error_page::too_many_requests(seconds).into_response();
        }
    }
    Notice::new(Tone::Attention, "This address does not work")
        .with(
            "The address in the log of Bellbird works once, in one browser, for an hour. Stop Bellbird and start it \
             again: its log then has a new one.",
        )
        .with_status(StatusCode::GONE)
        .into_response()
}

#[cfg(test)]
mod tests;
