//! `bellbird webhook deliveries`: shows the delivery log of an endpoint.

use bellbird_domain::{DeliveryState, EndpointId, EventId, UserId};
use bellbird_storage::{AttemptRecord, DeliveryRecord, Storage};
use clap::Args;

use super::super::arguments;
use super::super::output::{self, format_instant};
use super::{EndpointArgs, EventUserArgs, REJECTED, advice, event_not_found};

const HEAD: [&str; 11] = [
    "created",
    "type",
    "chunk",
    "new",
    "updated",
    "state",
    "attempts",
    "response",
    "next attempt",
    "event id",
    "user id",
];

/// Show the delivery log of an endpoint, newest event first, including pending deliveries.
///
/// The log covers 90 days, and 30 of events that all endpoints have accepted. It does not contain
/// event bodies, because Bellbird does not store them.
///
/// Attempts are counted since the last redelivery. With --event, all of them are listed.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird webhook deliveries 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f --state failed")]
pub(crate) struct DeliveriesArgs {
    /// Show only deliveries in this state
    #[arg(long, value_parser = arguments::one_of(DeliveryState::ALL, DeliveryState::as_str))]
    state: Option<DeliveryState>,

    /// Show at most this many deliveries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Show all delivery attempts of this event instead, oldest first
    #[arg(long, value_name = "EVENT_ID", conflicts_with_all = ["state", "limit"], value_parser = arguments::event_id)]
    event: Option<EventId>,

    #[command(flatten)]
    user: EventUserArgs,

    #[command(flatten)]
    endpoint: EndpointArgs,
}

fn delivery_row(record: &DeliveryRecord) -> [String; 11] {
    output::row![
        format_instant(record.created_at),
        record.event_type,
        format_args!("{}/{}", record.chunk, record.total_chunks),
        record.new_count,
        record.updated_count,
        record.state,
        record.attempts,
        response(record.last_status, record.last_error.as_deref()),
        format_instant(record.next_attempt_at),
        record.event_id,
        record.user_id,
    ]
}

fn attempt_row(record: &AttemptRecord) -> [String; 4] {
    output::row![
        record.attempt,
        format_instant(record.at),
        format_args!("{} ms", record.duration_ms),
        response(record.status, record.error.as_deref()),
    ]
}

pub(super) async fn deliveries(storage: &Storage, args: &DeliveriesArgs) -> anyhow::Result<()> {
    let endpoint = args.endpoint.find(storage).await?;
    if let Some(event) = args.event {
        let user = args.user.find(storage, &endpoint).await?;
        return attempts(storage, (user, endpoint.id), event).await;
    }
    let user = args.user.find_or_all(storage, &endpoint).await?;
    let records = storage
        .deliveries()
        .list(user, endpoint.id, args.state, args.limit)
        .await?;
    let none = match args.state {
        None => "No deliveries yet.".to_owned(),
        Some(state) => format!("No {state} deliveries."),
    };
    let disabled = advice::disabled(&endpoint);
    output::print_list(&records, &none, HEAD, delivery_row, disabled.as_slice())
}

async fn attempts(
    storage: &Storage,
    (user, endpoint): (UserId, EndpointId),
    event: EventId,
) -> anyhow::Result<()> {
    let records = storage
        .deliveries()
        .list_attempts(user, endpoint, event)
        .await?;
    if records.is_empty() && storage.webhook_events().find(user, event).await?.is_none() {
        return Err(event_not_found(endpoint, event));
    }
    let head = ["attempt", "at", "duration", "response"];
    output::print_list(&records, "No attempts yet.", head, attempt_row, &[])
}

/// Describes an endpoint's response: its status, the error, or both.
fn response(status: Option<u16>, error: Option<&str>) -> String {
    match (status, error) {
        (Some(status), Some(REJECTED)) => status.to_string(),
        (Some(status), Some(error)) => format!("{status} ({error})"),
        (Some(status), None) => status.to_string(),
        (None, error) => output::or_dash(error),
    }
}
