//! `GET /v1/institutions/{id}` (docs/providers/fiskil.md#institutions).

use axum::extract::Path;
use axum::response::Response;
use serde_json::json;

use super::call::Call;
use super::errors::Failure;
use crate::logos;
use crate::respond::json as respond;
use crate::world::australia::{AUSTRALIA, institution};

pub(super) fn name(id: &str) -> Option<&'static str> {
    institution(id).map(|institution| institution.name)
}

/// Shows one institution. An unknown id is `bad_request`, as documented.
pub(super) async fn show(Path(id): Path<String>, call: Call) -> Result<Response, Failure> {
    let mut institutions = (1..).zip(&AUSTRALIA.institutions);
    let found = institutions.find(|(_, institution)| institution.id == id);
    let (priority, institution) =
        found.ok_or_else(|| call.invalid("no institution has this id"))?;
    let logo = logos::url(&call.fiskil.access.base_url, institution.id);
    Ok(respond(&json!({
        "id": institution.id, "name": institution.name, "icon": logo, "logo": logo,
        "industry": institution.industry, "is_accessible": true, "priority": priority,
        "status": {"connections": {"status": institution.status}},
    })))
}
