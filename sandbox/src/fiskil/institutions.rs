//! `/v1/institutions` (docs/providers/fiskil.md#institutions): a bare array in every version; what v3 does is not
//! known.

use axum::extract::Path;
use axum::response::Response;
use serde::Serialize;

use super::call::{Call, json};
use super::errors::Failure;
use crate::world::people::{INSTITUTIONS, Institution};

#[derive(Serialize)]
struct Shown {
    id: &'static str,
    name: &'static str,
    icon: String,
    logo: String,
    industry: &'static str,
    is_accessible: bool,
    priority: usize,
    status: Status,
}

#[derive(Serialize)]
struct Status {
    connections: Connections,
}

#[derive(Serialize)]
struct Connections {
    status: &'static str,
}

/// Where a logo would be; `example.com` never answers with one.
pub(super) fn logo(institution: &Institution) -> String {
    format!("https://logos.example.com/au/{}/logo.svg", institution.id)
}

fn shown(priority: usize, institution: &Institution) -> Shown {
    Shown {
        id: institution.id,
        name: institution.name,
        icon: format!("https://logos.example.com/au/{}/icon.svg", institution.id),
        logo: logo(institution),
        industry: institution.industry,
        is_accessible: true,
        priority,
        status: Status { connections: Connections { status: institution.status } },
    }
}

/// All institutions, or those of one industry. The words of the refusals are ours.
pub(super) async fn list(call: Call) -> Result<Response, Failure> {
    if call.query.get("client_id") != Some(call.fiskil.client_id.as_str()) {
        return Err(call.invalid("client_id is required and must be your own"));
    }
    let industry = call.query.get("industry").filter(|industry| !industry.is_empty());
    if industry.is_some_and(|industry| !["banking", "energy"].contains(&industry)) {
        return Err(call.invalid("industry must be banking or energy"));
    }
    if call.query.get("institution_mode").is_some_and(|mode| !["", "recommended"].contains(&mode)) {
        return Err(call.invalid("institution_mode must be recommended"));
    }
    let institutions = INSTITUTIONS.iter().enumerate();
    let kept = institutions.filter(|(_, one)| industry.is_none_or(|industry| one.industry == industry));
    Ok(json(&kept.map(|(index, one)| shown(index + 1, one)).collect::<Vec<_>>()))
}

/// One institution. An unknown id is `bad_request`, as documented.
pub(super) async fn show(Path(id): Path<String>, call: Call) -> Result<Response, Failure> {
    let found = INSTITUTIONS.iter().enumerate().find(|(_, one)| one.id == id);
    let (index, one) = found.ok_or_else(|| call.invalid("no institution has this id"))?;
    Ok(json(&shown(index + 1, one)))
}
