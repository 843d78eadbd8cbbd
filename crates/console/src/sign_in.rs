//! `/sign-in` and `/sign-out`. A user signs in with a link that works once, for ten minutes.
//! Opening it signs in only the browser that asked for it: any other browser is asked first,
//! because mail scanners open links too, and because somebody else may have sent the link.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_domain::{KeyId, KeyStatus, TimestampExt as _};
use bellbird_management::Refusal;
use bellbird_management::sign_in as management;
use bellbird_storage::{BegunSession, NewSession, SESSION_TTL, Storage, StorageError};
use http::header::{HeaderName, SET_COOKIE, USER_AGENT};
use http::{Extensions, HeaderMap, HeaderValue, StatusCode, Uri};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use crate::browser_name::browser_name;
use crate::cookie::Cookie;
use crate::error_page;
use crate::keys_page;
use crate::local::is_from_here;
use crate::pages::{Done, DoneAt, Notice, SignIn, Tone, page_of, page_response};
use crate::prefetch::is_prefetch;
use crate::session::{GuestForm, OwnForm, Session};
use crate::state::Console;

const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// `GET /sign-in`
pub(crate) async fn show(
    State(console): State<Console>,
    session: Option<Session>,
    uri: Uri,
) -> Response {
    if session.is_some() {
        return Redirect::to(&console.path("/overview")).into_response();
    }
    let identity_provider = console
        .inner
        .identity_provider
        .as_ref()
        .map(|provider| provider.name.as_str());
    let sends_links = console.inner.site.mailer.is_some();
    let done = DoneAt::of_query(uri.query());
    page_response(
        StatusCode::OK,
        &SignIn::without_link(
            &console.inner.frame,
            identity_provider,
            sends_links,
            done.as_ref(),
        ),
    )
}

/// `GET /sign-in/{token}`
pub(crate) async fn open_link(
    State(console): State<Console>,
    headers: HeaderMap,
    token: Result<Path<String>, PathRejection>,
) -> Response {
    if is_prefetch(&headers) {
        return error_page::prefetch(&console);
    }
    let Ok(Path(token)) = token else {
        return link_does_not_work(&console);
    };
    let now = console.inner.context.clock().now();
    let browser = console.inner.cookie.value(&headers);
    match console
        .inner
        .connections
        .unverified_read(console.storage().sessions().find_link(&token, browser, now))
        .await
    {
        Ok(Some(link)) if link.is_of_browser => sign_in(&console, &headers, &token, now).await,
        Ok(Some(link)) => page_response(
            StatusCode::OK,
            &SignIn::with_link(&console.inner.frame, &link.email),
        ),
        Ok(None) => link_does_not_work(&console),
        Err(error) => error_page::storage_error(&console, &error),
    }
}

/// `POST /sign-in/{token}`: the answer of a browser that did not ask for the link.
pub(crate) async fn use_link(
    State(console): State<Console>,
    token: Result<Path<String>, PathRejection>,
    form: GuestForm,
) -> Response {
    let Ok(Path(token)) = token else {
        return link_does_not_work(&console);
    };
    let now = console.inner.context.clock().now();
    sign_in(&console, &form.headers, &token, now).await
}

