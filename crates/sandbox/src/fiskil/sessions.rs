//! `POST /v1/auth/session` (fiskil.md 1.5). The hosted page that the address leads to is not here yet.

use axum::response::Response;
use serde::Serialize;

use super::call::{Call, json};
use super::errors::Failure;
use crate::world::people::INSTITUTIONS;
use crate::world::rng::{BASE62, Rng};

/// Five days.
const LIFE_SECONDS: i64 = 5 * 86_400;

#[derive(Serialize)]
struct Session<'a> {
    id: &'a str,
    session_id: String,
    auth_url: String,
    /// Unix seconds.
    expires_at: i64,
}

/// A session for the consent page.
pub(super) async fn create(call: Call) -> Result<Response, Failure> {
    let members = call.members()?;
    let Some(end_user_id) = members.text("end_user_id").filter(|id| !id.is_empty()) else {
        return Err(call.invalid("end_user_id is required"));
    };
    if call.fiskil.store.read().end_user(&end_user_id).is_none() {
        return Err(call.no_end_user());
    }
    if let Some(id) = members.get("institution_id") {
        let known = serde_json::from_str::<&str>(id.get()).is_ok_and(|id| INSTITUTIONS.iter().any(|one| one.id == id));
        if !known {
            let failure = call.invalid("no institution has this id");
            return Err(Failure { name: "invalid_institution_id", ..failure });
        }
    }
    let random = uuid::Uuid::new_v4().as_u64_pair();
    let session_id = Rng::new(random.0, random.1).text(BASE62, 27);
    Ok(json(&Session {
        id: &call.fiskil.client_id,
        auth_url: format!("{}?sess_id={session_id}", call.fiskil.base_url),
        session_id,
        expires_at: call.now.as_second().saturating_add(LIFE_SECONDS),
    }))
}
