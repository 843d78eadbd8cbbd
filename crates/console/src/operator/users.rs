//! `/operator/users`: the users that match, and the plans.

use std::collections::HashMap;

use askama::Template;
use bellbird_domain::{Plan, User};
use bellbird_management::{Refusal, users, values};
use bellbird_providers::registry::provider_title;
use bellbird_storage::{NewUser, StorageError, UserFilter, UserNeed};
use http::{StatusCode, Uri};

use super::{Operator, OperatorForm, PAGE_ROWS, status_text};
use crate::error_page::{Failure, PageResult};
use crate::list_query::{Chip, ListQuery, Pages, rows_of_list};
use crate::pages::names::sanitized;
use crate::pages::{Done, LocalTime, SignedInFrame, count, page_response};
use crate::session::Session;
use crate::state::Console;

/// Of an e-mail address. A reference is shorter.
const SEARCH_CHARS_MAX: usize = 254;
/// Users that match are counted no further.
const COUNTED_MAX: u32 = 10_000;
/// What a query chooses. `status` is that of a connection, and `provider` where it is.
pub(super) const FILTERS: [&str; 5] = ["search", "plan", "only", "status", "provider"];
const ONLY: [(&str, &str); 3] = [
    ("attention", "Needs attention"),
    ("bank", "Bank to reconnect"),
    ("operators", "Operators"),
];

#[derive(Template)]
#[template(path = "operator_users.html")]
struct UsersPage<'a> {
    frame: &'a SignedInFrame<'a>,
    zone: LocalTime,
    query: &'a ListQuery,
    chips: Vec<Chip>,
    /// Such as `11 users`, or of a longer list `51 to 100 of 523`.
    counted: String,
    rows: Vec<UserRow>,
    pages: Pages,
    /// How many users have each plan.
    plans: Vec<(Plan, u64)>,
    /// What somebody who is not added has in the form, and why.
    problem: Option<Problem<'a>>,
    /// What a key may call in a minute: paths from the database, balances, and rows.
    calls: [String; 3],
}

struct Problem<'a> {
    email: &'a str,
    plan: Plan,
    text: String,
}

struct UserRow {
    user: User,
    banks: u64,
    /// Those that the user has to reconnect.
    broken: u64,
    disabled_endpoints: u64,
}

impl UsersPage<'_> {
    fn users_of(&self, plan: Plan) -> u64 {
        let found = self.plans.iter().find(|(of, _)| *of == plan);
        found.map_or(0, |(_, users)| *users)
    }

    /// Whether the form that adds a user has this plan at first.
    fn is_chosen(&self, plan: Plan) -> bool {
        match &self.problem {
            Some(problem) => problem.plan == plan,
            None => Plan::ALL.last() == Some(&plan),
        }
    }
}

/// What cannot be parsed chooses nothing.
fn filter(query: &ListQuery) -> UserFilter<'_> {
    let provider = Some(query.get("provider"))
        .filter(|name| !name.is_empty() && !name.contains(char::is_control));
    let only = query.get("only");
    UserFilter {
        part: query.get("search"),
        plan: query.parsed("plan"),
        operators_only: only == "operators",
        needs: match only {
            "attention" => Some(UserNeed::Attention),
            "bank" => Some(UserNeed::Bank),
            _ => None,
        },
        connection: query.parsed("status").map(|status| (status, provider)),
    }
}

fn chips(query: &ListQuery) -> Vec<Chip> {
    let plans = Plan::ALL.iter().map(|plan| (plan, format!("Plan {plan}")));
    let mut chips = vec![query.menu("plan", "All plans", plans)];
    chips.extend(ONLY.map(|(only, text)| query.toggle("only", only, text)));
    if let Some((status, provider)) = filter(query).connection {
        let at = provider.map(|name| format!(" at {}", sanitized(provider_title(name))));
        let text = format!("{}{}", status_text(status), at.unwrap_or_default());
        let without = query.with(&[("status", ""), ("provider", "")]);
        chips.push(Chip::link(text, without, true));
    }
    chips
}

/// `GET /operator/users`
pub(super) async fn show(Operator(session): Operator, uri: Uri) -> PageResult {
    page(&session, &uri, None).await
}

