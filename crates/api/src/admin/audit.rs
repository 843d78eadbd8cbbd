//! What operators did, and to one user also what the user did in the console.

use axum::extract::State;
use axum::response::Response;
use bellbird_storage::AuditRow;
use serde::Deserialize;
use uuid::Uuid;

use crate::admin::inputs::UserIdText;
use crate::admin::list::{Cursor, Page, PageLimit, page_size};
use crate::admin::state::Admin;
use crate::http::json::respond;
use crate::http::{Problem, Query};

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Rows of one page, at most 200.
    #[param(inline, example = 50)]
    limit: Option<PageLimit>,
    /// The `nextCursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<Uuid>>,
    /// Only what was done to this user, also by the user.
    #[param(value_type = Option<Uuid>)]
    user_id: Option<UserIdText>,
}

type AuditList = Page<AuditRow>;

/// List what operators did
///
/// Newest first, for two years: each change by this API, by command and on the console's pages for
/// operators, with who made it. This outlives users. With `userId`, the list also has what the user
/// did in the console until the user is removed: sign-ins, keys, setup tokens, links, syncs and
/// webhook endpoints.
#[utoipa::path(
    get, path = "/admin/v1/audit", tag = "Audit",
    params(AuditQuery),
    responses((status = 200, description = "A page of the audit.", body = AuditList)),
)]
pub(super) async fn list_audit(
    State(admin): State<Admin>,
    Query(query): Query<AuditQuery>,
) -> Result<Response, Problem> {
    let (size, before) = (page_size(query.limit), query.cursor.map(|cursor| cursor.0));
    let user = query.user_id.map(|user| user.0);
    let audit = admin.storage().audit();
    let rows = audit.list_before(before, user, size + 1).await?;
    let page: AuditList = Page::of(rows, size, |row| row.id);
    respond(&page)
}
