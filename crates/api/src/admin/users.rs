//! Users: create, list, find, change, remove.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bellbird_connections::ConnectionsError;
use bellbird_domain::{Plan, User, UserId};
use bellbird_management::{Refusal, users, values};
use bellbird_storage::{NewUser, Storage, UserChange};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::admin::change::{ChangeRequest, IdempotencyKey, Rejection, commit};
use crate::admin::inputs::{EmailText, PlanName, ReferenceText, RemoveText, TimezoneText};
use crate::admin::list::{Cursor, Item, Page, PageLimit, page_size};
use crate::admin::state::Admin;
use crate::http::json::respond;
use crate::http::{JsonBody, Operator, PathId, Problem, Query};

const TAG: &str = "Users";
const TAKEN: &str = "Another user has the e-mail address or the reference (`conflict`), or the Idempotency-Key was \
    sent with another request.";
/// Seconds until a provider that could not be called is worth another attempt.
const PROVIDER_RETRY_AFTER: u64 = 30;

/// A user to create.
#[derive(Deserialize, utoipa::ToSchema)]
#[schema(as = NewUser)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewUserBody {
    /// E-mail address, unique without regard to case.
    #[schema(value_type = String, format = "email", example = "anna@example.com")]
    email: EmailText,
    /// Your own name of the user, unique. 1 to 200 characters.
    #[schema(value_type = Option<String>, nullable = false, example = "customer-17")]
    reference: Option<ReferenceText>,
    /// `saver` has no API access, `developer` banks only, `professional` banks and brokers (the
    /// default).
    #[schema(inline, value_type = Option<Plan>, nullable = false, example = "professional")]
    plan: Option<PlanName>,
    /// IANA timezone in which the user's days begin and end. The default is Australia/Sydney.
    #[schema(value_type = Option<String>, nullable = false, example = "Australia/Perth")]
    timezone: Option<TimezoneText>,
    /// Whether the user may sign in to the console, and gets e-mails. Send true only if you have
    /// verified that the address is the user's, because whoever has the mailbox reads all accounts
    /// of the user. The default is false.
    #[schema(nullable = false, example = false)]
    console_sign_in: Option<bool>,
}

