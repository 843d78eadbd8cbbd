//! `/operator/users`: the users that match, and the plans.

use std::collections::HashMap;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use bellbird_domain::{ConnectionStatus, Plan, User, UserId};
use bellbird_management::{Refusal, users, values};
use bellbird_storage::{NewUser, StorageError, UserFilter};
use http::{StatusCode, Uri};
use serde::Deserialize;

use super::{Operator, OperatorForm, PAGE_ROWS, count, cut, gives, status_text};
use crate::error_page;
use crate::pages::names::sanitized;
use crate::pages::{Done, LocalTime, SignedInFrame, page_response};
use crate::session::Session;
use crate::state::Console;

/// Of an e-mail address. A reference is shorter.
const SEARCH_CHARS_MAX: usize = 254;

#[derive(Template)]
#[template(path = "operator_users.html")]
struct UsersPage<'a> {
    frame: &'a SignedInFrame<'a>,
    query: &'a UsersQuery,
    search_chars_max: usize,
    /// Such as `consent withdrawn at Fiskil`, with the query without it.
    connection: Option<(String, String)>,
    rows: Vec<UserRow>,
    /// The query of the next page, if there are more.
    next: Option<String>,
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
    /// Such as `2 banks`.
    state: String,
    /// What the user or the operator has to do.
    needs: Vec<String>,
    created: String,
    is_operator: bool,
}

struct PlanRow {
    name: &'static str,
    gives: &'static str,
    users: u64,
}

/// Which users the page has. What cannot be parsed chooses nothing.
#[derive(Deserialize, Clone, Default)]
#[serde(default)]
pub(super) struct UsersQuery {
    search: String,
    plan: String,
    /// `attention` or `operators`.
    only: String,
    /// The status of a connection, and the name of its provider or nothing.
    status: String,
    provider: String,
    after: String,
}

impl UsersQuery {
    /// Those with a connection at this provider that has this status.
    pub(super) fn of_connections(status: ConnectionStatus, provider: &str) -> Self {
        Self {
            status: status.to_string(),
            provider: provider.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        for (name, value) in [
            ("search", &self.search),
            ("plan", &self.plan),
            ("only", &self.only),
            ("status", &self.status),
            ("provider", &self.provider),
            ("after", &self.after),
        ] {
            if !value.is_empty() {
                text.append_pair(name, value);
            }
        }
        text.finish()
    }

    /// The filters that the form to search keeps.
    fn kept_by_search(&self) -> Vec<(&'static str, &str)> {
        let filters = [
            ("plan", &*self.plan),
            ("only", &*self.only),
            ("status", &*self.status),
            ("provider", &*self.provider),
        ];
        filters
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect()
    }

    /// The query of the first page with another plan. Empty: with any.
    fn with_plan(&self, plan: &str) -> String {
        Self {
            plan: plan.to_owned(),
            after: String::new(),
            ..self.clone()
        }
        .to_text()
    }

    /// The query of the first page with `only`, or without it if it is chosen.
    fn with_only(&self, only: &str) -> String {
        let only = if self.only == only { "" } else { only };
        Self {
            only: only.to_owned(),
            after: String::new(),
            ..self.clone()
        }
        .to_text()
    }

    fn filter(&self) -> UserFilter<'_> {
        let provider = Some(&*self.provider)
            .filter(|name| !name.is_empty() && !name.contains(char::is_control));
        UserFilter {
            part: self.search.trim(),
            plan: self.plan.parse().ok(),
            operators_only: self.only == "operators",
            needs_attention: self.only == "attention",
            connection: self.status.parse().ok().map(|status| (status, provider)),
        }
    }

