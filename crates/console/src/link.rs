//! Link URLs: `/link/{token}`. The page names the user. Its buttons start consent sessions, and
//! redirect to the provider's consent page, or remove a connection after a question. Opening the
//! page changes nothing, because link previews and mail scanners open it too.

use axum::extract::Path;
use axum::response::{IntoResponse as _, Redirect};
use bellbird_connections::{
    ConnectionsError, FoundLink, LinkTarget, LinkableProvider, RemovalPage,
};
use bellbird_domain::ConnectionId;
use bellbird_management::connections;
use http::header::REFRESH;
use http::{HeaderMap, StatusCode};
use secrecy::ExposeSecret as _;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::cookie::with_cookies;
use crate::error_page::{self, Failure, PageResult};
use crate::pages::{Choice, Notice, REFRESH_AFTER, page_with_images};
use crate::session::{Guest, GuestForm, PathText};
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
pub(crate) async fn open_link(guest: Guest, token: PathText) -> PageResult {
    let Path(token) = token.map_err(|_| Failure::LinkNotFound)?;
    let links = guest.connections.links();
    Ok(match links.find_page(&token, guest.browser()).await? {
        FoundLink::Unknown => return Err(Failure::LinkNotFound),
        FoundLink::Expired(back) => error_page::link_expired(back).into_response(),
        FoundLink::UsedUp(back) => error_page::link_used_up(back).into_response(),
        FoundLink::Connected(back) => Notice::for_connected_link(back).into_response(),
        FoundLink::Page(page) => {
            let choice = Choice::new(&guest.frame, &page, guest.now);
            let mut response = page_with_images(StatusCode::OK, &choice, choice.image_origins());
            if choice.awaits_provider() {
                response.headers_mut().insert(REFRESH, REFRESH_AFTER);
            }
            response
        }
    })
}

/// `POST /link/{token}` with one field: `provider`, `connection`, `session`, `remove` or
/// `confirm-removal`.
pub(crate) async fn submit_choice(token: PathText, form: GuestForm) -> PageResult {
    let Path(token) = token.map_err(|_| Failure::LinkNotFound)?;
    let guest = &form.guest;
    let providers = guest.connections.links().providers();
    let submitted = Submitted::of_fields(&form.fields, &providers);
    match submitted.ok_or(Failure::InvalidForm)? {
        Submitted::Start(target) => {
            start_consent_session(guest, guest.headers(), token, target).await
        }
        Submitted::Confirm(session) => confirm_consent_session(guest, token, session).await,
        Submitted::AskRemoval(connection) => {
            let links = guest.connections.links();
            let page = links.find_removal_page(&token, connection).await;
            removal(page, |page| Notice::for_removal(page, &guest.frame))
        }
        Submitted::Remove(connection) => {
            let links = guest.connections.links();
            let page = links.find_removal_page(&token, connection).await;
            if let Ok(page) = &page {
                remove(guest, page).await?;
            }
            removal(page, |page| Notice::for_removed(page, &guest.frame))
        }
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
        Some(match name.as_str() {
            "provider" => {
                let provider = linkable.iter().find(|known| known.name == value)?;
                Self::Start(LinkTarget::Provider(provider.name))
            }
            "connection" => Self::Start(LinkTarget::Connection(value.parse().ok()?)),
            "session" => Self::Confirm(value.parse().ok()?),
            "remove" => Self::AskRemoval(value.parse().ok()?),
            "confirm-removal" => Self::Remove(value.parse().ok()?),
            _ => return None,
        })
    }
}

/// Runs in a task of its own, so that a disconnect does not cancel it: when a user presses a button
/// twice, the browser aborts the first request, and a half-started session would block the second.
pub(crate) async fn in_own_task<T: Send + 'static>(
    console: &Console,
    change: impl Future<Output = Result<T, ConnectionsError>> + Send + 'static,
) -> Result<Result<T, ConnectionsError>, Failure> {
    let task = console.connections.tasks().spawn(change.in_current_span());
    task.await.map_err(|_| Failure::Internal)
}

/// Starts a consent session, with the rights of this link, and redirects to the provider.
pub(crate) async fn start_consent_session(
    console: &Console,
    headers: &HeaderMap,
    token: String,
    target: LinkTarget<'static>,
) -> PageResult {
    let browser = console.cookies.browser.value_or_new(headers);
    let cookies = [
        console.cookies.browser.header(browser.expose_secret()),
        console.cookies.link.header(&token),
    ];
    let connections = console.connections.clone();
    let start = async move {
        connections
            .links()
            .start_consent_session(&token, target, browser.expose_secret())
            .await
    };
    let started = in_own_task(console, start).await?;
    let url = started.inspect_err(|error| {
        if !matches!(
            error,
            ConnectionsError::LinkExpired | ConnectionsError::Storage(_)
        ) {
            tracing::warn!(%error, "could not start consent session");
        }
    })?;
    Ok(with_cookies(
        Redirect::to(url.as_str()).into_response(),
        cookies,
    ))
}

/// Confirms a session of this browser and shows the page again, with what is connected now.
async fn confirm_consent_session(guest: &Guest, token: String, session: Uuid) -> PageResult {
    let browser = guest.browser().ok_or(Failure::InvalidForm)?.to_owned();
    let page = format!("/link/{token}");
    let connections = guest.connections.clone();
    let confirm = async move {
        connections
            .links()
            .confirm_consent_session(&token, session, &browser)
            .await
    };
    in_own_task(guest, confirm).await??;
    Ok(guest.redirect(&page))
}

/// Hides a connection at once, for whoever has the link. A job withdraws its consent.
async fn remove(guest: &Guest, page: &RemovalPage) -> Result<(), Failure> {
    let connection = &page.linked.connection;
    let change = guest
        .storage()
        .begin_own_change(connection.user_id, page.link_id, guest.now);
    let mut change = change.await?;
    if connections::remove(&mut change, connection).await? {
        change.commit().await?;
        let provider = &connection.provider;
        guest.connections.removals().wake(provider);
        tracing::info!(provider, "connection removed by its user");
    }
    Ok(())
}

/// What a page says of a removal, unless somebody else was faster.
fn removal(
    page: Result<RemovalPage, ConnectionsError>,
    notice: impl FnOnce(&RemovalPage) -> Notice,
) -> PageResult {
    match page {
        Ok(page) => Ok(notice(&page).into_response()),
        Err(ConnectionsError::NotFound) => Ok(error_page::connection_not_found().into_response()),
        Err(error) => Err(error.into()),
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