/// What to change of a user.
#[derive(Deserialize, utoipa::ToSchema)]
#[schema(as = UserChange)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UserChangeBody {
    /// E-mail address, unique without regard to case.
    #[schema(value_type = Option<String>, nullable = false, format = "email", example = "anna@example.com")]
    email: Option<EmailText>,
    /// Your own name of the user. Null clears it.
    #[schema(value_type = Option<String>, example = "customer-17")]
    reference: Option<Option<ReferenceText>>,
    /// What the user may read. It takes effect with the next request.
    #[schema(inline, value_type = Option<Plan>, nullable = false, example = "developer")]
    plan: Option<PlanName>,
    /// IANA timezone. Null sets the default.
    #[schema(value_type = Option<String>, example = "Australia/Perth")]
    timezone: Option<Option<TimezoneText>>,
    /// Whether the user may sign in to the console, and gets e-mails: see the creation of a user. A
    /// new `email` without this makes it false, because nobody has verified the new address.
    #[schema(nullable = false, example = true)]
    console_sign_in: Option<bool>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsersQuery {
    /// Users of one page, at most 200.
    #[param(inline, example = 50)]
    limit: Option<PageLimit>,
    /// The `nextCursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<UserId>>,
    /// Only the user with this e-mail address.
    email: Option<String>,
    /// Only the user with this reference.
    reference: Option<String>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemovalQuery {
    /// `remove`: the user's connections are removed too.
    #[param(value_type = Option<String>)]
    connections: Option<RemoveText>,
}

/// A user.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = User)]
struct UserView {
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    id: UserId,
    #[schema(format = "email", example = "anna@example.com")]
    email: String,
    /// Your own name of the user.
    #[schema(required = true, example = "customer-17")]
    reference: Option<String>,
    /// What the user may read.
    #[schema(inline, example = "professional")]
    plan: Plan,
    /// IANA timezone. Null: the default, Australia/Sydney.
    #[schema(required = true, example = "Australia/Perth")]
    timezone: Option<String>,
    /// Whether the user may sign in to the console, and gets e-mails.
    #[schema(example = false)]
    console_sign_in: bool,
    #[schema(example = "2026-08-01T02:10:00.25Z")]
    created_at: Timestamp,
}

impl From<User> for UserView {
    fn from(user: User) -> Self {
        let User {
            id,
            email,
            plan,
            timezone,
            reference,
            created_at,
            console_sign_in,
            is_operator: _,
        } = user;
        Self {
            id,
            email,
            reference,
            plan,
            timezone,
            console_sign_in,
            created_at,
        }
    }
}

type UserItem = Item<UserView>;
type UserList = Page<UserView>;

/// List users
///
/// Oldest first. With `email` or `reference`, the one user who has it, or none.
#[utoipa::path(
    get, path = "/admin/v1/users", tag = TAG,
    params(UsersQuery),
    responses((status = 200, description = "A page of users.", body = UserList)),
)]
pub(super) async fn list_users(
    State(admin): State<Admin>,
    Query(query): Query<UsersQuery>,
) -> Result<Response, Problem> {
    let users = admin.storage().users();
    let size = page_size(query.limit);
    let found = match (&query.email, &query.reference) {
        (None, None) => {
            users
                .list_after(query.cursor.map(|cursor| cursor.0), size + 1)
                .await?
        }
        (Some(email), reference) => {
            // What is not an e-mail address is nobody's.
            let user = match values::email(email) {
                Ok(email) => users.find_by_email(&email).await?,
                Err(_) => None,
            };
            let is_meant = |user: &User| reference.is_none() || user.reference == *reference;
            user.filter(is_meant).into_iter().collect()
        }
        (None, Some(reference)) => match values::reference(reference) {
            Ok(reference) => users
                .find_by_reference(&reference)
                .await?
                .into_iter()
                .collect(),
            Err(_) => Vec::new(),
        },
    };
    let page: UserList = Page::of(found, size, |user| user.id);
    respond(&page)
}

/// Create a user
///
/// A user without keys.
#[utoipa::path(
    post, path = "/admin/v1/users", tag = TAG,
    params(IdempotencyKey),
    request_body = NewUserBody,
    responses(
        (status = 201, description = "The user.", body = UserItem),
        (status = 409, description = TAKEN),
    ),
)]
pub(super) async fn create_user(
    request: ChangeRequest<NewUserBody>,
) -> Result<Response, Rejection> {
    let NewUserBody {
        email,
        reference,
        plan,
        timezone,
        console_sign_in,
    } = &request.body;
    let new = NewUser {
        email: &email.0,
        plan: plan.as_ref().map_or(Plan::Professional, |plan| plan.0),
        timezone: timezone.as_ref().map(|timezone| timezone.0.as_str()),
        reference: reference.as_ref().map(|reference| reference.0.as_str()),
        console_sign_in: console_sign_in.unwrap_or(false),
    };
    let mut change = request.begin().await?;
    let user = users::create(&mut change, &new).await?;
    let data = UserView::from(user);
    commit(change, StatusCode::CREATED, data).await
}

/// Get a user
#[utoipa::path(
    get, path = "/admin/v1/users/{id}", tag = TAG,
    params(PathId<UserId>),
    responses((status = 200, description = "The user.", body = UserItem)),
)]
pub(super) async fn get_user(
    State(admin): State<Admin>,
    PathId(id): PathId<UserId>,
) -> Result<Response, Problem> {
    let user = find(admin.storage(), id).await?;
    respond(&Item {
        data: UserView::from(user),
    })
}

