//! Webhook endpoints of users and of the installation: create, list, change, remove, rotate the
//! secret, ping.

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{ApiVersion, EndpointId, EventId, SubscribableEvent, UserId};
use bellbird_management::Refusal;
use bellbird_management::endpoints::{self, EndpointChange, NewEndpoint, require_events_of};
use bellbird_storage::{Endpoint, Storage};
use bellbird_webhooks::PingOutcome;
use bellbird_webhooks::endpoint::EndpointUrl;
use http::StatusCode;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use crate::admin::change::{ChangeRequest, IdempotencyKey, Rejection, commit};
use crate::admin::inputs::{ApiVersionName, EventNames, UserIdText};
use crate::admin::list::{Cursor, Item, Page, PageLimit, page_size};
use crate::admin::state::{Admin, invalid_member};
use crate::http::json::respond;
use crate::http::{JsonBody, NoParams, Operator, PathId, Problem, Query, Resource as _};

pub(crate) const TAG: &str = "Webhook endpoints";

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct EndpointsQuery {
    /// Endpoints of one page, at most 200.
    #[param(inline, example = 50)]
    limit: Option<PageLimit>,
    /// The `nextCursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<EndpointId>>,
    /// Only those of this user.
    #[param(value_type = Option<Uuid>)]
    user_id: Option<UserIdText>,
}

/// A webhook endpoint to create.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewWebhookEndpoint {
    /// Whose events it receives, unless `allUsers` is true.
    #[schema(value_type = Option<Uuid>, nullable = false)]
    #[schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    user_id: Option<UserIdText>,
    /// Whether it receives the events of all users.
    #[schema(nullable = false, example = false)]
    all_users: Option<bool>,
    /// Where events are sent.
    #[schema(format = "uri", example = "https://hooks.example.com/bellbird")]
    url: String,
    /// The event types to send. If omitted, all of them for an endpoint of all users, and
    /// `transactions.synced` and `trades.synced` for one of a user, which cannot have
    /// `user.removed`.
    #[schema(inline, value_type = Option<Vec<SubscribableEvent>>, nullable = false)]
    #[schema(example = json!(["transactions.synced", "connection.updated"]))]
    events: Option<EventNames>,
    /// Version of the events' body. If omitted, the newest for an endpoint of all users, and
    /// `2026-11-01` for one of a user.
    #[schema(inline, value_type = Option<ApiVersion>, nullable = false, example = "2026-12-01")]
    api_version: Option<ApiVersionName>,
}

/// What to change of a webhook endpoint.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookEndpointChange {
    /// Where events are sent.
    #[schema(
        nullable = false,
        format = "uri",
        example = "https://hooks.example.com/bellbird"
    )]
    url: Option<String>,
    /// The event types to send.
    #[schema(inline, value_type = Option<Vec<SubscribableEvent>>, nullable = false)]
    #[schema(example = json!(["transactions.synced", "connection.updated"]))]
    events: Option<EventNames>,
    /// Version of the events' body.
    #[schema(inline, value_type = Option<ApiVersion>, nullable = false, example = "2026-12-01")]
    api_version: Option<ApiVersionName>,
    /// Whether it receives events.
    #[schema(nullable = false, example = true)]
    enabled: Option<bool>,
}

/// A created webhook endpoint.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct CreatedWebhookEndpoint {
    #[serde(flatten)]
    endpoint: Endpoint,
    /// Verifies the signatures of events. Store it: it is not shown again.
    #[schema(example = "whsec_...")]
    secret: String,
}

/// A new signing secret.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct NewWebhookSecret {
    /// The endpoint's.
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    id: EndpointId,
    /// Verifies the signatures of events. Store it: it is not shown again.
    #[schema(example = "whsec_...")]
    secret: String,
    /// Until then, the old one verifies too. Null: it could not be opened and is deleted.
    #[schema(required = true, example = "2026-08-02T02:10:00.25Z")]
    old_secret_expires_at: Option<Timestamp>,
}

/// What an endpoint responded to a ping.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct Ping {
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    event_id: EventId,
    /// Whether the endpoint accepted it, with a status of 2xx.
    delivered: bool,
    /// HTTP status. Null: no response.
    #[schema(required = true, example = 204)]
    status: Option<u16>,
    #[schema(example = 84)]
    duration_ms: u64,
    /// A few words.
    #[schema(required = true, example = "timeout")]
    error: Option<&'static str>,
}

