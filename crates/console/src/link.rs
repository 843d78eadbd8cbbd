//! Link URLs: `/link/{token}`. The page names the user. Its buttons start link sessions, and redirect to the provider's
//! consent page. Opening the page changes nothing, because link previews and mail scanners open it too.

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use bellbird_connections::{ConnectionsError, LinkTarget, LinkableProvider};
use http::header::SET_COOKIE;
use http::{HeaderMap, StatusCode};
use secrecy::ExposeSecret as _;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::pages::{Choice, page_response};
use crate::state::Console;
use crate::{body, error_page};

pub(crate) const FORM_BYTES_MAX: usize = 4 * 1024;

/// What a button of the page submits.
#[derive(Debug, PartialEq, Eq)]
enum Submitted {
    Start(LinkTarget<'static>),
    /// The user gave consent in a session of this browser, which has not returned.
    Confirm(Uuid),
}

/// `GET /link/{token}`
pub(crate) async fn open_link(
    State(console): State<Console>,
    headers: HeaderMap,
    token: Result<Path<String>, PathRejection>,
) -> Response {
    let Ok(Path(token)) = token else { return error_page::link_not_found(&console) };
    match console.inner.connections.find_link_page(&token, console.inner.cookie.value(&headers)).await {
        Err(error) => error_page::connections_error(&console, &error),
        Ok(None) => error_page::link_not_found(&console),
        Ok(Some(page)) => {
            let title_of = |provider: &str| console.inner.connections.provider_title(provider).to_owned();
            page_response(StatusCode::OK, &Choice::new(&console.inner.assets, &page, title_of))
        }
    }
}

/// `POST /link/{token}` with one field, `provider`, `connection` or `session`.
pub(crate) async fn submit_choice(
    State(console): State<Console>,
    headers: HeaderMap,
    token: Result<Path<String>, PathRejection>,
    form: Body,
) -> Response {
    if is_cross_site(&headers) {
        return error_page::cross_site_form(&console);
    }
    let Ok(Path(token)) = token else { return error_page::link_not_found(&console) };
    let form = match body::read(&headers, form, FORM_BYTES_MAX).await {
        Ok(form) => form,
        Err(error) => return error_page::form_body_error(&console, error),
    };
    match parse_form(&form, &console.inner.connections.linkable_providers()) {
        Some(Submitted::Start(target)) => start_link_session(&console, &headers, token, target).await,
        Some(Submitted::Confirm(session)) => confirm_link_session(&console, &headers, token, session).await,
        None => error_page::invalid_form(&console),
    }
}

/// Whether another origin submits a form, also one of the same site: another program may run there.
pub(crate) fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none")
}

/// Returns `None` unless the form has exactly one field that names a linkable provider, a connection or a session.
fn parse_form(form: &[u8], linkable: &[LinkableProvider]) -> Option<Submitted> {
    let mut fields = form_urlencoded::parse(form);
    let (name, value) = fields.next()?;
    if fields.next().is_some() {
        return None;
    }
    match name.as_ref() {
        "provider" => {
            let provider = linkable.iter().find(|known| known.name == value)?;
            Some(Submitted::Start(LinkTarget::Provider(provider.name)))
        }
        "connection" => value.parse().ok().map(|id| Submitted::Start(LinkTarget::Connection(id))),
        "session" => value.parse().ok().map(Submitted::Confirm),
        _ => None,
    }
}

/// Starts a link session and redirects to the provider. The start runs in its own task, so that a disconnect does not
/// cancel it: when a user presses the button twice, the browser aborts the first request, and a half-started session
/// would block the second.
async fn start_link_session(
    console: &Console,
    headers: &HeaderMap,
    token: String,
    target: LinkTarget<'static>,
) -> Response {
    let browser = console.inner.cookie.value_or_new(headers);
    let cookie = console.inner.cookie.header(&browser);
    let connections = console.inner.connections.clone();
    let start = async move { connections.start_link_session(&token, target, browser.expose_secret()).await };
    match console.inner.connections.tasks().spawn(start.in_current_span()).await {
        Ok(Ok(url)) => {
            let mut response = Redirect::to(url.as_str()).into_response();
            response.headers_mut().extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
            response
        }
        Ok(Err(error)) => {
            if !matches!(error, ConnectionsError::LinkExpired | ConnectionsError::Storage(_)) {
                tracing::warn!(%error, "could not start link session");
            }
            error_page::connections_error(console, &error)
        }
        Err(_) => error_page::internal_error(console),
    }
}

/// Confirms a session of this browser and shows the page again, with what is connected now.
async fn confirm_link_session(console: &Console, headers: &HeaderMap, token: String, session: Uuid) -> Response {
    let Some(browser) = console.inner.cookie.value(headers).map(str::to_owned) else {
        return error_page::invalid_form(console);
    };
    let page = format!("{}/link/{token}", console.inner.assets.root);
    let connections = console.inner.connections.clone();
    let confirm = async move { connections.confirm_link_session(&token, session, &browser).await };
    match console.inner.connections.tasks().spawn(confirm.in_current_span()).await {
        Ok(Ok(())) => Redirect::to(&page).into_response(),
        Ok(Err(error)) => error_page::connections_error(console, &error),
        Err(_) => error_page::internal_error(console),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKABLE: [LinkableProvider; 1] =
        [LinkableProvider { name: "somebank", title: "SomeBank", reaches: "Some banks" }];

    #[test]
    fn form_names_exactly_one_choice() {
        let id = bellbird_domain::ConnectionId::new();
        let submitted = |form: &str| parse_form(form.as_bytes(), &LINKABLE);
        assert_eq!(submitted("provider=somebank"), Some(Submitted::Start(LinkTarget::Provider("somebank"))));
        assert_eq!(submitted(&format!("connection={id}")), Some(Submitted::Start(LinkTarget::Connection(id))));
        assert_eq!(submitted(&format!("session={}", Uuid::nil())), Some(Submitted::Confirm(Uuid::nil())));
        for wrong in [
            "",
            "provider=",
            "provider=other",
            "connection=1",
            "provider=somebank&provider=somebank",
            "session=1",
            "x=1",
        ] {
            assert_eq!(submitted(wrong), None, "{wrong}");
        }
    }
}
