//! Link sessions: where a user links an institution in the browser, and what came of it.

use std::str::FromStr;

use axum::extract::State;
use axum::response::Response;
use bellbird_api::http::documented::ProviderSchema;
use bellbird_api::http::json::{json_bytes, to_json};
use bellbird_api::http::{JsonBody, Operator, PathId, Problem, Resource};
use bellbird_connections::{ConnectionsError, LinkStatus, LinkTarget, NewLinkSession};
use bellbird_domain::{ConnectionCategory, ConnectionId, UserId};
use bellbird_storage::OperatorAction;
use http::StatusCode;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::change::{Begun, IdempotencyKey, commit};
use crate::inputs::{ConnectionIdText, UserIdText};
use crate::list::Item;
use crate::state::{Admin, invalid_member, problem};

const TAG: &str = "Link sessions";

/// A link session to create.
#[derive(Deserialize, utoipa::ToSchema)]
#[schema(as = NewLinkSession, rename_all = "camelCase")]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewSessionBody {
    /// For whom the person links.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    user_id: UserIdText,
    /// The provider to link. If absent, the person chooses.
    #[schema(inline, value_type = Option<ProviderSchema>, nullable = false, example = "fiskil")]
    provider: Option<String>,
    /// The user's connection to reconnect or renew, instead of a provider.
    #[schema(value_type = Option<String>, nullable = false, format = "uuid",
        example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    connection_id: Option<ConnectionIdText>,
    /// Where the browser returns: a URL of an origin in `admin.return_origins`, of at most 1,000
    /// bytes. If absent, it stays on the last page.
    #[schema(
        nullable = false,
        format = "uri",
        example = "https://app.example.com/linked"
    )]
    return_url: Option<String>,
    /// Your own text for the return, at most 500 characters. It is in a URL, so no secret.
    #[schema(nullable = false, example = "42")]
    state: Option<String>,
}

/// A created link session.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CreatedLinkSession)]
struct NewSessionView {
    /// No secret: the return has it too.
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    id: Uuid,
    /// Secret: whoever has it links for this user.
    #[schema(format = "uri", example = "https://console.example.com/link/...")]
    url: String,
    #[schema(value_type = String, format = "date-time", example = "2026-08-01T02:40:00Z")]
    expires_at: Timestamp,
}

/// A created link session.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "documents the body")]
struct NewSessionItem {
    data: NewSessionView,
}

/// A link session with its result.
#[derive(utoipa::ToSchema)]
#[schema(as = LinkSession, rename_all = "camelCase")]
#[expect(
    dead_code,
    reason = "documents what `bellbird_connections::LinkSession` is serialized to"
)]
struct SessionView {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    id: Uuid,
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    user_id: UserId,
    /// `open`, `waiting`, `connected`, `declined`, `failed` or `expired`.
    #[schema(inline, example = "connected")]
    status: LinkStatus,
    /// What it has connected, reconnected or renewed, and what is still connected.
    connections: Vec<LinkedConnectionView>,
    /// Why there is none. Null until the status says so.
    #[schema(required = true)]
    reason: Option<ReasonView>,
    #[schema(value_type = String, format = "date-time", example = "2026-08-01T02:40:00Z")]
    expires_at: Timestamp,
}

/// A connection of a link session.
#[derive(utoipa::ToSchema)]
#[schema(as = LinkedConnection)]
#[expect(
    dead_code,
    reason = "documents what `bellbird_connections::SessionConnection` is serialized to"
)]
struct LinkedConnectionView {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    id: ConnectionId,
    #[schema(inline, value_type = ProviderSchema, example = "fiskil")]
    provider: String,
    #[schema(inline, example = "banking")]
    category: ConnectionCategory,
}

/// Why a link session has no connection.
#[derive(utoipa::ToSchema)]
#[schema(as = LinkSessionReason)]
#[expect(
    dead_code,
    reason = "documents what `bellbird_connections::NoConnection` is serialized to"
)]
struct ReasonView {
    /// A word for programs. More may come.
    #[schema(example = "declined")]
    code: &'static str,
    /// A sentence for people.
    #[schema(example = "The person gave no consent.")]
    message: String,
}

/// A link session with its result.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "documents the body")]
struct SessionItem {
    data: SessionView,
}

/// The id of a link session, in a path.
pub(crate) struct LinkSessionId(Uuid);

impl FromStr for LinkSessionId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

impl Resource for LinkSessionId {
    const NOUN: &'static str = "Link session";
}