impl From<PingOutcome> for Ping {
    fn from(outcome: PingOutcome) -> Self {
        let PingOutcome {
            event_id, exchange, ..
        } = outcome;
        Self {
            event_id,
            delivered: exchange.is_success(),
            status: exchange.status,
            duration_ms: u64::try_from(exchange.duration.as_millis()).unwrap_or(u64::MAX),
            error: exchange.error,
        }
    }
}

type EndpointItem = Item<Endpoint>;
type NewEndpointItem = Item<CreatedWebhookEndpoint>;
type NewSecretItem = Item<NewWebhookSecret>;
type PingItem = Item<Ping>;
type EndpointList = Page<Endpoint>;

/// List webhook endpoints
///
/// Oldest first, of all users or of one.
#[utoipa::path(
    get, path = "/admin/v1/webhook-endpoints", tag = TAG,
    params(EndpointsQuery),
    responses(
        (status = 200, description = "A page of webhook endpoints.", body = EndpointList),
    ),
)]
pub(super) async fn list_webhook_endpoints(
    State(admin): State<Admin>,
    Query(query): Query<EndpointsQuery>,
) -> Result<Response, Problem> {
    let (size, after) = (page_size(query.limit), query.cursor.map(|cursor| cursor.0));
    let endpoints = admin.storage().endpoints();
    let user = query.user_id.map(|user| user.0);
    let found = endpoints.list_after(after, user, size + 1).await?;
    let page: EndpointList = Page::of(found, size, |endpoint| endpoint.id);
    respond(&page)
}

/// Create a webhook endpoint
///
/// For the events of a user or, with `allUsers`, of everyone, also of users who come later, each
/// with the user's id and reference in `metadata`. The URL must use https, a public host name, and
/// port 443 or a port from 1024 on. There can be 20 endpoints of a user, and 20 for all.
#[utoipa::path(
    post, path = "/admin/v1/webhook-endpoints", tag = TAG,
    params(IdempotencyKey),
    request_body = NewWebhookEndpoint,
    responses(
        (
            status = 201,
            description = "The endpoint with its secret, not shown again.",
            body = NewEndpointItem,
        ),
        (status = 404, description = "The user does not exist."),
        (
            status = 409,
            description = "There are 20 endpoints already, or the user is being removed \
                           (`conflict`), or the key was sent with another request.",
        ),
    ),
)]
pub(super) async fn create_webhook_endpoint(
    State(admin): State<Admin>,
    request: ChangeRequest<NewWebhookEndpoint>,
) -> Result<Response, Rejection> {
    let body = &request.body;
    let user_id = match (&body.user_id, body.all_users.unwrap_or(false)) {
        (Some(UserIdText(UserId::INSTALLATION)), _) => {
            return Err(Problem::NotFound("User").into());
        }
        (Some(user), false) => user.0,
        (None, true) => UserId::INSTALLATION,
        (Some(_), true) | (None, false) => {
            let fault = "Must be the id of a user, or absent and `allUsers` true";
            return Err(invalid_member("userId", fault).into());
        }
    };
    let events = body.events.as_ref().map(|events| &*events.0);
    require_events_of(user_id, events)?;
    // Checked before the change begins, and judged after it, because a repeated request gets its
    // response anyway.
    let checked = EndpointUrl::check(&body.url, admin.webhooks.rules()).await;
    let mut change = request.begin().await?;
    let new = NewEndpoint {
        user_id,
        url: &checked.map_err(Refusal::from)?,
        events,
        api_version: body.api_version.as_ref().map(|version| version.0),
    };
    let created = endpoints::create(&mut change, new).await?;
    let data = CreatedWebhookEndpoint {
        endpoint: created.endpoint,
        secret: created.secret.expose_secret().to_owned(),
    };
    commit(change, StatusCode::CREATED, data).await
}

/// Get a webhook endpoint
///
/// Without its secret.
#[utoipa::path(
    get, path = "/admin/v1/webhook-endpoints/{id}", tag = TAG,
    params(PathId<EndpointId>),
    responses((status = 200, description = "The endpoint.", body = EndpointItem)),
)]
pub(super) async fn get_webhook_endpoint(
    State(admin): State<Admin>,
    PathId(id): PathId<EndpointId>,
) -> Result<Response, Problem> {
    let endpoint = find(admin.storage(), id).await?;
    respond(&Item { data: endpoint })
}

