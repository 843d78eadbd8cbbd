//! `/v1/institutions`, a bare array in every version because the v3 shape is unknown
//! (docs/providers/fiskil.md#institutions).

use axum::extract::Path;
use axum::response::Response;
use serde_json::{Value, json};

use super::call::Call;
use super::errors::Failure;
use crate::logos;
use crate::respond::json as respond;
use crate::world::australia::{AUSTRALIA, Institution, institution};

pub(super) fn name(id: &str) -> Option<&'static str> {
    institution(id).map(|institution| institution.name)
}

fn view(base_url: &str, priority: usize, institution: &Institution) -> Value {
    let logo = logos::url(base_url, institution.id);
    json!({
        "id": institution.id, "name": institution.name, "icon": logo, "logo": logo,
        "industry": institution.industry, "is_accessible": true, "priority": priority,
        "status": {"connections": {"status": institution.status}},
    })
}

/// Lists all institutions, or those of one industry. The error texts are invented.
pub(super) async fn list(call: Call) -> Result<Response, Failure> {
    if call.query.get("client_id") != Some(call.fiskil.access.client_id.as_str()) {
        return Err(call.invalid("client_id is required and must be your own"));
    }
    let industry = call.query.filled("industry");
    if industry.is_some_and(|industry| !["banking", "energy"].contains(&industry)) {
        return Err(call.invalid("industry must be banking or energy"));
    }
    let mode = call.query.filled("institution_mode");
    if mode.is_some_and(|mode| mode != "recommended") {
        return Err(call.invalid("institution_mode must be recommended"));
    }
    let institutions = AUSTRALIA.institutions.iter().enumerate();
    let kept = institutions.filter(|(_, institution)| {
        industry.is_none_or(|industry| institution.industry == industry)
    });
    Ok(respond(
        &kept
            .map(|(index, institution)| view(&call.fiskil.access.base_url, index + 1, institution))
            .collect::<Vec<_>>(),
    ))
}

/// Shows one institution. An unknown id is `bad_request`, as documented.
pub(super) async fn show(Path(id): Path<String>, call: Call) -> Result<Response, Failure> {
    let found = AUSTRALIA
        .institutions
        .iter()
        .enumerate()
        .find(|(_, institution)| institution.id == id);
    let (index, institution) = found.ok_or_else(|| call.invalid("no institution has this id"))?;
    Ok(respond(&view(
        &call.fiskil.access.base_url,
        index + 1,
        institution,
    )))
}
