//! `/settings/leave`: withdraws the consents of a user, and deletes the user with everything that
//! is stored.

use askama::Template;
use bellbird_connections::{ConnectionsError, Removal};
use bellbird_management::{Refusal, users};
use futures_util::StreamExt as _;
use http::StatusCode;

use crate::error_page::PageResult;
use crate::pages::{Notice, SignedInFrame, Tone, page_response};
use crate::session::{OwnForm, Session};
use crate::sign_in::sign_out_of;

/// Providers are asked to withdraw this many consents of a user at the same time.
const REMOVALS_AT_ONCE: usize = 4;

#[derive(Template)]
#[template(path = "leave.html")]
struct LeavePage<'a> {
    frame: &'a SignedInFrame<'a>,
    connections: usize,
    /// Whether nobody is left who can set the service up in the browser.
    is_only_operator: bool,
    problem: Option<&'static str>,
}

/// `GET /settings/leave`
pub(crate) async fn show(session: Session) -> PageResult {
    page(&session, None).await
}

async fn page(session: &Session, problem: Option<&'static str>) -> PageResult {
    let storage = session.storage();
    let connections = storage.connections().list(session.user()).await?;
    let frame = session.frame("/settings");
    let users = match frame.is_operator {
        true => storage.users().list().await?,
        false => Vec::new(),
    };
    let status = match problem {
        Some(_) => StatusCode::CONFLICT,
        None => StatusCode::OK,
    };
    let page = LeavePage {
        frame: &frame,
        connections: connections.len(),
        is_only_operator: users.iter().filter(|user| user.is_operator).count() == 1,
        problem,
    };
    Ok(page_response(status, &page))
}

/// `POST /settings/leave`, with the user's address in the field `email`.
pub(crate) async fn leave(form: OwnForm) -> PageResult {
    const OTHER_ADDRESS: &str = "This is not your e-mail address. Nothing was deleted.";
    const STILL_CONNECTED: &str = "A bank has not confirmed yet that its consent is withdrawn. Nothing is read any more, \
        and Bellbird tries again by itself. Come back in an hour, and delete your account then.";
    let session = &form.session;
    if !form
        .field("email")
        .is_some_and(|email| email.trim().eq_ignore_ascii_case(&session.email))
    {
        return page(session, Some(OTHER_ADDRESS)).await;
    }
    match delete(session).await {
        Ok(()) => {
            let page = Notice::new(Tone::Good, "Your account is deleted")
                .with("Your consents are withdrawn, and your keys have ended.")
                .with("Still stored, without your name, is that banks were linked, and what operators changed.");
            Ok(sign_out_of(session, page))
        }
        Err(Refusal::StillConnected) => page(session, Some(STILL_CONNECTED)).await,
        Err(refusal) => Err(refusal.into()),
    }
}

/// Fails with [`Refusal::StillConnected`] if a consent is not withdrawn yet, or a connection was
/// made meanwhile.
async fn delete(session: &Session) -> Result<(), Refusal> {
    let (storage, user) = (session.storage(), session.user());
    let connections = storage
        .connections()
        .list_after(None, Some(user), u32::MAX)
        .await?;
    let mut removals = futures_util::stream::iter(connections)
        .map(|connection| session.connections.removals().remove(connection.id))
        .buffer_unordered(REMOVALS_AT_ONCE);
    let mut is_removed = true;
    while let Some(removed) = removals.next().await {
        is_removed &= match removed {
            Ok(removal) => removal == Removal::Done,
            Err(ConnectionsError::NotFound) => true,
            Err(error) => return Err(error.into()),
        };
    }
    if !is_removed {
        return Err(Refusal::StillConnected);
    }
    users::prepare_removal(storage, &session.connections, user, false).await?;
    let mut change = session.begin().await?;
    users::remove(&mut change, user).await?;
    session.commit(change).await
}
