//! Link URLs: `/link/{token}`. The page names the user. Its buttons start consent sessions, and
//! redirect to the provider's consent page, or remove a connection after a question. Opening the
//! page changes nothing, because link previews and mail scanners open it too.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use bellbird_connections::{ConnectionsError, FoundLink, LinkTarget, LinkableProvider};
use bellbird_domain::ConnectionId;
use http::header::{REFRESH, SET_COOKIE};
use http::{HeaderMap, StatusCode};
use secrecy::ExposeSecret as _;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::error_page;
use crate::pages::{Choice, Notice, REFRESH_AFTER, page_response, page_with_images};
use crate::session::GuestForm;
use crate::state::Console;

/// What a button of the page submits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    Start(LinkTarget<'static>),
    /// The user gave consent in a session of this browser, which has not returned.
    Confirm(Uuid),
    /// Ask whether to remove a connection. Changes nothing.
    AskRemoval(ConnectionId),
    Remove(ConnectionId),
}

/// `GET /link/{token}`
pub(crate) async fn open_link(
    State(console): State<Console>,
    headers: HeaderMap,
    token: Result<Path<String>, PathRejection>,
) -> Response {
    let Ok(Path(token)) = token else {
        return error_page::link_not_found(&console);
    };
    match console
        .inner
        .connections
        .links()
        .find_page(&token, console.inner.cookie.value(&headers))
        .await
    {
        Err(error) => error_page::connections_error(&console, &error),
        Ok(FoundLink::Unknown) => error_page::link_not_found(&console),
        Ok(FoundLink::Expired(back)) => error_page::link_expired(&console, back),
        Ok(FoundLink::UsedUp(back)) => error_page::link_used_up(&console, back),
        Ok(FoundLink::Connected(back)) => {
            let notice = Notice::for_connected_link(back);
            page_response(StatusCode::OK, &notice.page(&console.inner.frame))
        }
        Ok(FoundLink::Page(page)) => {
            let title_of = |provider: &str| title(&console, provider);
            let now = console.inner.clock.now();
            let choice = Choice::new(&console.inner.frame, &page, now, title_of);
            let mut response = page_with_images(StatusCode::OK, &choice, choice.image_origins());
            if choice.awaits_provider() {
                response.headers_mut().insert(REFRESH, REFRESH_AFTER);
            }
            response
        }
    }
}

fn title(console: &Console, provider: &str) -> String {
    console
        .inner
        .connections
        .links()
        .provider_title(provider)
        .to_owned()
}

/// `POST /link/{token}` with one field: `provider`, `connection`, `session`, `remove` or
/// `confirm-removal`.
pub(crate) async fn submit_choice(
    State(console): State<Console>,
    token: Result<Path<String>, PathRejection>,
    form: GuestForm,
) -> Response {
    let Ok(Path(token)) = token else {
        return error_page::link_not_found(&console);
    };
    match Submitted::of_fields(&form.fields, &console.inner.connections.links().providers()) {
        Some(submitted) => submit(&console, &form.headers, token, submitted).await,
        None => error_page::invalid_form(&console),
    }
}

/// Does what a button says, with the rights of this link.
pub(crate) async fn submit(
    console: &Console,
    headers: &HeaderMap,
    token: String,
    submitted: Submitted,
) -> Response {
    match submitted {
        Submitted::Start(target) => start_consent_session(console, headers, token, target).await,
        Submitted::Confirm(session) => {
            confirm_consent_session(console, headers, token, session).await
        }
        Submitted::AskRemoval(connection) => ask_removal(console, &token, connection).await,
        Submitted::Remove(connection) => remove(console, token, connection).await,
    }
}

impl Submitted {
    /// Returns `None` unless there is exactly one field, which names a linkable provider, a
    /// connection or a session.
    pub(crate) fn of_fields(
        fields: &[(String, String)],
        linkable: &[LinkableProvider],
    ) -> Option<Self> {
        let [(name, value)] = fields else { return None };
        match name.as_str() {
            "provider" => {
                let provider = linkable.iter().find(|known| known.name == value)?;
                Some(Self::Start(LinkTarget::Provider(provider.name)))
            }
            "connection" => value
                .parse()
                .ok()
                .map(|id| Self::Start(LinkTarget::Connection(id))),
            "session" => value.parse().ok().map(Self::Confirm),
            "remove" => value.parse().ok().map(Self::AskRemoval),
            "confirm-removal" => value.parse().ok().map(Self::Remove),
            _ => None,
        }
    }
}