    fn has_filter(&self) -> bool {
        !Self {
            after: String::new(),
            ..self.clone()
        }
        .to_text()
        .is_empty()
    }
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
    let (rows, next, plans) = match load(console, &query, &session.zone()).await {
        Ok(found) => found,
        Err(error) => return error_page::storage_error(console, &error),
    };
    let quotas = console.inner.context.quotas();
    let calls = [&quotas.metadata, &quotas.balances, &quotas.live].map(|quota| {
        quota
            .calls()
            .map_or_else(|| "no limit".to_owned(), |calls| calls.to_string())
    });
    let status = match &problem {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    page_response(
        status,
        &UsersPage {
            frame: &session.frame(console, "/operator/users"),
            query: &query,
            search_chars_max: SEARCH_CHARS_MAX,
            connection: connection(console, &query),
            rows,
            next: next.map(|id| {
                UsersQuery {
                    after: id.to_string(),
                    ..query.clone()
                }
                .to_text()
            }),
            plans,
            problem,
            calls,
        },
    )
}

fn connection(console: &Console, query: &UsersQuery) -> Option<(String, String)> {
    let (status, provider) = query.filter().connection?;
    let links = console.inner.connections.links();
    let at = provider.map(|name| format!(" at {}", sanitized(links.provider_title(name))));
    let text = format!("{}{}", status_text(status), at.unwrap_or_default());
    let without = UsersQuery {
        status: String::new(),
        provider: String::new(),
        after: String::new(),
        ..query.clone()
    };
    Some((text, without.to_text()))
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
        Ok(id) => Done::UserAdded.redirect(&console, &format!("/operator/users/{id}"), "access"),
        Err(Refusal::InUse(_)) => rejected("There is a user with this address.".to_owned()).await,
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

async fn load(
    console: &Console,
    query: &UsersQuery,
    zone: &LocalTime,
) -> Result<(Vec<UserRow>, Option<UserId>, Vec<PlanRow>), StorageError> {
    let storage = console.storage();
    let mut users = find(console, query).await?;
    let next = if cut(&mut users) {
        users.last().map(|user| user.id)
    } else {
        None
    };
    let (connections, disabled) = match (users.first(), users.last()) {
        (Some(first), Some(last)) => (
            storage
                .connections()
                .count_by_user(first.id, last.id)
                .await?,
            storage
                .endpoints()
                .count_disabled_by_user(first.id, last.id)
                .await?,
        ),
        _ => (HashMap::new(), HashMap::new()),
    };
    let rows = users.into_iter().map(|user| {
        let connections = connections.get(&user.id).copied().unwrap_or_default();
        let disabled = disabled.get(&user.id).copied().unwrap_or_default();
        row(user, connections, disabled, zone)
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

/// Those that match, or the one with this id.
async fn find(console: &Console, query: &UsersQuery) -> Result<Vec<User>, StorageError> {
    let users = console.storage().users();
    let filter = query.filter();
    if filter.part.chars().count() > SEARCH_CHARS_MAX || filter.part.contains(char::is_control) {
        return Ok(Vec::new());
    }
    if let Ok(id) = filter.part.parse() {
        return Ok(users.find(id).await?.into_iter().collect());
    }
    let after = query.after.parse().ok();
    users.list_matching(&filter, after, PAGE_ROWS + 1).await
}

fn row(user: User, (all, broken): (u64, u64), disabled: u64, zone: &LocalTime) -> UserRow {
    let mut needs = Vec::new();
    if broken > 0 {
        needs.push(format!("{} to reconnect", count(broken, "bank")));
    }
    if disabled > 0 {
        needs.push(format!("{} disabled", count(disabled, "webhook endpoint")));
    }
    if !user.console_sign_in {
        needs.push("may not sign in".to_owned());
    }
    UserRow {
        id: user.id,
        email: user.email,
        reference: user.reference.as_deref().map(sanitized),
        plan: user.plan.as_str(),
        state: match all {
            0 => "no bank linked".to_owned(),
            all => count(all, "bank"),
        },
        needs,
        created: zone.day(user.created_at),
        is_operator: user.is_operator,
    }
}
