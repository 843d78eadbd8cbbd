//! Deliveries of webhook events: list, show, send again.

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{DeliveryState, EndpointId, EventId, UserId};
use bellbird_management::{Refusal, deliveries};
use bellbird_storage::{AttemptRecord, DeliveryPosition, DeliveryRecord, Endpoint};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::admin::change::{ChangeRequest, IdempotencyKey, Rejection, commit};
use crate::admin::inputs::{DeliveryStateName, Time, UserIdText};
use crate::admin::list::{Cursor, Item, Page, PageLimit, page_size};
use crate::admin::state::Admin;
use crate::admin::webhook_endpoints::{TAG, find};
use crate::http::json::respond;
use crate::http::{PathId, PathIds, Problem, Query, Resource as _};

/// The id of an event in a path.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
#[expect(dead_code, reason = "describes a part of `PathIds`")]
struct EventIdParam {
    /// The id of the event.
    #[param(
        value_type = Uuid,
        example = "0191e7a0-7c3b-7def-8000-00aabbccddee"
    )]
    event_id: EventId,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct DeliveriesQuery {
    /// Deliveries of one page, at most 200.
    #[param(inline, example = 50)]
    limit: Option<PageLimit>,
    /// The `nextCursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<DeliveryPosition>>,
    /// Only those of this user's events, at an endpoint for all users.
    #[param(value_type = Option<Uuid>)]
    user_id: Option<UserIdText>,
    /// Only those in this state: `pending`, `waiting`, `delivered` or `failed`.
    #[param(inline, value_type = Option<DeliveryState>)]
    state: Option<DeliveryStateName>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct DeliveryQuery {
    /// Whose event it is. Required if the endpoint is for all users.
    #[param(value_type = Option<Uuid>)]
    user_id: Option<UserIdText>,
}

/// Which event to deliver again.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookRedelivery {
    /// Whose event it is. Required if the endpoint is for all users.
    #[schema(value_type = Option<Uuid>, nullable = false)]
    #[schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    user_id: Option<UserIdText>,
}

/// Which events to deliver again.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookRecovery {
    /// Only this user's events, at an endpoint for all users.
    #[schema(value_type = Option<Uuid>, nullable = false)]
    #[schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    user_id: Option<UserIdText>,
    /// When the oldest of them was created.
    #[schema(value_type = Timestamp, example = "2026-11-20T09:30:00Z")]
    since: Time,
}

/// A delivery with its attempts.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeliveryDetails {
    #[serde(flatten)]
    delivery: DeliveryRecord,
    /// All attempts, oldest first.
    attempt_log: Vec<AttemptRecord>,
}

/// An event that is due.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct Redelivery {
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    event_id: EventId,
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    endpoint_id: EndpointId,
    /// Always `pending`.
    #[schema(inline, example = "pending")]
    state: DeliveryState,
}

/// Events that are due.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct Recovered {
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    endpoint_id: EndpointId,
    /// How many. Pings are left out.
    #[schema(example = 12)]
    recovered: u64,
}

/// Whose event the query is about.
fn user_of_query(endpoint: &Endpoint, given: Option<UserIdText>) -> Result<UserId, Problem> {
    let found = deliveries::user_of_event(endpoint, given.map(|user| user.0));
    found.map_err(|refusal| match refusal {
        Refusal::UserRequired => Problem::BadRequest {
            message: "Invalid query parameters".into(),
            details: vec![format!("userId: {refusal}")],
        },
        other => other.into(),
    })
}

type DeliveryItem = Item<DeliveryDetails>;
type RedeliveryItem = Item<Redelivery>;
type RecoveryItem = Item<Recovered>;
type DeliveryList = Page<DeliveryRecord>;

/// List the deliveries of a webhook endpoint
///
/// Newest event first: those that were delivered for 30 days, others for 90.
#[utoipa::path(
    get, path = "/admin/v1/webhook-endpoints/{id}/deliveries", tag = TAG,
    params(PathId<EndpointId>, DeliveriesQuery),
    responses((status = 200, description = "A page of deliveries.", body = DeliveryList)),
)]
pub(super) async fn list_deliveries(
    State(admin): State<Admin>,
    PathId(id): PathId<EndpointId>,
    Query(query): Query<DeliveriesQuery>,
) -> Result<Response, Problem> {
    let endpoint = find(admin.storage(), id).await?;
    let size = page_size(query.limit);
    let before = query
        .cursor
        .map(|Cursor(DeliveryPosition(at, event))| (at, event));
    let user = match query.user_id {
        Some(_) => user_of_query(&endpoint, query.user_id)?,
        None => endpoint.user_id,
    };
    let state = query.state.map(|state| state.0);
    let deliveries = admin.storage().deliveries();
    let found = deliveries
        .list_before(before, (user, id), state, size + 1)
        .await?;
    let page: DeliveryList = Page::of(found, size, DeliveryRecord::position);
    respond(&page)
}

