//! `/sign-in` and `/sign-out`. A user signs in with a link that works once, for ten minutes.
//! Opening it signs in only the browser that asked for it: any other browser is asked first,
//! because mail scanners open links too, and because somebody else may have sent the link.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bellbird_domain::{KeyId, KeyStatus, TimestampExt as _};
use bellbird_management::Refusal;
use bellbird_management::sign_in as management;
use bellbird_storage::{BegunSession, NewSession, SESSION_TTL, SignedIn, Storage, StorageError};
use http::header::{HeaderName, USER_AGENT};
use http::{Extensions, HeaderMap, StatusCode, Uri};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use crate::browser_name::browser_name;
use crate::cookie::{Cookie, with_cookies};
use crate::error_page::{Failure, PageResult};
use crate::keys_page;
use crate::local::is_from_here;
use crate::pages::{Done, DoneAt, Frame, Notice, Tone, page_of, page_response};
use crate::prefetch::reject_prefetch;
use crate::session::{GuestForm, OwnForm, PathText, Session};
use crate::state::Console;

const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// Without a link, or with one that another browser asked for.
#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage<'a> {
    frame: &'a Frame,
    /// The user of the link. None: the browser has no link.
    email: Option<&'a str>,
    /// Where the user can sign in instead of with a link.
    identity_provider: Option<&'a str>,
    /// Whether links are sent by e-mail.
    sends_links: bool,
    /// What the form that led here has done.
    done: Option<&'static str>,
}

/// `GET /sign-in`
pub(crate) async fn show(
    State(console): State<Console>,
    session: Option<Session>,
    uri: Uri,
) -> Response {
    if session.is_some() {
        return console.redirect("/overview");
    }
    let done = DoneAt::of_query(uri.query());
    let page = SignInPage {
        frame: &console.frame,
        email: None,
        identity_provider: console.identity_provider.as_ref().map(|one| &*one.name),
        sends_links: console.site.mailer.is_some(),
        done: done.and_then(|done| done.text_at("sign-in")),
    };
    page_response(StatusCode::OK, &page)
}

/// `GET /sign-in/{token}`
pub(crate) async fn open_link(
    State(console): State<Console>,
    headers: HeaderMap,
    token: PathText,
) -> PageResult {
    reject_prefetch(&headers)?;
    let Ok(Path(token)) = token else {
        return Ok(link_does_not_work());
    };
    let now = console.clock.now();
    let browser = console.cookies.browser.value(&headers);
    let lookup = console.storage().sessions().find_link(&token, browser, now);
    match console.connections.unverified_read(lookup).await? {
        Some(link) if link.is_of_browser => sign_in(&console, &headers, &token, now).await,
        Some(link) => {
            let page = SignInPage {
                frame: &console.frame,
                email: Some(&link.email),
                identity_provider: None,
                sends_links: false,
                done: None,
            };
            Ok(page_response(StatusCode::OK, &page))
        }
        None => Ok(link_does_not_work()),
    }
}

/// `POST /sign-in/{token}`: the answer of a browser that did not ask for the link.
pub(crate) async fn use_link(
    State(console): State<Console>,
    token: PathText,
    form: GuestForm,
) -> PageResult {
    let Ok(Path(token)) = token else {
        return Ok(link_does_not_work());
    };
    sign_in(&console, &form.headers, &token, console.clock.now()).await
}

/// `POST /demo/sign-in`: signs in as the user of `bellbird demo`, for a browser on this machine.
pub(crate) async fn sign_in_to_demo(
    State(console): State<Console>,
    extensions: Extensions,
    form: GuestForm,
) -> PageResult {
    let demo = console.site.demo.as_ref().ok_or(Failure::NotFound)?;
    if !is_from_here(&form.headers, &extensions) {
        return Err(Failure::CrossSite);
    }
    let now = console.clock.now();
    let storage = console.storage();
    let url = management::create_asked_link(storage, demo.user, None, "", now).await?;
    let token = url.expose_secret().trim_start_matches("/sign-in/");
    sign_in(&console, &form.headers, token, now).await
}

/// Whether it is the link of an operator, and operators sign in at the identity provider only.
async fn is_of_operator_elsewhere(
    console: &Console,
    link: &str,
    now: Timestamp,
) -> Result<bool, StorageError> {
    let oidc = console.settings.oidc.as_ref();
    if !oidc.is_some_and(|oidc| oidc.operators_only_here) {
        return Ok(false);
    }
    let lookup = console.storage().sessions().find_link(link, None, now);
    let found = console.connections.unverified_read(lookup).await?;
    Ok(found.is_some_and(|link| link.is_operator))
}

async fn sign_in(console: &Console, headers: &HeaderMap, link: &str, now: Timestamp) -> PageResult {
    if is_of_operator_elsewhere(console, link, now).await? {
        record_sign_in("link", "identity_provider_only", None);
        return Ok(
            Notice::new(Tone::Attention, "Sign in at the identity provider")
                .with("An operator cannot sign in with a link here. Use the button on the page Sign in.")
                .with_status(StatusCode::FORBIDDEN)
                .into_response(),
        );
    }
    let session = BrowserSession::new(console, headers, now);
    let row = session.row();
    let begun = console.storage().sessions().sign_in(link, &row, now);
    match console.connections.unverified_read(begun).await? {
        Some(begun) => {
            record_sign_in("link", "signed_in", Some(&begun));
            session.begun(console, headers, &begun, now).await
        }
        None => {
            record_sign_in("link", "link_does_not_work", None);
            Ok(link_does_not_work())
        }
    }
}

