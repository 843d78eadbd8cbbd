//! Deliveries of webhook events: list, show, send again.

use axum::extract::State;
use axum::response::Response;
use bellbird_api::front::json::{json_bytes, to_json};
use bellbird_api::front::{
    JsonBody, Operation, Operator, Path, PathId, PathIds, Problem, Resource as _, RouteMethod, StrictQuery,
};
use bellbird_domain::{DeliveryState, EndpointId, EndpointStatus, EventId, EventType, SyncRunId};
use bellbird_storage::{AttemptRecord, DeliveryRecord, OperatorAction};
use bellbird_webhooks::endpoint::{NotRedelivered, why_not_redelivered};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::change::{Begun, IdempotencyKey, NoMembers, commit};
use crate::inputs::{DeliveryStateName, Time};
use crate::list::{Cursor, Item, PageLimit, cut, page_size};
use crate::state::{Admin, problem};
use crate::webhook_endpoints::{TAG, find, user_of};

const DISABLED: &str = "The endpoint is disabled: enable it first";

pub(crate) fn paths() -> Vec<Path<Admin>> {
    let list = Operation::new("list_deliveries", TAG, "A page of deliveries.")
        .text("List the deliveries of a webhook endpoint", "Newest event first, of the last 90 days.");
    let show = Operation::new("get_delivery", TAG, "The delivery with its attempts.")
        .text("Get a delivery", "With all attempts, oldest first. No body is stored.");
    let redeliver = Operation::new("redeliver", TAG, "The event is due.").text(
        "Deliver an event again",
        "Whether it failed or was delivered before, with the same id and the provider's current rows. It is retried \
         as often as a new one.",
    );
    let recover = Operation::new("recover", TAG, "The events are due.").text(
        "Deliver all failed events again",
        "Those that were created at `since` or later, with the same ids and the provider's current rows.",
    );
    vec![
        Path::for_operators(RouteMethod::Get, "/admin/v1/webhook-endpoints/{id}/deliveries", list_deliveries)
            .described(list.query::<DeliveriesQuery>().json::<DeliveryList>()),
        Path::for_operators(RouteMethod::Get, "/admin/v1/webhook-endpoints/{id}/deliveries/{eventId}", show_delivery)
            .described(show.json::<DeliveryItem>()),
        Path::for_operators(
            RouteMethod::Post,
            "/admin/v1/webhook-endpoints/{id}/deliveries/{eventId}/redeliver",
            redeliver_event,
        )
        .described(redeliver.json::<RedeliveryItem>().status(202).error(
            409,
            "The endpoint is disabled, the event is a ping, or it waits for an earlier one (`conflict`), or the key \
             was sent with another request.",
        )),
        Path::for_operators(RouteMethod::Post, "/admin/v1/webhook-endpoints/{id}/recover", recover_events).described(
            recover
                .body::<RecoveryBody>()
                .json::<RecoveryItem>()
                .status(202)
                .error(409, "The endpoint is disabled (`conflict`), or the key was sent with another request."),
        ),
    ]
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DeliveriesQuery {
    /// Deliveries of one page, at most 200.
    #[param(inline, example = 50)]
    limit: Option<PageLimit>,
    /// The `nextCursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<EventId>>,
    /// Only those in this state: `pending`, `waiting`, `delivered` or `failed`.
    #[param(value_type = Option<String>)]
    state: Option<DeliveryStateName>,
}

/// Which events to deliver again.
#[derive(Deserialize, ToSchema)]
#[schema(as = WebhookRecovery)]
struct RecoveryBody {
    /// When the oldest of them was created.
    #[schema(value_type = String, format = "date-time", example = "2026-11-20T09:30:00Z")]
    since: Time,
}

/// The delivery of an event to an endpoint.
#[derive(ToSchema)]
#[schema(as = Delivery, rename_all = "camelCase")]
#[expect(dead_code, reason = "documents what `bellbird_storage::DeliveryRecord` is serialized to")]
struct DeliveryView {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    event_id: EventId,
    /// The type of the event.
    #[schema(value_type = String, example = "transactions.synced")]
    r#type: EventType,
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    sync_run_id: SyncRunId,
    /// From 1 to `totalChunks`.
    #[schema(example = 1)]
    chunk: u32,
    #[schema(example = 1)]
    total_chunks: u32,
    /// New rows in the event.
    #[schema(example = 3)]
    new_count: u32,
    /// Changed rows in the event.
    #[schema(example = 0)]
    updated_count: u32,
    /// When the event was created.
    #[schema(value_type = String, format = "date-time", example = "2026-11-20T21:04:11.52Z")]
    created_at: Timestamp,
    /// `pending`, `waiting` for the chunk before, `delivered` or `failed`.
    #[schema(value_type = String, example = "delivered")]
    state: DeliveryState,
    /// Starts again from 0 with a redelivery.
    #[schema(example = 1)]
    attempts: u32,
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2026-11-20T21:04:11.52Z")]
    next_attempt_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2026-11-20T21:04:11.52Z")]
    last_attempt_at: Option<Timestamp>,
    /// HTTP status of the last attempt. Null: no response, or no attempt yet.
    #[schema(required = true, example = 204)]
    last_status: Option<u16>,
    /// A few words.
    #[schema(required = true, example = "timeout")]
    last_error: Option<String>,
    #[schema(required = true, example = 84)]
    last_duration_ms: Option<u32>,
    /// When it was delivered, or failed and was no longer retried.
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2026-11-20T21:04:11.52Z")]
    ended_at: Option<Timestamp>,
}

/// An attempt to deliver an event.
#[derive(ToSchema)]
#[schema(as = DeliveryAttempt, rename_all = "camelCase")]
#[expect(dead_code, reason = "documents what `bellbird_storage::AttemptRecord` is serialized to")]
struct AttemptView {
    /// From 1, counted on after a redelivery.
    #[schema(example = 1)]
    attempt: u32,
    #[schema(value_type = String, format = "date-time", example = "2026-11-20T21:04:11.52Z")]
    at: Timestamp,
    #[schema(example = 84)]
    duration_ms: u32,
    /// HTTP status. Null: no response.
    #[schema(required = true, example = 204)]
    status: Option<u16>,
    /// A few words.
    #[schema(required = true, example = "timeout")]
    error: Option<String>,
}

/// A delivery with its attempts.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeliveryDetails)]
struct DetailsView {
    #[serde(flatten)]
    #[schema(value_type = DeliveryView)]
    delivery: DeliveryRecord,
    /// All attempts, oldest first.
    #[schema(value_type = Vec<AttemptView>)]
    attempt_log: Vec<AttemptRecord>,
}

/// An event that is due.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Redelivery)]
struct RedeliveryView {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    event_id: EventId,
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    endpoint_id: EndpointId,
    #[schema(value_type = String, example = "pending")]
    state: DeliveryState,
}

/// Events that are due.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Recovered)]
struct RecoveryView {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    endpoint_id: EndpointId,
    /// How many. Pings are left out.
    #[schema(example = 12)]
    recovered: u64,
}

/// A delivery with its attempts.
#[derive(ToSchema)]
#[expect(dead_code, reason = "documents the body")]
struct DeliveryItem {
    data: DetailsView,
}

/// An event that is due.
#[derive(ToSchema)]
#[expect(dead_code, reason = "documents the body")]
struct RedeliveryItem {
    data: RedeliveryView,
}

/// Events that are due.
#[derive(ToSchema)]
#[expect(dead_code, reason = "documents the body")]
struct RecoveryItem {
    data: RecoveryView,
}

/// A page of deliveries.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeliveryList {
    #[schema(value_type = Vec<DeliveryView>)]
    data: Vec<DeliveryRecord>,
    /// The `cursor` of the next page. Null: this is the last one.
    #[schema(required = true)]
    next_cursor: Option<String>,
}

