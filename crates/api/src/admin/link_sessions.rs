//! Link sessions: where a user links an institution in the browser, and what came of it.

use std::str::FromStr;

use axum::extract::State;
use axum::response::Response;
use bellbird_connections::{LinkSession, LinkTarget, NewLinkSession, ProviderSchema};
use bellbird_management::{Refusal, links};
use http::StatusCode;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::change::{ChangeRequest, IdempotencyKey, Rejection, commit};
use crate::admin::inputs::{ConnectionIdText, UserIdText};
use crate::admin::list::Item;
use crate::admin::state::{Admin, invalid_member};
use crate::http::json::respond;
use crate::http::{PathId, Problem, Resource};

const TAG: &str = "Link sessions";

/// A link session to create.
#[derive(Deserialize, utoipa::ToSchema)]
#[schema(as = NewLinkSession)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewSessionBody {
    /// For whom the person links.
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    user_id: UserIdText,
    /// The provider to link. If absent, the person chooses.
    #[schema(inline, value_type = Option<ProviderSchema>, nullable = false, example = "fiskil")]
    provider: Option<String>,
    /// The user's connection to reconnect or renew, instead of a provider.
    #[schema(value_type = Option<Uuid>, nullable = false,
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
struct CreatedLinkSession {
    /// No secret: the return has it too.
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    id: Uuid,
    /// Secret: whoever has it links for this user.
    #[schema(format = "uri", example = "https://console.example.com/link/...")]
    url: String,
    #[schema(example = "2026-08-01T02:40:00Z")]
    expires_at: Timestamp,
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

type NewSessionItem = Item<CreatedLinkSession>;
type SessionItem = Item<LinkSession>;

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
                           the last day or is being removed (`conflict`).",
        ),
    ),
)]
pub(super) async fn create_link_session(
    State(admin): State<Admin>,
    request: ChangeRequest<NewSessionBody>,
) -> Result<Response, Rejection> {
    let body = &request.body;
    let links = admin.context.connections().links();
    let providers = links.providers();
    let names = || providers.iter().map(|provider| provider.name);
    let to = match (&body.connection_id, &body.provider) {
        (None, None) => LinkTarget::UserChoice,
        (None, Some(name)) if names().any(|one| one == name) => LinkTarget::Provider(name),
        (None, Some(_)) => {
            let names = names().collect::<Vec<_>>().join(", ");
            let expected = format!("Must be a provider that can be linked here: {names}");
            return Err(invalid_member("provider", &expected).into());
        }
        (Some(id), None) => LinkTarget::Connection(id.0),
        (Some(_), Some(_)) => {
            return Err(invalid_member("provider", "Must be absent with connectionId").into());
        }
    };
    if body.state.is_some() && body.return_url.is_none() {
        let fault = "Must be absent without returnUrl, which returns it";
        return Err(invalid_member("state", fault).into());
    }
    let session = NewLinkSession {
        return_url: body.return_url.as_deref(),
        state: body.state.as_deref(),
    };
    // Checked before the change begins, and judged after it, because a repeated request gets its
    // response anyway.
    let prepared = links
        .prepare_link_session(body.user_id.0, to, session)
        .await;
    let mut change = request.begin().await?;
    let created = links::create(&mut change, prepared.map_err(Refusal::from)?).await?;
    let data = CreatedLinkSession {
        id: created.id,
        url: created.url.expose_secret().to_owned(),
        expires_at: created.expires_at,
    };
    commit(change, StatusCode::CREATED, data).await
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
    let links = admin.context.connections().links();
    let found = links.find_link_session(id).await.map_err(Refusal::from)?;
    let session = found.ok_or(Problem::NotFound(LinkSessionId::NOUN))?;
    respond(&Item { data: session })
}
