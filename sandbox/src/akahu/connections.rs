//! What is the same for every user: the institutions that can be linked, at `/connections`
//! (docs/providers/akahu.md#institutions), and the spending categories of NZFCC, at `/categories`
//! (docs/providers/akahu.md#category-list).

use axum::response::Response;
use serde_json::{Value, json};

use super::call::AppCall;
use super::respond::items;
use crate::world::new_zealand::{Institution, NEW_ZEALAND};
use crate::world::nzfcc::{CODES, Code};

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

fn view(code: &Code) -> Value {
    let (id, name) = code.group;
    json!({
        "_id": code.id, "name": code.name,
        "groups": {"personal_finance": {"_id": id, "name": name}},
    })
}

/// Lists all spending codes, without pages.
pub(super) async fn categories(_: AppCall) -> Response {
    items(CODES.iter().map(view))
}