/// `POST /demo/sign-in`: signs in as the user of `bellbird demo`, for a browser on this machine.
pub(crate) async fn sign_in_to_demo(
    State(console): State<Console>,
    extensions: Extensions,
    form: GuestForm,
) -> Response {
    let Some(demo) = &console.inner.site.demo else {
        return error_page::not_found(&console, &form.headers);
    };
    if !is_from_here(&form.headers, &extensions) {
        return error_page::cross_site_form(&console);
    }
    let now = console.inner.context.clock().now();
    let url = management::create_asked_link(console.storage(), demo.user, None, "", now).await;
    match url {
        Ok(url) => {
            let token = url.expose_secret().trim_start_matches("/sign-in/");
            sign_in(&console, &form.headers, token, now).await
        }
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

/// Whether it is the link of an operator, and operators sign in at the identity provider only.
async fn is_of_operator_elsewhere(
    console: &Console,
    link: &str,
    now: Timestamp,
) -> Result<bool, StorageError> {
    let oidc = console.inner.settings.oidc.as_ref();
    if !oidc.is_some_and(|oidc| oidc.operators_only_here) {
        return Ok(false);
    }
    let lookup = console.storage().sessions().find_link(link, None, now);
    let found = console.inner.connections.unverified_read(lookup).await?;
    Ok(found.is_some_and(|link| link.is_operator))
}

async fn sign_in(console: &Console, headers: &HeaderMap, link: &str, now: Timestamp) -> Response {
    match is_of_operator_elsewhere(console, link, now).await {
        Ok(false) => {}
        Ok(true) => {
            record_sign_in("link", "identity_provider_only", None);
            let notice = Notice::new(Tone::Attention, "Sign in at the identity provider").with(
                "An operator cannot sign in with a link here. Use the button on the page Sign in.",
            );
            return page_response(StatusCode::FORBIDDEN, &notice.page(&console.inner.frame));
        }
        Err(error) => return error_page::storage_error(console, &error),
    }
    let session = BrowserSession::new(console, headers, now);
    match console
        .inner
        .connections
        .unverified_read(
            console
                .storage()
                .sessions()
                .sign_in(link, &session.row(), now),
        )
        .await
    {
        Ok(Some(begun)) => {
            record_sign_in("link", "signed_in", Some(&begun));
            session.begun(console, headers, &begun, now).await
        }
        Ok(None) => {
            record_sign_in("link", "link_does_not_work", None);
            link_does_not_work(console)
        }
        Err(error) => error_page::storage_error(console, &error),
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
            known_browser: console
                .inner
                .known_browser_cookie
                .value_or(headers, bellbird_storage::new_token()),
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
    ) -> Response {
        let sessions = console.storage().sessions();
        let before = match console.inner.session_cookie.value(headers) {
            Some(before) => sessions.find(before, now).await.ok().flatten(),
            None => None,
        };
        if let Some(before) = before
            && let Err(error) = sessions
                .revoke(before.caller.user_id, before.caller.key_id.uuid())
                .await
        {
            return error_page::storage_error(console, &error);
        }
        let asked = console.inner.page_cookie.page(headers);
        let next = match has_programs_of_others(console.storage(), begun, now).await {
            // The demo has made its keys for this person.
            Ok(true) if console.inner.site.demo.is_none() => keys_page::FIRST_SIGN_IN,
            // Only to pages of the menus, so a cookie of anyone else leads nowhere else.
            Ok(_) => asked.as_deref().and_then(page_of).unwrap_or("/overview"),
            Err(error) => return error_page::storage_error(console, &error),
        };
        let mut response = Redirect::to(&console.path(next)).into_response();
        let cookies = [
            console
                .inner
                .session_cookie
                .header(self.token.expose_secret()),
            console
                .inner
                .known_browser_cookie
                .header(self.known_browser.expose_secret()),
            console
                .inner
                .page_cookie
                .removal()
                .filter(|_| asked.is_some()),
        ];
        response.headers_mut().extend(
            cookies
                .into_iter()
                .flatten()
                .map(|cookie| (SET_COOKIE, cookie)),
        );
        response
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
pub(crate) async fn sign_out(State(console): State<Console>, form: OwnForm) -> Response {
    match end_session(&console, &form.session, form.session.id()).await {
        // It may have ended already.
        Ok(()) | Err(Refusal::NotFound(_)) => signed_out(&console),
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

/// Ends a session of the user, with its links.
pub(crate) async fn end_session(
    console: &Console,
    session: &Session,
    ended: Uuid,
) -> Result<(), Refusal> {
    let mut change = session.begin(console).await?;
    management::end_session(&mut change, session.user(), ended).await?;
    session.commit(change).await?;
    let ended = KeyId::from(ended);
    console.inner.money_cache.remove(&ended);
    console
        .inner
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
pub(crate) fn sign_out_of(console: &Console, mut response: Response) -> Response {
    let headers = response.headers_mut();
    let cookies = [
        &console.inner.session_cookie,
        &console.inner.link_cookie,
        &console.inner.cookie,
    ];
    headers.extend(
        cookies
            .into_iter()
            .filter_map(Cookie::removal)
            .map(|cookie| (SET_COOKIE, cookie)),
    );
    headers.insert(
        CLEAR_SITE_DATA,
        HeaderValue::from_static("\"cache\", \"storage\""),
    );
    response
}

/// It has expired, was used, or never existed: the page does not say which.
fn link_does_not_work(console: &Console) -> Response {
    let notice = Notice::new(Tone::Attention, "This sign-in link does not work")
        .with("A link works once, and only for a while. Ask for a new one where you got this one.");
    page_response(StatusCode::GONE, &notice.page(&console.inner.frame))
}