/// Counts and logs a sign-in that has ended, by a link or by the identity provider.
pub(crate) fn record_sign_in(
    by: &'static str,
    outcome: &'static str,
    begun: Option<&BegunSession>,
) {
    metrics::counter!("bellbird_console_sign_ins_total", "by" => by, "outcome" => outcome)
        .increment(1);
    let user_id = begun.map(|begun| tracing::field::display(begun.user_id));
    let session_id = begun.map(|begun| tracing::field::display(begun.id));
    tracing::info!(by, outcome, user_id, session_id, "sign-in finished");
}

/// The session that begins in a browser, whichever way its user signs in.
pub(crate) struct BrowserSession {
    token: SecretString,
    browser: String,
    known_browser: SecretString,
    expires_at: Timestamp,
}

impl BrowserSession {
    pub(crate) fn new(console: &Console, headers: &HeaderMap, now: Timestamp) -> Self {
        Self {
            token: bellbird_storage::new_token(),
            browser: browser_name_of(headers),
            known_browser: console.cookies.known_browser.value_or_new(headers),
            expires_at: now.plus(SESSION_TTL),
        }
    }

    /// To store.
    pub(crate) fn row(&self) -> NewSession<'_> {
        NewSession {
            token: self.token.expose_secret(),
            browser: &self.browser,
            known_browser: self.known_browser.expose_secret(),
            expires_at: self.expires_at,
        }
    }

    /// Gives its cookies to the browser, once it is stored. A session that the browser had ends,
    /// because its cookie is replaced. What follows is the page that the browser asked for, or the
    /// overview, and at first what others have let read the user's accounts.
    pub(crate) async fn begun(
        self,
        console: &Console,
        headers: &HeaderMap,
        begun: &BegunSession,
        now: Timestamp,
    ) -> PageResult {
        let sessions = console.storage().sessions();
        let before = match console.cookies.session.value(headers) {
            Some(before) => sessions.find(before, now).await.ok().flatten(),
            None => None,
        };
        if let Some(SignedIn { caller, .. }) = before {
            sessions
                .revoke(caller.user_id, caller.key_id.uuid())
                .await?;
        }
        let asked = console.cookies.page.page(headers);
        let others_read = has_programs_of_others(console.storage(), begun, now).await?;
        // The demo has made its keys for this person.
        let next = if others_read && console.site.demo.is_none() {
            keys_page::FIRST_SIGN_IN
        } else {
            // Only to pages of the menus, so a cookie of anyone else leads nowhere else.
            asked.as_deref().and_then(page_of).unwrap_or("/overview")
        };
        let cookies = &console.cookies;
        Ok(with_cookies(
            console.redirect(next),
            [
                cookies.session.header(self.token.expose_secret()),
                cookies
                    .known_browser
                    .header(self.known_browser.expose_secret()),
                cookies.page.removal().filter(|_| asked.is_some()),
            ],
        ))
    }
}

/// Whether somebody made a key or an endpoint before the user was ever signed in.
async fn has_programs_of_others(
    storage: &Storage,
    begun: &BegunSession,
    now: Timestamp,
) -> Result<bool, StorageError> {
    if !begun.is_first {
        return Ok(false);
    }
    let keys = storage.keys().list(begun.user_id).await?;
    let has_key = keys.iter().any(|key| key.status(now) == KeyStatus::Active);
    Ok(has_key || !storage.endpoints().list(begun.user_id).await?.is_empty())
}

pub(crate) fn browser_name_of(headers: &HeaderMap) -> String {
    browser_name(
        headers
            .get(USER_AGENT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default(),
    )
}

/// `POST /sign-out`
pub(crate) async fn sign_out(form: OwnForm) -> PageResult {
    match end_session(&form.session, form.session.id()).await {
        // It may have ended already.
        Ok(()) | Err(Refusal::NotFound(_)) => Ok(signed_out(&form.session)),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Ends a session of the user, with its links.
pub(crate) async fn end_session(session: &Session, ended: Uuid) -> Result<(), Refusal> {
    let mut change = session.begin().await?;
    management::end_session(&mut change, session.user(), ended).await?;
    session.commit(change).await?;
    let ended = KeyId::from(ended);
    session.money_cache.remove(&ended);
    session
        .rows_cache
        .remove_where(|(session, _)| *session == ended);
    Ok(())
}

/// Takes the cookies from the browser, but the one that knows it again, and what it has kept of the
/// pages.
pub(crate) fn signed_out(console: &Console) -> Response {
    sign_out_of(
        console,
        Done::SignedOut.redirect(console, "/sign-in", "sign-in"),
    )
}

/// As [`signed_out`], with another response.
pub(crate) fn sign_out_of(console: &Console, response: impl IntoResponse) -> Response {
    let cookies = &console.cookies;
    let removed = [&cookies.session, &cookies.link, &cookies.browser];
    let response = with_cookies(response.into_response(), removed.map(Cookie::removal));
    let clear = [(CLEAR_SITE_DATA, "\"cache\", \"storage\"")];
    (clear, response).into_response()
}

/// It has expired, was used, or never existed: the page does not say which.
fn link_does_not_work() -> Response {
    Notice::new(Tone::Attention, "This sign-in link does not work")
        .with("A link works once, and only for a while. Ask for a new one where you got this one.")
        .with_status(StatusCode::GONE)
        .into_response()
}