/// Change a user
///
/// Members that are absent stay. `reference: null` and `timezone: null` clear these. A provider at
/// which the user is registered keeps the old e-mail address.
#[utoipa::path(
    patch, path = "/admin/v1/users/{id}", tag = TAG,
    params(PathId<UserId>),
    request_body = UserChangeBody,
    responses(
        (status = 200, description = "The user.", body = UserItem),
        (status = 409, description = TAKEN),
    ),
)]
pub(super) async fn update_user(
    State(admin): State<Admin>,
    operator: Operator,
    PathId(id): PathId<UserId>,
    body: JsonBody<UserChangeBody>,
) -> Result<Response, Rejection> {
    let UserChangeBody {
        email,
        reference,
        plan,
        timezone,
        console_sign_in,
    } = &body.value;
    let user_change = UserChange {
        email: email.as_ref().map(|email| email.0.as_str()),
        plan: plan.as_ref().map(|plan| plan.0),
        timezone: timezone
            .as_ref()
            .map(|timezone| timezone.as_ref().map(|timezone| timezone.0.as_str())),
        reference: reference
            .as_ref()
            .map(|reference| reference.as_ref().map(|reference| reference.0.as_str())),
        // Only a command makes somebody an operator, so that a key cannot.
        is_operator: None,
        console_sign_in: *console_sign_in,
    };
    let mut change = admin.begin(&operator).await?;
    let user = users::update(&mut change, id, &user_change).await?;
    let data = UserView::from(user);
    commit(change, StatusCode::OK, data).await
}

/// Remove a user
///
/// With all keys and webhook endpoints, and with the registrations at providers. While the user has
/// connections, it is 409, unless you send `connections=remove`: then the user's keys and sessions
/// end at once, new ones are 409, and the service withdraws each consent, trying again for as long
/// as that fails, before it removes the user. The event `user.removed` says when that is done, and
/// the user is 404 then.
#[utoipa::path(
    delete, path = "/admin/v1/users/{id}", tag = TAG,
    params(PathId<UserId>, RemovalQuery),
    responses(
        (
            status = 202,
            description = "The user, who is removed once all connections are.",
            body = UserItem,
        ),
        (status = 204, description = "The user is removed."),
        (
            status = 409,
            description = "The user still has connections, or a provider rejects the removal.",
        ),
        (status = 503, description = "The database or a provider is temporarily unavailable."),
    ),
)]
pub(super) async fn remove_user(
    State(admin): State<Admin>,
    operator: Operator,
    PathId(id): PathId<UserId>,
    Query(query): Query<RemovalQuery>,
) -> Result<Response, Rejection> {
    let user = find(admin.storage(), id).await?;
    if let Some(RemoveText(())) = query.connections {
        return begin_removal(&admin, &operator, user).await;
    }
    users::prepare_removal(admin.storage(), admin.context.connections(), id, false)
        .await
        .map_err(removal_problem)?;
    let mut change = admin.begin(&operator).await?;
    users::remove(&mut change, id).await?;
    change.commit().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Removes a user with their connections, in the background.
async fn begin_removal(
    admin: &Admin,
    operator: &Operator,
    user: User,
) -> Result<Response, Rejection> {
    let mut change = admin.begin(operator).await?;
    users::begin_removal(&mut change, user.id).await?;
    change.commit().await?;
    admin.context.connections().user_removals().wake();
    let data = UserView::from(user);
    Ok((StatusCode::ACCEPTED, respond(&Item { data })?).into_response())
}

pub(crate) async fn find(storage: &Storage, id: UserId) -> Result<User, Problem> {
    storage
        .users()
        .find(id)
        .await?
        .ok_or(Problem::NotFound("User"))
}

/// The error of a provider that is asked to forget the user.
fn removal_problem(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Connections(ConnectionsError::NotFound) => Problem::NotFound("User"),
        Refusal::Connections(error) if error.is_transient() => {
            Problem::unavailable(PROVIDER_RETRY_AFTER)
        }
        Refusal::Connections(_) => Problem::Conflict(
            "The user is registered at a provider that rejects the removal: see its message with `bellbird user \
             remove`, or remove the user only here with `--local-only`"
                .into(),
        ),
        other => other.into(),
    }
}
