//! `GET /categories[/{id}]`: the spending categories of NZFCC
//! (docs/providers/akahu.md#category-list).

use axum::extract::Path;
use axum::response::Response;
use serde_json::{Value, json};

use super::call::{AppCall, check_id};
use super::errors::Failure;
use super::respond::{item, items};
use crate::world::nzfcc::{CODES, Code};

fn view(code: &Code) -> Value {
    let (id, name) = code.group;
    json!({
        "_id": code.id, "name": code.name,
        "groups": {"personal_finance": {"_id": id, "name": name}},
    })
}

/// Lists all spending codes, without pages.
pub(super) async fn list(_: AppCall) -> Response {
    items(CODES.iter().map(view))
}

pub(super) async fn show(Path(id): Path<String>, _: AppCall) -> Result<Response, Failure> {
    check_id("nzfcc_", &id)?;
    let code = CODES.iter().find(|code| code.id == id);
    Ok(item(view(code.ok_or_else(Failure::not_found)?)))
}
