//! What operators did.

use axum::extract::State;
use axum::response::Response;
use bellbird_api::front::json::{json_bytes, to_json};
use bellbird_api::front::parameters::Id;
use bellbird_api::front::{Operation, Path, Problem, RouteMethod, StrictQuery};
use bellbird_domain::{OperatorKeyId, UserId};
use bellbird_storage::OperatorAuditRow;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::list::{Cursor, PageLimit, cut, page_size};
use crate::state::Admin;

pub(crate) fn paths() -> Vec<Path<Admin>> {
    let list = Operation::new("list_audit", "Audit", "A page of the audit.").text(
        "List what operators did",
        "Newest first, for two years: each change by this API and on the console's pages for operators, with who made \
         it. The audit outlives users.",
    );
    vec![
        Path::for_operators(RouteMethod::Get, "/admin/v1/audit", list_audit)
            .described(list.query::<AuditQuery>().json::<AuditList>()),
    ]
}

#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
struct AuditQuery {
    /// Rows of one page, at most 200.
    #[param(inline, example = 50)]
    limit: Option<PageLimit>,
    /// The `nextCursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<Uuid>>,
    /// Only what was done to this user.
    #[param(value_type = Option<String>, format = "uuid")]
    user_id: Option<Id<UserId>>,
}

/// One change by an operator.
#[derive(ToSchema)]
#[schema(as = AuditRow, rename_all = "camelCase")]
#[expect(dead_code, reason = "documents what `bellbird_storage::OperatorAuditRow` is serialized to")]
struct AuditView {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    id: Uuid,
    #[schema(value_type = String, format = "date-time", example = "2026-08-01T02:10:00.25Z")]
    at: Timestamp,
    /// The key, as `bellbird operator-key list` shows it. Null: the change was made in the console.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    #[schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    operator_key_id: Option<OperatorKeyId>,
    /// The operator who made the change in the console. Null: it was made by this API.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    #[schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    operator_user_id: Option<UserId>,
    /// The subject and the verb, such as `key.create`. The list may grow.
    #[schema(example = "key.create")]
    action: String,
    /// Null: the action is about an endpoint for all users.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    #[schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    user_id: Option<UserId>,
    /// The id of what it was about, such as a key; of `key.rotate` the old one. Null: the action is about the user.
    #[schema(required = true, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    subject: Option<String>,
}

/// A page of the audit.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AuditList {
    #[schema(value_type = Vec<AuditView>)]
    data: Vec<OperatorAuditRow>,
    /// The `cursor` of the next page. Null: this is the last one.
    #[schema(required = true)]
    next_cursor: Option<String>,
}

async fn list_audit(
    State(admin): State<Admin>,
    StrictQuery(query): StrictQuery<AuditQuery>,
) -> Result<Response, Problem> {
    let (size, before) = (page_size(query.limit), query.cursor.map(|cursor| cursor.0));
    let mut data = match query.user_id {
        // What is not an id is nobody's.
        Some(Id(None)) => Vec::new(),
        Some(Id(user)) => admin.storage().operator_audit().list_before(before, user, size + 1).await?,
        None => admin.storage().operator_audit().list_before(before, None, size + 1).await?,
    };
    let next_cursor = cut(&mut data, size, |row| row.id.to_string());
    Ok(json_bytes(to_json(&AuditList { data, next_cursor })?))
}