/// Create a link session
///
/// Redirect the user's browser to `url`, which works for half an hour and connects once. With
/// `connectionId`, the user reconnects or renews this connection.
#[utoipa::path(
    post, path = "/admin/v1/link-sessions", tag = TAG,
    params(IdempotencyKey),
    request_body = NewSessionBody,
    responses(
        (status = 201, description = "The link session.", body = NewSessionItem),
        (status = 404, description = "The user or the user's connection does not exist."),
        (
            status = 409,
            description = "The service has no provider or no console to link with, the user's \
                           plan does not include what is to be linked, five of the user's \
                           visits to the provider are open, or the user has 1,000 links of \
                           the last day (`conflict`).",
        ),
    ),
)]
pub(super) async fn create_link_session(
    State(admin): State<Admin>,
    operator: Operator,
    idempotency: IdempotencyKey,
    body: JsonBody<NewSessionBody>,
) -> Result<Response, Problem> {
    let NewSessionBody {
        user_id,
        provider,
        connection_id,
        return_url,
        state,
    } = &body.value;
    let user_id = user_id.0;
    let links = admin.access.connections().links();
    let to = match (connection_id, provider) {
        (None, None) => LinkTarget::UserChoice,
        (None, Some(name)) => {
            let providers: Vec<&str> = links
                .providers()
                .iter()
                .map(|provider| provider.name)
                .collect();
            if !providers.contains(&name.as_str()) {
                let expected = format!(
                    "Must be a provider that can be linked here: {}",
                    providers.join(", ")
                );
                return Err(invalid_member("provider", &expected));
            }
            LinkTarget::Provider(name)
        }
        (Some(id), None) => LinkTarget::Connection(id.0),
        (Some(_), Some(_)) => {
            return Err(invalid_member(
                "provider",
                "Must be absent with connectionId",
            ));
        }
    };
    if state.is_some() && return_url.is_none() {
        return Err(invalid_member(
            "state",
            "Must be absent without returnUrl, which returns it",
        ));
    }
    let session = NewLinkSession {
        return_url: return_url.as_deref(),
        state: state.as_deref(),
    };
    // Checked before the change begins, and judged after it, because a repeated request gets its
    // response anyway.
    let prepared = links.prepare_link_session(user_id, to, session).await;
    let mut change = match admin.begin(&operator, &idempotency, body.digest).await? {
        Begun::Change(change) => change,
        Begun::Repeated(response) => return Ok(response),
    };
    let prepared = prepared.map_err(link_problem)?;
    let id = change
        .insert_link(&prepared.new_link())
        .await
        .map_err(problem)?;
    let created = prepared.into_created(id);
    let subject = id.to_string();
    let action = OperatorAction {
        name: "link_session.create",
        user_id,
        subject: Some(&subject),
    };
    let (url, expires_at) = (created.url.expose_secret().to_owned(), created.expires_at);
    commit(
        change,
        &action,
        StatusCode::CREATED,
        &Item {
            data: NewSessionView {
                id,
                url,
                expires_at,
            },
        },
    )
    .await
}

/// Get a link session
///
/// It is kept until a day after `expiresAt`.
#[utoipa::path(
    get, path = "/admin/v1/link-sessions/{id}", tag = TAG,
    params(PathId<LinkSessionId>),
    responses(
        (status = 200, description = "The link session with its result.", body = SessionItem),
    ),
)]
pub(super) async fn get_link_session(
    State(admin): State<Admin>,
    PathId(LinkSessionId(id)): PathId<LinkSessionId>,
) -> Result<Response, Problem> {
    let found = admin
        .access
        .connections()
        .links()
        .find_link_session(id)
        .await
        .map_err(link_problem)?;
    let session = found.ok_or(Problem::NotFound(LinkSessionId::NOUN))?;
    Ok(json_bytes(to_json(&Item { data: session })?))
}

fn link_problem(error: ConnectionsError) -> Problem {
    match &error {
        ConnectionsError::NotFound => Problem::NotFound("Connection"),
        ConnectionsError::ReturnUrl(reason) => {
            invalid_member("returnUrl", &format!("The return URL {reason}"))
        }
        ConnectionsError::InvalidState => invalid_member(
            "state",
            "Must be at most 500 characters, and none of them a control character",
        ),
        ConnectionsError::TooManySessions
        | ConnectionsError::NoLinkableProvider
        | ConnectionsError::NoConsoleUrl
        | ConnectionsError::NotInPlan { .. }
        | ConnectionsError::NotConfigured(_)
        | ConnectionsError::NoConsentPage(_) => Problem::Conflict(error.to_string().into()),
        _ => match error {
            ConnectionsError::Storage(error) => problem(error),
            _ => Problem::Internal,
        },
    }
}