/// Get a delivery
///
/// With all attempts, oldest first. No body is stored.
#[utoipa::path(
    get, path = "/admin/v1/webhook-endpoints/{id}/deliveries/{eventId}", tag = TAG,
    params(PathId<EndpointId>, EventIdParam, DeliveryQuery),
    responses(
        (status = 200, description = "The delivery with its attempts.", body = DeliveryItem),
    ),
)]
pub(super) async fn get_delivery(
    State(admin): State<Admin>,
    PathIds(id, event): PathIds<EndpointId, EventId>,
    Query(query): Query<DeliveryQuery>,
) -> Result<Response, Problem> {
    let endpoint = find(admin.storage(), id).await?;
    let user = user_of_query(&endpoint, query.user_id)?;
    let deliveries = admin.storage().deliveries();
    let delivery = deliveries
        .find(user, id, event)
        .await?
        .ok_or(Problem::NotFound(EventId::NOUN))?;
    let attempt_log = deliveries.list_attempts(user, id, event).await?;
    respond(&Item {
        data: DeliveryDetails {
            delivery,
            attempt_log,
        },
    })
}

/// Deliver an event again
///
/// Whether it failed or was delivered before, with the same id and the provider's current rows. It
/// is retried as often as a new one.
#[utoipa::path(
    post, path = "/admin/v1/webhook-endpoints/{id}/deliveries/{eventId}/redeliver", tag = TAG,
    params(PathId<EndpointId>, EventIdParam, IdempotencyKey),
    request_body = WebhookRedelivery,
    responses(
        (status = 202, description = "The event is due.", body = RedeliveryItem),
        (
            status = 409,
            description = "The endpoint is disabled, the event is a ping, or it waits for an \
                           earlier one (`conflict`), or the key was sent with another \
                           request.",
        ),
    ),
)]
pub(super) async fn redeliver(
    PathIds(id, event_id): PathIds<EndpointId, EventId>,
    request: ChangeRequest<WebhookRedelivery>,
) -> Result<Response, Rejection> {
    let user = request.body.user_id.as_ref().map(|user| user.0);
    let mut change = request.begin().await?;
    deliveries::redeliver(&mut change, id, user, event_id).await?;
    let data = Redelivery {
        event_id,
        endpoint_id: id,
        state: DeliveryState::Pending,
    };
    commit(change, StatusCode::ACCEPTED, data).await
}

/// Deliver all failed events again
///
/// Those that were created at `since` or later, with the same ids and the provider's current rows.
/// Of all users, some 10,000 at a time: repeat the request, with another `Idempotency-Key`, until
/// `recovered` is 0.
#[utoipa::path(
    post, path = "/admin/v1/webhook-endpoints/{id}/recover", tag = TAG,
    params(PathId<EndpointId>, IdempotencyKey),
    request_body = WebhookRecovery,
    responses(
        (status = 202, description = "The events are due.", body = RecoveryItem),
        (
            status = 409,
            description = "The endpoint is disabled (`conflict`), or the key was sent with \
                           another request.",
        ),
    ),
)]
pub(super) async fn recover(
    State(admin): State<Admin>,
    PathId(id): PathId<EndpointId>,
    request: ChangeRequest<WebhookRecovery>,
) -> Result<Response, Rejection> {
    let WebhookRecovery { user_id, since } = &request.body;
    let (storage, since) = (admin.storage(), since.0);
    // Read before the change begins, and judged after it, because a repeated request gets its
    // response anyway.
    let endpoint = find(storage, id).await;
    let user = match &endpoint {
        Ok(endpoint) => {
            let given = user_id.as_ref().map(|user| user.0);
            deliveries::user_to_recover(storage, endpoint, given).await
        }
        Err(_) => Ok(UserId::INSTALLATION),
    };
    let mut change = request.begin().await?;
    let (endpoint, user) = (endpoint?, user?);
    let recovered = if user == UserId::INSTALLATION {
        drop(change);
        let now = request.operator.now;
        let recovered = deliveries::recover_all(storage, &endpoint, since, now).await?;
        change = request.begin().await?;
        deliveries::record_recovery(&mut change, &endpoint, user).await?;
        recovered
    } else {
        deliveries::recover(&mut change, &endpoint, user, since).await?
    };
    let data = Recovered {
        endpoint_id: id,
        recovered,
    };
    commit(change, StatusCode::ACCEPTED, data).await
}
