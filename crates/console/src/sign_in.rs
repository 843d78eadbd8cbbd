//! `/sign-in` and `/sign-out`. A user signs in with a link that works once, for ten minutes, or for
//! a day if an operator has sent it. Opening it signs in only the browser that asked for it: any
//! other browser is asked first, because mail scanners open links too, and because somebody else
//! may have sent the link.

use std::borrow::Cow;

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use bellbird_domain::{KeyId, KeyStatus, TimestampExt as _};
use bellbird_management::Refusal;
use bellbird_management::sign_in as management;
use bellbird_storage::{BegunSession, NewSession, SESSION_TTL, SignedIn, StorageError};
use http::StatusCode;
use http::header::HeaderName;
use secrecy::{ExposeSecret as _, SecretString};
use tracing::Span;
use uuid::Uuid;

use crate::cookie::{Cookie, with_cookies};
use crate::emails::asked_links::AskedLink;
use crate::error_page::{Failure, PageResult};
use crate::keys_page;
use crate::pages::names::sanitized;
use crate::pages::{Done, DoneAt, Frame, Notice, SignedInFrame, Tone, page_of, page_response};
use crate::prefetch::reject_prefetch;
use crate::session::{Guest, GuestForm, OwnForm, PathText, Session};
use crate::state::Console;

const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// Without a link, or with one that another browser asked for.
#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage<'a> {
    frame: &'a Frame,
    guest: &'a Guest,
    /// The user of the link. None: the browser has no link.
    email: Option<&'a str>,
    /// What the form that led here has done.
    done: Option<&'static str>,
    /// Whether a link can sign in an operator.
    lets_in_operators: bool,
}

impl<'a> SignInPage<'a> {
    fn new(guest: &'a Guest, email: Option<&'a str>) -> Self {
        let done = DoneAt::of_query(guest.query());
        Self {
            frame: &guest.frame,
            guest,
            email,
            done: done.and_then(|done| done.text_at("sign-in")),
            lets_in_operators: guest.settings.lets_in_by_link(true),
        }
    }
}

/// Asks an operator whom no e-mail lets in again.
#[derive(Template)]
#[template(path = "sign_out.html")]
struct SignOutPage<'a> {
    frame: &'a SignedInFrame<'a>,
    /// Prints a link for this user.
    command: String,
    /// Whether another operator can make one.
    has_other_operator: bool,
}

/// `GET /sign-in`
pub(crate) async fn show(guest: Guest, session: Option<Session>) -> Response {
    if session.is_some() {
        return guest.redirect("/overview");
    }
    page_response(StatusCode::OK, &SignInPage::new(&guest, None))
}

/// `POST /sign-in`, with the field `email`: sends a link, if this is the address of a user. The
/// response does not say, and takes no longer.
pub(crate) async fn send_link(form: GuestForm) -> PageResult {
    let guest = &form.guest;
    let (Some(asked), Some(email)) = (&guest.asked_links, form.field("email")) else {
        return Err(Failure::InvalidForm);
    };
    let cookie = &guest.cookies.browser;
    let browser = cookie.value_or_new(guest.headers());
    let link = AskedLink {
        email: email.trim().to_owned(),
        browser: browser.clone(),
        browser_name: guest.browser_name(),
        span: Span::current(),
    };
    if asked.try_send(link).is_err() {
        return Ok(
            Notice::new(Tone::Attention, "Too many people sign in at this moment")
                .with("Try again in a minute.")
                .with_status(StatusCode::SERVICE_UNAVAILABLE)
                .into_response(),
        );
    }
    let page = Notice::new(Tone::Good, "Check your e-mail")
        .with("If a user has this address, a link is on its way. Open it in this browser within ten minutes.")
        .with("At most five links an hour are sent to an address.")
        .into_response();
    Ok(with_cookies(page, [cookie.header(browser.expose_secret())]))
}

