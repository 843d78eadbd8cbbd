//! `/v1/end-users`: creates, lists and deletes end users (docs/providers/fiskil.md#end-users).

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::json;

use super::call::Call;
use super::errors::Failure;
use super::paging::write;
use super::store::{ConsentStatus, EndUser};
use crate::members::Members;
use crate::merge::{Page, PageRequest};
use crate::respond::{json as json_answer, ready};
use crate::world::rng::{BASE62, Rng};

/// The members that a client can set.
const MEMBERS: [&str; 4] = ["email", "name", "phone", "abn"];

impl EndUser {
    fn shown(&self) -> Members {
        let mut shown = Members::default();
        shown.set("id", &self.id);
        shown.merge(self.members.clone());
        shown
    }
}

/// Reads the known members of the body, each of which must be text.
fn known_members(call: &Call) -> Result<Members, Failure> {
    let given = call.members()?;
    let mut members = Members::default();
    for name in MEMBERS
        .into_iter()
        .filter(|name| given.get(name).is_some_and(|raw| raw.get() != "null"))
    {
        let text = given
            .text(name)
            .ok_or_else(|| call.invalid(&format!("{name} must be a string")))?;
        members.set(name, &text);
    }
    Ok(members)
}

/// Creates an end user, even if the email exists already: nothing is unique. Status 201 is a
/// sandbox choice.
pub(super) async fn create(call: Call) -> Result<Response, Failure> {
    let members = known_members(&call)?;
    if members.text("email").is_none_or(|email| email.is_empty()) {
        return Err(call.invalid("email is required"));
    }
    let id = format!("eu_{}", Rng::random().text(BASE62, 27));
    call.fiskil.store.write().add_end_user(id.clone(), members);
    Ok((
        StatusCode::CREATED,
        json_answer(&json!({"end_user_id": id})),
    )
        .into_response())
}

/// Lists all end users in pages.
pub(super) async fn list(call: Call) -> Result<Response, Failure> {
    let email = call.query.filled("email");
    let keep = |user: &EndUser| {
        !user.deleted
            && email.is_none_or(|email| user.members.text("email").as_deref() == Some(email))
    };
    let store = call.fiskil.store.read();
    let page = Page::of(&[store.end_users.as_slice()], PageRequest::of(&call)?, keep);
    let body = write(&call, "end_users", &page, |out, _, user| {
        user.shown().write(out);
    });
    Ok(ready(body))
}

/// Responds with 204, and with 404 when repeated. That the consents end with the end user is a
/// sandbox choice (docs/providers/fiskil.md#end-users).
pub(super) async fn delete(Path(id): Path<String>, call: Call) -> Result<Response, Failure> {
    let mut store = call.fiskil.store.write();
    store
        .end_user_mut(&id)
        .ok_or_else(|| call.end_user_not_found())?
        .deleted = true;
    for consent in store
        .consents
        .iter_mut()
        .filter(|consent| consent.end_user_id == id)
    {
        consent.status = ConsentStatus::Ended;
    }
    Ok((
        StatusCode::NO_CONTENT,
        [(header::CACHE_CONTROL, "no-store")],
    )
        .into_response())
}