async fn list_deliveries(
    State(admin): State<Admin>,
    PathId(id): PathId<EndpointId>,
    StrictQuery(query): StrictQuery<DeliveriesQuery>,
) -> Result<Response, Problem> {
    let endpoint = find(admin.storage(), id).await?;
    let (size, before) = (page_size(query.limit), query.cursor.map(|cursor| cursor.0));
    let state = query.state.map(|state| state.0);
    let deliveries = admin.storage().deliveries();
    let mut data = deliveries.list_before(before, (user_of(&endpoint), id), state, size + 1).await?;
    let next_cursor = cut(&mut data, size, |delivery| delivery.event_id.to_string());
    Ok(json_bytes(to_json(&DeliveryList { data, next_cursor })?))
}

async fn show_delivery(
    State(admin): State<Admin>,
    PathIds(id, event): PathIds<EndpointId, EventId>,
) -> Result<Response, Problem> {
    let user = user_of(&find(admin.storage(), id).await?);
    let deliveries = admin.storage().deliveries();
    let delivery = deliveries.find(user, id, event).await?.ok_or(Problem::NotFound(EventId::NOUN))?;
    let attempt_log = deliveries.list_attempts(user, id, event).await?;
    Ok(json_bytes(to_json(&Item { data: DetailsView { delivery, attempt_log } })?))
}