/// `GET /sign-in/{token}`
pub(crate) async fn open_link(
    guest: Guest,
    session: Option<Session>,
    token: PathText,
) -> PageResult {
    reject_prefetch(guest.headers())?;
    let token = text_of(token);
    let sessions = guest.storage().sessions();
    let lookup = sessions.find_link(&token, guest.browser(), guest.now);
    match (guest.connections.unverified_read(lookup).await?, session) {
        (Some(link), _) if link.is_of_browser => sign_in(&guest, &token).await,
        (Some(link), _) => {
            let page = SignInPage::new(&guest, Some(&link.email));
            Ok(page_response(StatusCode::OK, &page))
        }
        (None, Some(session)) => Ok(link_does_not_work()
            .with(&format!(
                "You are signed in as {} in this browser.",
                sanitized(&session.email)
            ))
            .with_page_link("/overview", "Go on to your accounts")
            .into_response()),
        (None, None) => Ok(link_does_not_work().into_response()),
    }
}

/// The token of a link. One that is no text is that of no link.
fn text_of(token: PathText) -> String {
    token.map(|Path(token)| token).unwrap_or_default()
}

/// `POST /sign-in/{token}`: the answer of a browser that did not ask for the link.
pub(crate) async fn use_link(token: PathText, form: GuestForm) -> PageResult {
    sign_in(&form.guest, &text_of(token)).await
}

/// `POST /demo/sign-in`: signs in as the user of `bellbird demo`, for a browser on this machine.
pub(crate) async fn sign_in_to_demo(form: GuestForm) -> PageResult {
    let guest = &form.guest;
    let user = guest.demo()?.user;
    let url = management::create_asked_link(guest.storage(), user, None, "", guest.now).await?;
    let token = url.expose_secret().trim_start_matches("/sign-in/");
    sign_in(guest, token).await
}

/// Whether it is the link of an operator, and operators sign in at the identity provider only.
async fn is_of_operator_elsewhere(guest: &Guest, link: &str) -> Result<bool, StorageError> {
    if guest.settings.lets_in_by_link(true) {
        return Ok(false);
    }
    let lookup = guest.storage().sessions().find_link(link, None, guest.now);
    let found = guest.connections.unverified_read(lookup).await?;
    Ok(found.is_some_and(|link| link.is_operator))
}

