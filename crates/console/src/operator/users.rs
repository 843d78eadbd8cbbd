//! `/operator/users`: all users, and the plans.

use std::collections::HashMap;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_domain::{Plan, User, UserId};
use bellbird_management::{Refusal, users, values};
use bellbird_storage::{NewUser, StorageError, Users};
use http::{StatusCode, Uri};
use serde::Deserialize;

use super::{Operator, OperatorForm, PAGE_ROWS, cut, gives};
use crate::error_page;
use crate::pages::names::sanitized;
use crate::pages::{LocalTime, SignedInFrame, page_response};
use crate::session::Session;
use crate::state::Console;

/// Of an e-mail address. A reference is shorter.
const SEARCH_CHARS_MAX: usize = 254;

#[derive(Template)]
#[template(path = "operator_users.html")]
struct UsersPage<'a> {
    frame: &'a SignedInFrame<'a>,
    search: &'a str,
    search_chars_max: usize,
    rows: Vec<UserRow>,
    /// The last user of this page, if there are more.
    next: Option<UserId>,
    plans: Vec<PlanRow>,
    /// What somebody who is not added has in the form, and why.
    problem: Option<Problem<'a>>,
    /// What a key may call in a minute: paths from the database, balances, and rows.
    calls: [String; 3],
}

struct Problem<'a> {
    email: &'a str,
    text: String,
}

struct UserRow {
    id: UserId,
    email: String,
    reference: Option<String>,
    plan: &'static str,
    connections: u64,
    created: String,
    is_operator: bool,
}

struct PlanRow {
    name: &'static str,
    gives: &'static str,
    users: u64,
}

#[derive(Deserialize, Default)]
struct UsersQuery {
    #[serde(default)]
    search: String,
    after: Option<String>,
}

/// `GET /operator/users`
pub(super) async fn show(State(console): State<Console>, operator: Operator, uri: Uri) -> Response {
    let Operator(session) = operator;
    page(&console, &session, &uri, None).await
}

async fn page(
    console: &Console,
    session: &Session,
    uri: &Uri,
    problem: Option<Problem<'_>>,
) -> Response {
    let query = Query::<UsersQuery>::try_from_uri(uri)
        .map(|Query(query)| query)
        .unwrap_or_default();
    let search = query.search.trim();
    let after = query.after.and_then(|after| after.parse().ok());
    let (rows, next, plans) = match load(console, search, after, &session.zone()).await {
        Ok(found) => found,
        Err(error) => return error_page::storage_error(console, &error),
    };
    let frame = session.frame(console, "/operator/users");
    let quotas = console.inner.context.quotas();
    let calls = [&quotas.metadata, &quotas.balances, &quotas.live].map(|quota| {
        quota
            .calls()
            .map_or_else(|| "no limit".to_owned(), |calls| calls.to_string())
    });
    let search_chars_max = SEARCH_CHARS_MAX;
    let status = match &problem {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    page_response(
        status,
        &UsersPage {
            frame: &frame,
            search,
            search_chars_max,
            rows,
            next,
            plans,
            problem,
            calls,
        },
    )
}

/// `POST /operator/users`, with the fields `email` and `plan`: adds a user, for whom the operator
/// vouches, so that the user may sign in.
pub(super) async fn add(
    State(console): State<Console>,
    uri: Uri,
    OperatorForm(form): OperatorForm,
) -> Response {
    let given = form.field("email").unwrap_or_default();
    let rejected = async |text: String| {
        let problem = Problem { email: given, text };
        page(&console, &form.session, &uri, Some(problem)).await
    };
    let Some(plan) = form.parsed::<Plan>("plan") else {
        return error_page::invalid_form(&console);
    };
    let email = match values::email(given) {
        Ok(email) => email,
        Err(expected) => return rejected(format!("Write {expected}.")).await,
    };
    let added = async {
        let mut change = form.session.begin_as_operator(&console).await?;
        let new = NewUser {
            email: &email,
            plan,
            timezone: None,
            reference: None,
            console_sign_in: true,
        };
        let user = users::create(&mut change, &new).await?;
        change.commit().await?;
        Ok(user.id)
    };
    match added.await {
        Ok(id) => Redirect::to(&console.path(&format!("/operator/users/{id}"))).into_response(),
        Err(Refusal::InUse(_)) => rejected("There is a user with this address.".to_owned()).await,
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

async fn load(
    console: &Console,
    search: &str,
    after: Option<UserId>,
    zone: &LocalTime,
) -> Result<(Vec<UserRow>, Option<UserId>, Vec<PlanRow>), StorageError> {
    let storage = console.storage();
    let mut users = match search {
        "" => storage.users().list_after(after, PAGE_ROWS + 1).await?,
        search => find(storage.users(), search).await?.into_iter().collect(),
    };
    let next = if cut(&mut users) {
        users.last().map(|user| user.id)
    } else {
        None
    };
    let connections = match (users.first(), users.last()) {
        (Some(first), Some(last)) => {
            storage
                .connections()
                .count_by_user(first.id, last.id)
                .await?
        }
        _ => HashMap::new(),
    };
    let rows = users.into_iter().map(|user| {
        let connections = connections.get(&user.id).copied().unwrap_or_default();
        row(user, connections, zone)
    });
    let counts = storage.users().count_by_plan().await?;
    let users_of = |plan| {
        counts
            .iter()
            .find(|(of, _)| *of == plan)
            .map_or(0, |(_, users)| *users)
    };
    let plans = Plan::ALL.iter().map(|plan| PlanRow {
        name: plan.as_str(),
        gives: gives(*plan),
        users: users_of(*plan),
    });
    Ok((rows.collect(), next, plans.collect()))
}

/// By e-mail address, reference or id.
async fn find(users: Users<'_>, search: &str) -> Result<Option<User>, StorageError> {
    if search.chars().count() > SEARCH_CHARS_MAX || search.chars().any(char::is_control) {
        return Ok(None);
    }
    if let Some(user) = users.find_by_email(search).await? {
        return Ok(Some(user));
    }
    match (users.find_by_reference(search).await?, search.parse()) {
        (None, Ok(id)) => users.find(id).await,
        (found, _) => Ok(found),
    }
}

fn row(user: User, connections: u64, zone: &LocalTime) -> UserRow {
    UserRow {
        id: user.id,
        email: user.email,
        reference: user.reference.as_deref().map(sanitized),
        plan: user.plan.as_str(),
        connections,
        created: zone.day(user.created_at),
        is_operator: user.is_operator,
    }
}
