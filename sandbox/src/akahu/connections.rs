//! `GET /connections[/{id}]`: the institutions that users can link
//! (docs/providers/akahu.md#institutions).

use axum::extract::Path;
use axum::response::Response;
use serde_json::{Value, json};

use super::call::{AppCall, check_id};
use super::errors::Failure;
use super::respond::{item, items};
use crate::world::new_zealand::{Institution, NEW_ZEALAND, institution};

/// An official connection replaces its classic twin, which accepts no new logins
/// (docs/providers/akahu.md#institutions).
pub(super) fn is_closed_to_new_connections(institution: &Institution) -> bool {
    let mut officials = NEW_ZEALAND
        .institutions
        .iter()
        .filter_map(|other| other.official.as_ref());
    officials.any(|official| official.classic == institution.id)
}

fn full(institution: &Institution) -> Value {
    let mut shown = for_account(institution);
    shown["new_connections_enabled"] = (!is_closed_to_new_connections(institution)).into();
    if let Some(official) = &institution.official {
        shown["_classic"] = official.classic.into();
        shown["mode"] = official.mode.into();
        if let Some(deadline) = official.deadline {
            shown["deadline"] = deadline.into();
        }
    }
    shown
}

/// The four members that an account repeats.
pub(super) fn for_account(institution: &Institution) -> Value {
    let is_official = institution.official.is_some();
    json!({
        "_id": institution.id, "name": institution.name,
        // It never loads. The real one is at `cdn.akahu.nz`, which a sandbox must not call.
        "logo": format!("https://logos.example.com/nz/{}.png", institution.id),
        "connection_type": if is_official { "official" } else { "classic" },
    })
}

/// Lists all institutions, without pages.
pub(super) async fn list(_: AppCall) -> Response {
    items(NEW_ZEALAND.institutions.iter().map(full))
}

pub(super) async fn show(Path(id): Path<String>, _: AppCall) -> Result<Response, Failure> {
    check_id("conn_", &id)?;
    Ok(item(full(institution(&id).ok_or_else(Failure::not_found)?)))
}