/// Starts a consent session and redirects to the provider. The start runs in its own task, so that
/// a disconnect does not cancel it: when a user presses the button twice, the browser aborts the
/// first request, and a half-started session would block the second.
async fn start_consent_session(
    console: &Console,
    headers: &HeaderMap,
    token: String,
    target: LinkTarget<'static>,
) -> Response {
    let browser = console
        .inner
        .cookie
        .value_or(headers, bellbird_storage::new_token());
    let cookies = [
        console.inner.cookie.header(browser.expose_secret()),
        console.inner.link_cookie.header(&token),
    ];
    let connections = console.inner.connections.clone();
    let start = async move {
        connections
            .links()
            .start_consent_session(&token, target, browser.expose_secret())
            .await
    };
    match console
        .inner
        .connections
        .tasks()
        .spawn(start.in_current_span())
        .await
    {
        Ok(Ok(url)) => {
            let mut response = Redirect::to(url.as_str()).into_response();
            for cookie in cookies.into_iter().flatten() {
                response.headers_mut().append(SET_COOKIE, cookie);
            }
            response
        }
        Ok(Err(error)) => {
            if !matches!(
                error,
                ConnectionsError::LinkExpired | ConnectionsError::Storage(_)
            ) {
                tracing::warn!(%error, "could not start consent session");
            }
            error_page::connections_error(console, &error)
        }
        Err(_) => error_page::internal_error(console),
    }
}

/// Confirms a session of this browser and shows the page again, with what is connected now.
async fn confirm_consent_session(
    console: &Console,
    headers: &HeaderMap,
    token: String,
    session: Uuid,
) -> Response {
    let Some(browser) = console.inner.cookie.value(headers).map(str::to_owned) else {
        return error_page::invalid_form(console);
    };
    let page = format!("{}/link/{token}", console.inner.frame.root);
    let connections = console.inner.connections.clone();
    let confirm = async move {
        connections
            .links()
            .confirm_consent_session(&token, session, &browser)
            .await
    };
    match console
        .inner
        .connections
        .tasks()
        .spawn(confirm.in_current_span())
        .await
    {
        Ok(Ok(())) => Redirect::to(&page).into_response(),
        Ok(Err(error)) => error_page::connections_error(console, &error),
        Err(_) => error_page::internal_error(console),
    }
}

async fn ask_removal(console: &Console, token: &str, connection: ConnectionId) -> Response {
    match console
        .inner
        .connections
        .links()
        .find_removal_page(token, connection)
        .await
    {
        Ok(page) => {
            let frame = &console.inner.frame;
            let notice =
                Notice::for_removal(&page, frame, |provider: &str| title(console, provider));
            page_with_images(StatusCode::OK, &notice.page(frame), notice.image_origins())
        }
        Err(error) => removal_error(console, &error),
    }
}

async fn remove(console: &Console, token: String, connection: ConnectionId) -> Response {
    let connections = console.inner.connections.clone();
    let remove = async move { connections.links().remove_by_user(&token, connection).await };
    match console
        .inner
        .connections
        .tasks()
        .spawn(remove.in_current_span())
        .await
    {
        Ok(Ok(page)) => {
            let notice = Notice::for_removed(&page, |provider: &str| title(console, provider));
            page_response(StatusCode::OK, &notice.page(&console.inner.frame))
        }
        Ok(Err(error)) => removal_error(console, &error),
        Err(_) => error_page::internal_error(console),
    }
}

fn removal_error(console: &Console, error: &ConnectionsError) -> Response {
    match error {
        ConnectionsError::NotFound => error_page::connection_not_found(console),
        error => error_page::connections_error(console, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::fixtures::LINKABLE;

    #[test]
    fn form_names_exactly_one_choice() {
        let id = ConnectionId::new();
        let submitted = |form: &str| {
            let fields: Vec<_> = form_urlencoded::parse(form.as_bytes())
                .into_owned()
                .collect();
            Submitted::of_fields(&fields, &LINKABLE)
        };
        assert_eq!(
            submitted("provider=somebank"),
            Some(Submitted::Start(LinkTarget::Provider("somebank")))
        );
        assert_eq!(
            submitted(&format!("connection={id}")),
            Some(Submitted::Start(LinkTarget::Connection(id)))
        );
        assert_eq!(
            submitted(&format!("session={}", Uuid::nil())),
            Some(Submitted::Confirm(Uuid::nil()))
        );
        assert_eq!(
            submitted(&format!("remove={id}")),
            Some(Submitted::AskRemoval(id))
        );
        assert_eq!(
            submitted(&format!("confirm-removal={id}")),
            Some(Submitted::Remove(id))
        );
        for wrong in [
            "",
            "provider=",
            "provider=other",
            "connection=1",
            "provider=somebank&provider=somebank",
            "session=1",
            "remove=1",
            "confirm-removal=",
            "x=1",
        ] {
            assert_eq!(submitted(wrong), None, "{wrong}");
        }
    }
}
