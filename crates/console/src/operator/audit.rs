//! `/operator/audit`: what operators changed, by API and on these pages.

use std::collections::{HashMap, HashSet};

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use bellbird_domain::UserId;
use bellbird_storage::{OperatorAuditRow, StorageError};
use http::{StatusCode, Uri};
use serde::Deserialize;
use uuid::Uuid;

use super::{Operator, PAGE_ROWS, cut};
use crate::error_page;
use crate::pages::names::sanitized;
use crate::pages::{LocalTime, SignedInFrame, page_response};
use crate::state::Console;

#[derive(Template)]
#[template(path = "operator_audit.html")]
struct AuditPage<'a> {
    frame: &'a SignedInFrame<'a>,
    rows: Vec<AuditRow>,
    /// The last row of this page, if there are older ones.
    next: Option<Uuid>,
}

struct AuditRow {
    at: String,
    action: String,
    /// None: it was about an endpoint for all users.
    user: Option<Whom>,
    subject: Option<String>,
    by: String,
}

struct Whom {
    id: UserId,
    /// None: the user is removed.
    email: Option<String>,
}

#[derive(Deserialize, Default)]
struct AuditQuery {
    before: Option<String>,
}

/// `GET /operator/audit`
pub(super) async fn show(State(console): State<Console>, operator: Operator, uri: Uri) -> Response {
    let Operator(session) = operator;
    let query = Query::<AuditQuery>::try_from_uri(&uri).map(|Query(query)| query).unwrap_or_default();
    let before = query.before.and_then(|before| before.parse().ok());
    match load(&console, before, &session.zone()).await {
        Ok((rows, next)) => {
            let frame = session.frame(&console, "/operator/audit");
            page_response(StatusCode::OK, &AuditPage { frame: &frame, rows, next })
        }
        Err(error) => error_page::storage_error(&console, &error),
    }
}

async fn load(
    console: &Console,
    before: Option<Uuid>,
    zone: &LocalTime,
) -> Result<(Vec<AuditRow>, Option<Uuid>), StorageError> {
    let storage = console.storage();
    let mut found = storage.operator_audit().list_before(before, None, PAGE_ROWS + 1).await?;
    let next = if cut(&mut found) { found.last().map(|row| row.id) } else { None };
    let mut emails = HashMap::new();
    let users: HashSet<_> = found.iter().flat_map(|row| [row.user_id, row.operator_user_id]).flatten().collect();
    for id in users {
        if let Some(user) = storage.users().find(id).await? {
            emails.insert(id, user.email);
        }
    }
    let keys = storage.operator_keys().list().await?;
    let keys: HashMap<_, _> = keys.iter().map(|key| (key.id, sanitized(&key.name))).collect();
    let by = |row: &OperatorAuditRow| match (row.operator_user_id, row.operator_key_id) {
        (Some(user), _) => emails.get(&user).cloned().unwrap_or_else(|| format!("the removed user {user}")),
        (None, Some(key)) => format!("the key {}", keys.get(&key).cloned().unwrap_or_else(|| key.to_string())),
        (None, None) => "unknown".to_owned(),
    };
    let rows = found.iter().map(|row| AuditRow {
        at: zone.at(row.at),
        action: row.action.clone(),
        user: row.user_id.map(|id| Whom { id, email: emails.get(&id).cloned() }),
        subject: row.subject.clone(),
        by: by(row),
    });
    Ok((rows.collect(), next))
}
