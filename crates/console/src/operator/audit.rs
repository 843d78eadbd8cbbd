//! `/operator/audit`: what operators changed, by API and on these pages. With `user`, all that
//! happened to one user.

use std::collections::{HashMap, HashSet};

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use bellbird_domain::{ActorKind, UserId};
use bellbird_storage::{AuditRow, StorageError};
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
    rows: Vec<ShownRow>,
    /// The last row of this page, if there are older ones.
    next: Option<Uuid>,
    /// The only user whose rows are shown.
    user: Option<UserId>,
}

struct ShownRow {
    at: String,
    action: String,
    /// None: it was about an endpoint for all users.
    user: Option<Whom>,
    subject: Option<String>,
    detail: Option<String>,
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
    user: Option<String>,
}

/// `GET /operator/audit`
pub(super) async fn show(State(console): State<Console>, operator: Operator, uri: Uri) -> Response {
    let Operator(session) = operator;
    let query = Query::<AuditQuery>::try_from_uri(&uri)
        .map(|Query(query)| query)
        .unwrap_or_default();
    let before = query.before.and_then(|before| before.parse().ok());
    let user = query.user.and_then(|user| user.parse().ok());
    match load(&console, before, user, &session.zone()).await {
        Ok((rows, next)) => {
            let frame = session.frame(&console, "/operator/audit");
            page_response(
                StatusCode::OK,
                &AuditPage {
                    frame: &frame,
                    rows,
                    next,
                    user,
                },
            )
        }
        Err(error) => error_page::storage_error(&console, &error),
    }
}

/// The user who made a change on these pages.
fn operator_of(row: &AuditRow) -> Option<UserId> {
    row.actor
        .id
        .parse()
        .ok()
        .filter(|_| row.actor.kind == ActorKind::Operator)
}

async fn load(
    console: &Console,
    before: Option<Uuid>,
    user: Option<UserId>,
    zone: &LocalTime,
) -> Result<(Vec<ShownRow>, Option<Uuid>), StorageError> {
    let storage = console.storage();
    let mut found = storage
        .audit()
        .list_before(before, user, PAGE_ROWS + 1)
        .await?;
    let next = if cut(&mut found) {
        found.last().map(|row| row.id)
    } else {
        None
    };
    let mut emails = HashMap::new();
    let users: HashSet<_> = found
        .iter()
        .flat_map(|row| [row.user_id, operator_of(row)])
        .flatten()
        .collect();
    for id in users {
        if let Some(user) = storage.users().find(id).await? {
            emails.insert(id, user.email);
        }
    }
    let keys = storage.operator_keys().list().await?;
    let keys: HashMap<_, _> = keys
        .iter()
        .map(|key| (key.id.to_string(), sanitized(&key.name)))
        .collect();
    let by = |row: &AuditRow| {
        let id = &row.actor.id;
        match row.actor.kind {
            ActorKind::Operator => {
                let email = operator_of(row).and_then(|user| emails.get(&user).cloned());
                email.unwrap_or_else(|| format!("the removed user {id}"))
            }
            ActorKind::OperatorKey => format!("the key {}", keys.get(id).unwrap_or(id)),
            ActorKind::Command => format!("{} on the server", sanitized(id)),
            ActorKind::User => format!("the user, in the session {id}"),
        }
    };
    let rows = found.iter().map(|row| ShownRow {
        at: zone.at(row.at),
        action: row.action.clone(),
        user: row.user_id.map(|id| Whom {
            id,
            email: emails.get(&id).cloned(),
        }),
        subject: row.subject.clone(),
        detail: row
            .detail
            .as_deref()
            .filter(|text| !text.is_empty())
            .map(sanitized),
        by: by(row),
    });
    Ok((rows.collect(), next))
}
