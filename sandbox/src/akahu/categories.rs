//! `GET /categories[/{id}]`: the spending categories of NZFCC
//! (docs/providers/akahu.md#category-list).

use axum::extract::Path;
use axum::response::Response;
use serde::Serialize;

use super::call::{AppCall, check_id};
use super::errors::Failure;
use super::respond::{item, items};
use crate::world::nzfcc::{CODES, Code};

#[derive(Serialize)]
struct CategoryView {
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

fn view(code: &Code) -> CategoryView {
    let group = Group {
        _id: code.group.0,
        name: code.group.1,
    };
    CategoryView {
        _id: code.id,
        name: code.name,
        groups: Groups {
            personal_finance: group,
        },
    }
}

/// Lists all spending codes, without pages.
pub(super) async fn list(_: AppCall) -> Response {
    items(CODES.iter().map(view).collect::<Vec<_>>())
}

pub(super) async fn show(Path(id): Path<String>, _: AppCall) -> Result<Response, Failure> {
    check_id("nzfcc_", &id)?;
    let code = CODES.iter().find(|code| code.id == id);
    Ok(item(view(code.ok_or_else(Failure::not_found)?)))
}