async fn redeliver_event(
    State(admin): State<Admin>,
    operator: Operator,
    PathIds(id, event_id): PathIds<EndpointId, EventId>,
    idempotency: IdempotencyKey,
    body: JsonBody<NoMembers>,
) -> Result<Response, Problem> {
    let NoMembers {} = body.value;
    // Read before the change begins, and judged after it, because a repeated request gets its response anyway.
    let endpoint = find(admin.storage(), id).await;
    let mut change = match admin.begin(&operator, &idempotency, body.digest).await? {
        Begun::Change(change) => change,
        Begun::Repeated(response) => return Ok(response),
    };
    let endpoint = endpoint?;
    let user_id = user_of(&endpoint);
    if !change.redeliver((user_id, id), event_id).await.map_err(problem)? {
        drop(change);
        return Err(match why_not_redelivered(admin.storage(), &endpoint, event_id).await? {
            NotRedelivered::UnknownEndpoint => Problem::NotFound(EndpointId::NOUN),
            NotRedelivered::UnknownEvent => Problem::NotFound(EventId::NOUN),
            NotRedelivered::Ping => Problem::Conflict("A ping cannot be redelivered: send another".into()),
            NotRedelivered::Disabled => Problem::Conflict(DISABLED.into()),
            NotRedelivered::Waiting => Problem::Conflict(
                "The event waits for an earlier event of the same sync: redeliver that one instead".into(),
            ),
        });
    }
    let subject = event_id.to_string();
    let action = OperatorAction { name: "delivery.redeliver", user_id, subject: Some(&subject) };
    let data = RedeliveryView { event_id, endpoint_id: id, state: DeliveryState::Pending };
    commit(change, &action, StatusCode::ACCEPTED, &Item { data }).await
}

async fn recover_events(
    State(admin): State<Admin>,
    operator: Operator,
    PathId(id): PathId<EndpointId>,
    idempotency: IdempotencyKey,
    body: JsonBody<RecoveryBody>,
) -> Result<Response, Problem> {
    let endpoint = find(admin.storage(), id).await;
    let mut change = match admin.begin(&operator, &idempotency, body.digest).await? {
        Begun::Change(change) => change,
        Begun::Repeated(response) => return Ok(response),
    };
    let user_id = user_of(&endpoint?);
    let Some(recovered) = change.recover((user_id, id), body.value.since.0).await.map_err(problem)? else {
        drop(change);
        return Err(match find(admin.storage(), id).await?.status {
            EndpointStatus::Disabled => Problem::Conflict(DISABLED.into()),
            // It was enabled meanwhile.
            EndpointStatus::Enabled => Problem::ServiceUnavailable,
        });
    };
    let subject = id.to_string();
    let action = OperatorAction { name: "delivery.recover", user_id, subject: Some(&subject) };
    commit(change, &action, StatusCode::ACCEPTED, &Item { data: RecoveryView { endpoint_id: id, recovered } }).await
}
