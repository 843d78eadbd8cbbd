//! `/setup`: the first start of a service. A code from its log opens the page in one browser, for
//! an hour, and makes the first operator there. Once there is an operator, or for a database of no
//! first start, there is no page at these addresses.

use std::sync::atomic::Ordering;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use bellbird_domain::Actor;
use bellbird_limits::gcra;
use bellbird_management::first_start::{self, FirstOperator};
use bellbird_management::{Refusal, values};
use bellbird_storage::{FirstStart, StorageError};
use http::header::LOCATION;
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;

use crate::cookie::with_cookies;
use crate::error_page::{self, Failure, PageResult};
use crate::operator::SETUP_PATH;
use crate::pages::{Frame, Notice, Tone, page_response};
use crate::prefetch::reject_prefetch;
use crate::session::{GuestForm, PathText};
use crate::settings_page::timezone_of;
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

/// Whether nobody can sign in, because a first start has made no operator yet.
pub(crate) async fn awaits_operator(console: &Console) -> Result<bool, StorageError> {
    Ok(find(console).await?.is_some())
}

/// A first start without an operator, for a page that there is only then.
async fn find_or_nothing(console: &Console) -> Result<FirstStart, Failure> {
    find(console).await?.ok_or(Failure::NotFound)
}

/// `GET /setup/{code}`
pub(crate) async fn open(
    State(console): State<Console>,
    headers: HeaderMap,
    extensions: Extensions,
    code: PathText,
) -> PageResult {
    let found = find_or_nothing(&console).await?;
    reject_prefetch(&headers)?;
    let now = console.clock.now();
    if has_claim(&console, &found, &headers, now) {
        return Ok(console.redirect("/setup"));
    }
    Ok(match code {
        Ok(Path(code)) if found.has_code(&code, now) => {
            // Not the one that the browser has, which without TLS may be from another program on
            // this host.
            let browser = bellbird_storage::new_token();
            let cookie = console.cookies.browser.header(browser.expose_secret());
            with_cookies(page(&console, StatusCode::OK, None), [cookie])
        }
        _ => wrong_code(&console, &extensions, &headers, now).await,
    })
}

/// `POST /setup/{code}`: binds the first start to this browser, by the cookie of the page. If the
/// response is lost, the browser has its claim, and goes on with the same form.
pub(crate) async fn claim(
    State(console): State<Console>,
    extensions: Extensions,
    code: PathText,
    form: GuestForm,
) -> PageResult {
    let headers = &form.headers;
    let found = find_or_nothing(&console).await?;
    let now = console.clock.now();
    if has_claim(&console, &found, headers, now) {
        return Ok(console.redirect("/setup"));
    }
    // Before the transaction, which takes SQLite's one writer.
    let code = match code {
        Ok(Path(code)) if found.has_code(&code, now) => code,
        _ => return Ok(wrong_code(&console, &extensions, headers, now).await),
    };
    let Some(browser) = console.cookies.browser.value(headers) else {
        return Ok(console.redirect(&format!("/setup/{code}")));
    };
    let claimed = async {
        let storage = console.storage();
        let mut change = storage.begin_change(Actor::first_start(), now).await?;
        first_start::claim(&mut change, &code, browser).await?;
        Ok(change.commit().await?)
    };
    match claimed.await {
        Ok(()) => {
            tracing::warn!("first start claimed by a browser");
            Ok(console.redirect("/setup"))
        }
        Err(Refusal::NoFirstStart) => Ok(match find(&console).await {
            // The same form, sent twice at once.
            Ok(Some(found)) if has_claim(&console, &found, headers, now) => {
                console.redirect("/setup")
            }
            _ => wrong_code(&console, &extensions, headers, now).await,
        }),
        Err(refusal) => Err(refusal.into()),
    }
}

/// A first start that this browser has claimed.
/// Whether this browser has opened the address of a first start.
pub(crate) async fn is_claimed_by(console: &Console, headers: &HeaderMap) -> Result<bool, Failure> {
    let found = find_or_nothing(console).await?;
    Ok(has_claim(console, &found, headers, console.clock.now()))
}

async fn require_claim(
    console: &Console,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<(), Failure> {
    let found = find_or_nothing(console).await?;
    match has_claim(console, &found, headers, now) {
        true => Ok(()),
        false => Err(Failure::NotFound),
    }
}

/// `GET /setup`
pub(crate) async fn show(State(console): State<Console>, headers: HeaderMap) -> PageResult {
    require_claim(&console, &headers, console.clock.now()).await?;
    let form = Some(OperatorFields::default());
    Ok(page(&console, StatusCode::OK, form))
}

/// `POST /setup`, with the fields `email` and `timezone`: makes the operator, signed in.
pub(crate) async fn create_operator(State(console): State<Console>, form: GuestForm) -> PageResult {
    let (headers, now) = (&form.headers, console.clock.now());
    require_claim(&console, headers, now).await?;
    let browser = console.cookies.browser.value(headers).unwrap_or_default();
    let rejected = |field, problem: String| {
        let fields = OperatorFields {
            email: form.field("email").unwrap_or_default(),
            timezone: form.field("timezone").unwrap_or_default(),
            problem: Some((field, problem)),
        };
        Ok(page(&console, StatusCode::BAD_REQUEST, Some(fields)))
    };
    let email = match values::email(form.field("email").unwrap_or_default()) {
        Ok(email) => email,
        Err(expected) => return rejected("email", format!("Write {expected}.")),
    };
    let timezone = match timezone_of(form.field("timezone").unwrap_or_default()) {
        Ok(timezone) => timezone,
        Err(problem) => return rejected("timezone", problem),
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
            console.is_setup_over.store(true, Ordering::Relaxed);
            record_sign_in("first_start", "signed_in", Some(&begun));
            let mut response = session.begun(&console, headers, &begun, now).await?;
            if let Ok(path) = HeaderValue::try_from(console.path(SETUP_PATH)) {
                response.headers_mut().insert(LOCATION, path);
            }
            Ok(response)
        }
        Err(Refusal::InUse(_)) => rejected("email", "A user has this address.".to_owned()),
        Err(Refusal::NoFirstStart) => Err(Failure::NotFound),
        Err(refusal) => Err(refusal.into()),
    }
}

fn has_claim(console: &Console, found: &FirstStart, headers: &HeaderMap, now: Timestamp) -> bool {
    let browser = console.cookies.browser.value(headers);
    browser.is_some_and(|browser| found.has_browser(browser, now))
}

fn page(console: &Console, status: StatusCode, form: Option<OperatorFields<'_>>) -> Response {
    let frame = &console.frame;
    page_response(status, &SetupPage { frame, form })
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
    let address = console.limited_address(extensions, headers);
    if let (Some(limit), Some(address)) = (&console.failed_auth_limit, address) {
        let decision = limit.take(address, now).await;
        if !decision.allowed {
            let seconds = gcra::whole_seconds(decision.wait_us);
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