async fn sign_in(guest: &Guest, link: &str) -> PageResult {
    if is_of_operator_elsewhere(guest, link).await? {
        record_sign_in("link", "identity_provider_only", None);
        return Ok(
            Notice::new(Tone::Attention, "Sign in at the identity provider")
                .with("An operator cannot sign in with a link here. Use the button on the page Sign in.")
                .with_status(StatusCode::FORBIDDEN)
                .into_response(),
        );
    }
    let session = BrowserSession::new(guest);
    let row = session.row();
    let begun = guest.storage().sessions().sign_in(link, &row, guest.now);
    match guest.connections.unverified_read(begun).await? {
        Some(begun) => {
            record_sign_in("link", "signed_in", Some(&begun));
            session.begun(&begun, None).await
        }
        None => {
            record_sign_in("link", "link_does_not_work", None);
            Ok(link_does_not_work().into_response())
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
pub(crate) struct BrowserSession<'a> {
    guest: &'a Guest,
    token: SecretString,
    browser: String,
    known_browser: SecretString,
}

impl<'a> BrowserSession<'a> {
    pub(crate) fn new(guest: &'a Guest) -> Self {
        Self::with_token(guest, bellbird_storage::new_token())
    }

    pub(crate) fn with_token(guest: &'a Guest, token: SecretString) -> Self {
        Self {
            guest,
            token,
            browser: guest.browser_name(),
            known_browser: guest.cookies.known_browser.value_or_new(guest.headers()),
        }
    }

    /// To store.
    pub(crate) fn row(&self) -> NewSession<'_> {
        NewSession {
            token: self.token.expose_secret(),
            browser: &self.browser,
            known_browser: self.known_browser.expose_secret(),
            expires_at: self.guest.now.plus(SESSION_TTL),
        }
    }

    /// Gives its cookies to the browser, once it is stored. A session that the browser had ends,
    /// because its cookie is replaced. Without `next`, what follows is the page that the browser
    /// asked for, or the overview, and at first what others have let read the user's accounts.
    pub(crate) async fn begun(self, begun: &BegunSession, next: Option<&str>) -> PageResult {
        let guest = self.guest;
        let (sessions, cookies) = (guest.storage().sessions(), &guest.cookies);
        if let Some(before) = cookies.session.value(guest.headers())
            && before != self.token.expose_secret()
            && let Ok(Some(SignedIn { caller, .. })) = sessions.find(before, guest.now).await
        {
            sessions
                .revoke(caller.user_id, caller.key_id.uuid())
                .await?;
        }
        let asked = cookies.page.text(guest.headers());
        let next = if let Some(next) = next {
            next
        } else if guest.site.demo.is_none() && has_programs_of_others(guest, begun).await? {
            // Not in the demo, which has made its keys for this person.
            keys_page::FIRST_SIGN_IN
        } else {
            // Only to pages of the menus, so a cookie of anyone else leads nowhere else.
            asked.as_deref().and_then(page_of).unwrap_or("/overview")
        };
        Ok(with_cookies(
            guest.redirect(next),
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
async fn has_programs_of_others(guest: &Guest, begun: &BegunSession) -> Result<bool, StorageError> {
    if !begun.is_first {
        return Ok(false);
    }
    let storage = guest.storage();
    let keys = storage.keys().list(begun.user_id).await?;
    let has_key = keys
        .iter()
        .any(|key| key.status(guest.now) == KeyStatus::Active);
    Ok(has_key || !storage.endpoints().list(begun.user_id).await?.is_empty())
}

/// `POST /sign-out`, with the field `sure` by an operator who needs a command to sign in again.
pub(crate) async fn sign_out(form: OwnForm) -> PageResult {
    let session = &form.session;
    if form.field("sure").is_none() && needs_command(session) {
        let sessions = session.storage().sessions();
        let page = SignOutPage {
            frame: &session.frame("/sign-out"),
            command: login_command(session),
            has_other_operator: sessions.has_other_operator(session.user()).await?,
        };
        return Ok(page_response(StatusCode::OK, &page));
    }
    match end_session(session, session.id()).await {
        // It may have ended already.
        Ok(()) | Err(Refusal::NotFound(_)) => Ok(signed_out(session)),
        Err(refusal) => Err(refusal.into()),
    }
}

fn needs_command(session: &Session) -> bool {
    let has_other_way = session.site.mailer.is_some()
        || session.identity_provider.is_some()
        || session.site.demo.is_some();
    session.is_operator && !has_other_way
}

/// With the settings file of the service, which a command finds by itself only in some folders.
fn login_command(session: &Session) -> String {
    let file = session.site.settings_file.as_ref();
    let file = file.map(|file| format!(" --config {}", shell_word(&file.to_string_lossy())));
    format!(
        "bellbird console login --user {}{}",
        shell_word(&session.email),
        file.unwrap_or_default()
    )
}

/// In single quotes, if a shell would not take it as one word.
fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    match text.chars().all(is_plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")).into(),
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
fn link_does_not_work() -> Notice {
    Notice::new(Tone::Attention, "This sign-in link does not work")
        .with("A link works once, and only for a while. Ask for a new one where you got this one.")
        .with_status(StatusCode::GONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_quoted_where_a_shell_needs_it() {
        for (text, word) in [
            ("me+banks@example.com", "me+banks@example.com"),
            ("/etc/bellbird/bellbird.toml", "/etc/bellbird/bellbird.toml"),
            ("/my files/bellbird.toml", "'/my files/bellbird.toml'"),
            ("o'neill@example.com", r"'o'\''neill@example.com'"),
            ("$(id)@example.com", "'$(id)@example.com'"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }
}
