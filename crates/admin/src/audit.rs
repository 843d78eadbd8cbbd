//! What operators did, and to one user also what the user did in the console.

use axum::extract::State;
use axum::response::Response;
use bellbird_api::http::json::{json_bytes, to_json};
use bellbird_api::http::{Problem, Query};
use bellbird_domain::{ActorKind, UserId};
use bellbird_storage::AuditRow;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::inputs::UserIdText;
use crate::list::{Cursor, PageLimit, cut, page_size};
use crate::state::Admin;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub(crate) struct AuditQuery {
    /// Rows of one page, at most 200.
    #[param(inline, example = 50)]
    limit: Option<PageLimit>,
    /// The `nextCursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<Uuid>>,
    /// Only what was done to this user, also by the user.
    #[param(value_type = Option<String>, format = "uuid")]
    user_id: Option<UserIdText>,
}

/// One change.
#[derive(utoipa::ToSchema)]
#[schema(as = AuditRow, rename_all = "camelCase")]
#[expect(
    dead_code,
    reason = "documents what `bellbird_storage::AuditRow` is serialized to"
)]
struct AuditView {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    id: Uuid,
    #[schema(value_type = String, format = "date-time", example = "2026-08-01T02:10:00.25Z")]
    at: Timestamp,
    actor: ActorView,
    /// The subject and the verb, such as `key.create`. The list may grow.
    #[schema(example = "key.create")]
    action: String,
    /// Null: the action is about the installation, such as an endpoint for all users.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    #[schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    user_id: Option<UserId>,
    /// The id of what it was about, such as a key; of `key.rotate` the old one. Null: the action is
    /// about the user.
    #[schema(required = true, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    subject: Option<String>,
    /// What the user calls it: the browser, the name of the key or the URL of the endpoint. Null:
    /// an operator did it.
    #[schema(required = true, example = "Firefox on Linux")]
    detail: Option<String>,
}

/// Who made a change.
#[derive(utoipa::ToSchema)]
#[schema(as = Actor)]
#[expect(
    dead_code,
    reason = "documents what `bellbird_domain::Actor` is serialized to"
)]
struct ActorView {
    /// `operator_key`, `operator` (on the console's pages for operators), `command` or `user` (in
    /// the console).
    #[schema(value_type = String, example = "operator_key")]
    kind: ActorKind,
    /// The id of the operator's key, of the operator, or of the user's session; of a command its
    /// Unix user.
    #[schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    id: String,
}

/// A page of the audit.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct AuditList {
    #[schema(value_type = Vec<AuditView>)]
    data: Vec<AuditRow>,
    /// The `cursor` of the next page. Null: this is the last one.
    #[schema(required = true)]
    next_cursor: Option<String>,
}

/// List what operators did
///
/// Newest first, for two years: each change by this API, by command and on the console's pages for
/// operators, with who made it. This outlives users. With `userId`, the list also has what the user
/// did in the console until the user is removed: sign-ins, keys, setup tokens, links and webhook
/// endpoints.
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
    let mut data = admin
        .storage()
        .audit()
        .list_before(before, user, size + 1)
        .await?;
    let next_cursor = cut(&mut data, size, |row| row.id);
    Ok(json_bytes(to_json(&AuditList { data, next_cursor })?))
}