/// Change a webhook endpoint
///
/// Omitted fields keep their value. The next attempt of each pending delivery uses the new ones.
/// Once the endpoint is disabled, pending deliveries fail; those of an endpoint for all users when
/// their next attempt is due. After it is enabled again, they can be recovered.
#[utoipa::path(
    patch, path = "/admin/v1/webhook-endpoints/{id}", tag = TAG,
    params(PathId<EndpointId>),
    request_body = WebhookEndpointChange,
    responses((status = 200, description = "The endpoint.", body = EndpointItem)),
)]
pub(super) async fn update_webhook_endpoint(
    State(admin): State<Admin>,
    operator: Operator,
    PathId(id): PathId<EndpointId>,
    body: JsonBody<WebhookEndpointChange>,
) -> Result<Response, Rejection> {
    let WebhookEndpointChange {
        url,
        events,
        api_version,
        enabled,
    } = &body.value;
    let events = events.as_ref().map(|events| &*events.0);
    require_events_of(find(admin.storage(), id).await?.user_id, events)?;
    let url = match url {
        Some(url) => Some(
            EndpointUrl::check(url, admin.webhooks.rules())
                .await
                .map_err(Refusal::from)?,
        ),
        None => None,
    };
    let to = EndpointChange {
        url: url.as_ref(),
        events,
        api_version: api_version.as_ref().map(|version| version.0),
        enabled: *enabled,
    };
    let mut change = admin.begin(&operator).await?;
    let data = endpoints::update(&mut change, id, to).await?;
    commit(change, StatusCode::OK, data).await
}

/// Remove a webhook endpoint
///
/// With its secret and its deliveries. Pending ones are cancelled.
#[utoipa::path(
    delete, path = "/admin/v1/webhook-endpoints/{id}", tag = TAG,
    params(PathId<EndpointId>),
    responses((status = 204, description = "The endpoint is removed.")),
)]
pub(super) async fn remove_webhook_endpoint(
    State(admin): State<Admin>,
    operator: Operator,
    PathId(id): PathId<EndpointId>,
) -> Result<StatusCode, Rejection> {
    let mut change = admin.begin(&operator).await?;
    endpoints::remove(&mut change, id).await?;
    change.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Rotate a webhook secret
///
/// For 24 hours, each event has two signatures and verifies with either secret.
#[utoipa::path(
    post, path = "/admin/v1/webhook-endpoints/{id}/rotate-secret", tag = TAG,
    params(PathId<EndpointId>, IdempotencyKey),
    responses(
        (status = 201, description = "The new secret, not shown again.", body = NewSecretItem),
    ),
)]
pub(super) async fn rotate_webhook_secret(
    PathId(id): PathId<EndpointId>,
    request: ChangeRequest<NoParams>,
) -> Result<Response, Rejection> {
    let mut change = request.begin().await?;
    let rotated = endpoints::rotate_secret(&mut change, id).await?;
    let data = NewWebhookSecret {
        id,
        secret: rotated.secret.expose_secret().to_owned(),
        old_secret_expires_at: rotated.old_expires_at,
    };
    commit(change, StatusCode::CREATED, data).await
}

/// Ping a webhook endpoint
///
/// Sends an event of the type `endpoint.ping` without rows, once, even to a disabled endpoint. A
/// repeated request sends none; two at once with one key may send two.
#[utoipa::path(
    post, path = "/admin/v1/webhook-endpoints/{id}/ping", tag = TAG,
    params(PathId<EndpointId>, IdempotencyKey),
    responses(
        (status = 200, description = "What the endpoint responded.", body = PingItem),
        (
            status = 409,
            description = "Nothing was sent, and the message says why (`conflict`), or as in \
                           other changes.",
        ),
    ),
)]
pub(super) async fn ping_webhook_endpoint(
    State(admin): State<Admin>,
    PathId(id): PathId<EndpointId>,
    request: ChangeRequest<NoParams>,
) -> Result<Response, Rejection> {
    // A change holds SQLite's one writer, so none is open while the endpoint responds. Dropping
    // this one forgets the key until the ping is recorded.
    drop(request.begin().await?);
    let endpoint = find(admin.storage(), id).await?;
    let pinged = admin.webhooks.ping(&endpoint).await;
    let data = Ping::from(pinged.map_err(Refusal::from)?);
    let mut change = request.begin().await?;
    endpoints::record_ping(&mut change, &endpoint).await?;
    commit(change, StatusCode::OK, data).await
}

pub(crate) async fn find(storage: &Storage, id: EndpointId) -> Result<Endpoint, Problem> {
    storage
        .endpoints()
        .find_any(id)
        .await?
        .ok_or(Problem::NotFound(EndpointId::NOUN))
}
