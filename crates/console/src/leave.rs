//! `/settings/leave`: ends all access of a user. Then the service withdraws the consents, and
//! deletes the user with everything that is stored.

use askama::Template;
use bellbird_management::users;
use http::StatusCode;

use crate::error_page::PageResult;
use crate::pages::{Notice, SignedInFrame, Tone, page_response};
use crate::session::{OwnForm, Session};
use crate::sign_in::sign_out_of;

#[derive(Template)]
#[template(path = "leave.html")]
struct LeavePage<'a> {
    frame: &'a SignedInFrame<'a>,
    connections: usize,
    /// Whether nobody is left who can set the service up in the browser.
    is_only_operator: bool,
    /// Whether another address than the user's was written.
    is_other_address: bool,
}

/// `GET /settings/leave`
pub(crate) async fn show(session: Session) -> PageResult {
    page(&session, false).await
}

async fn page(session: &Session, is_other_address: bool) -> PageResult {
    let (storage, user) = (session.storage(), session.user());
    let connections = storage.connections().list(user).await?;
    let page = LeavePage {
        frame: &session.frame("/settings"),
        connections: connections.len(),
        is_only_operator: session.is_operator
            && !storage.sessions().has_other_operator(user).await?,
        is_other_address,
    };
    let status = match is_other_address {
        true => StatusCode::CONFLICT,
        false => StatusCode::OK,
    };
    Ok(page_response(status, &page))
}

/// `POST /settings/leave`, with the user's address in the field `email`.
pub(crate) async fn leave(form: OwnForm) -> PageResult {
    let session = &form.session;
    let written = form.field("email").unwrap_or_default().trim();
    if !written.eq_ignore_ascii_case(&session.email) {
        return page(session, true).await;
    }
    let mut change = session.begin().await?;
    users::begin_removal(&mut change, session.user()).await?;
    session.commit(change).await?;
    session.connections.user_removals().wake();
    let page = Notice::new(Tone::Good, "Your account is being deleted")
        .with(
            "Your keys and sessions have ended. Once every consent is withdrawn, which takes a few minutes unless a \
             provider is down, all that is stored is deleted.",
        )
        .with("Still stored, without your name, is that banks were linked, and what operators changed.");
    Ok(sign_out_of(session, page))
}