async fn page(session: &Session, uri: &Uri, problem: Option<Problem<'_>>) -> PageResult {
    let query = ListQuery::parse(uri.query(), &FILTERS);
    let storage = session.storage();
    let (mut users, (all, before)) = find(session, &query).await?;
    let pages = query.cut(&mut users, PAGE_ROWS, |user| user.id);
    let counted = match users.len() as u64 {
        0 => String::new(),
        rows if rows == all => count(all, "user"),
        _ if all > u64::from(COUNTED_MAX) => "more than 10,000 users".to_owned(),
        rows => rows_of_list(before + 1, before + rows, all),
    };
    let (connections, disabled) = match (users.first(), users.last()) {
        (Some(first), Some(last)) => (
            storage
                .connections()
                .count_by_user(first.id, last.id)
                .await?,
            storage
                .endpoints()
                .count_stopped_by_user(first.id, last.id)
                .await?,
        ),
        _ => (HashMap::new(), HashMap::new()),
    };
    let rows = users.into_iter().map(|user| {
        let (banks, broken) = connections.get(&user.id).copied().unwrap_or_default();
        UserRow {
            banks,
            broken,
            disabled_endpoints: disabled.get(&user.id).copied().unwrap_or_default(),
            user,
        }
    });
    let quotas = session.context.quotas();
    let calls = [&quotas.metadata, &quotas.balances, &quotas.live].map(|quota| {
        let calls = quota.calls().map(|calls| calls.to_string());
        calls.unwrap_or_else(|| "no limit".to_owned())
    });
    let status = match problem {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    let page = UsersPage {
        frame: &session.frame("/operator/users"),
        zone: session.zone(),
        query: &query,
        chips: chips(&query),
        counted,
        rows: rows.collect(),
        pages,
        plans: storage.users().count_by_plan().await?,
        problem,
        calls,
    };
    Ok(page_response(status, &page))
}

/// `POST /operator/users`, with the fields `email` and `plan`: adds a user, for whom the operator
/// vouches, so that the user may sign in.
pub(super) async fn add(uri: Uri, OperatorForm(form): OperatorForm) -> PageResult {
    let given = form.field("email").unwrap_or_default();
    let plan: Plan = form.parsed("plan").ok_or(Failure::InvalidForm)?;
    let rejected = async |text: String| {
        let problem = Problem {
            email: given,
            plan,
            text,
        };
        page(&form.session, &uri, Some(problem)).await
    };
    let email = match values::email(given) {
        Ok(email) => email,
        Err(expected) => return rejected(format!("Write {expected}.")).await,
    };
    let new = NewUser {
        email: &email,
        plan,
        timezone: None,
        reference: None,
        console_sign_in: true,
    };
    let mut change = form.session.begin_as_operator().await?;
    let created = users::create(&mut change, &new).await;
    let id = match created {
        Err(Refusal::InUse(_)) => {
            drop(change);
            return rejected("There is a user with this address.".to_owned()).await;
        }
        created => created?.id,
    };
    change.commit().await?;
    let path = format!("/operator/users/{id}");
    Ok(Done::UserAdded.redirect(&form.session, &path, "access"))
}

/// Those that match, or the one with this id. Also how many there are, and how many are listed
/// before.
async fn find(
    console: &Console,
    query: &ListQuery,
) -> Result<(Vec<User>, (u64, u64)), StorageError> {
    let users = console.storage().users();
    let filter = filter(query);
    if filter.part.chars().count() > SEARCH_CHARS_MAX || filter.part.contains(char::is_control) {
        return Ok((Vec::new(), (0, 0)));
    }
    if let Ok(id) = filter.part.parse() {
        let found = users.find(id).await?;
        return Ok((found.into_iter().collect(), (1, 0)));
    }
    let after = query.start();
    let found = users.list_matching(&filter, after, PAGE_ROWS + 1).await?;
    let counts = if after.is_none() && found.len() <= PAGE_ROWS as usize {
        (found.len() as u64, 0)
    } else {
        let counted = users.count_matching(&filter, after, COUNTED_MAX + 1);
        counted.await?
    };
    Ok((found, counts))
}
