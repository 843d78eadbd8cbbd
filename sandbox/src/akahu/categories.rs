//! `GET /categories[/{id}]` (docs/providers/akahu.md#category-list).

use axum::extract::Path;
use axum::response::Response;
use serde::Serialize;

use super::call::{AppCall, check_id};
use super::errors::Failure;
use super::respond::{item, items};
use crate::world::nz::nzfcc::{CODES, Code};

#[derive(Serialize)]
struct Shown {
    _id: &'static str,
    name: &'static str,
    groups: Groups,
}

#[derive(Serialize)]
struct Groups {
    personal_finance: Group,
}

#[derive(Serialize)]
struct Group {
    _id: &'static str,
    name: &'static str,
}

fn shown(code: &Code) -> Shown {
    let group = Group { _id: code.group.id, name: code.group.name };
    Shown { _id: code.id, name: code.name, groups: Groups { personal_finance: group } }
}

/// All spending codes; there are no pages.
pub(super) async fn list(_: AppCall) -> Response {
    items(CODES.iter().map(shown).collect::<Vec<_>>())
}

/// One of them.
pub(super) async fn show(Path(id): Path<String>, _: AppCall) -> Result<Response, Failure> {
    check_id("nzfcc_", &id)?;
    let code = CODES.iter().find(|code| code.id == id);
    Ok(item(shown(code.ok_or_else(Failure::not_found)?)))
}
