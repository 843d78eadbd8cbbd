//! `bellbird webhook deliveries`: shows the delivery log of an endpoint.

use bellbird_domain::{DeliveryState, EndpointId, EventId};
use bellbird_storage::{AttemptRecord, DeliveryRecord, Endpoint, Storage};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use super::super::arguments;
use super::super::output::{self, JsonFlag};
use super::{advice, event_not_found, find};

const HEAD: [&str; 10] =
    ["created", "type", "chunk", "new", "updated", "state", "attempts", "response", "next attempt", "event id"];

/// Show the delivery log of an endpoint, newest event first, including pending deliveries.
///
/// The log covers 90 days. It does not contain event bodies, because Bellbird does not store them.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird webhook deliveries 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f --state failed")]
pub(in super::super) struct DeliveriesArgs {
    /// Id of the endpoint, as `webhook list` shows it
    #[arg(value_parser = arguments::endpoint_id)]
    id: EndpointId,

    /// Show only deliveries in this state
    #[arg(long, value_parser = state_parser())]
    state: Option<DeliveryState>,

    /// Show at most this many deliveries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Show all delivery attempts of this event instead, oldest first
    #[arg(long, value_name = "EVENT_ID", conflicts_with_all = ["state", "limit"], value_parser = arguments::event_id)]
    event: Option<EventId>,

    #[command(flatten)]
    format: JsonFlag,
}

fn state_parser() -> impl clap::builder::TypedValueParser<Value = DeliveryState> {
    PossibleValuesParser::new(DeliveryState::ALL.iter().map(|state| state.as_str()))
        .try_map(|text| text.parse::<DeliveryState>())
}

fn delivery_row(record: &DeliveryRecord) -> [String; 10] {
    [
        output::format_instant(Some(record.created_at)),
        record.event_type.to_string(),
        format!("{}/{}", record.chunk, record.total_chunks),
        record.new_count.to_string(),
        record.updated_count.to_string(),
        record.state.to_string(),
        record.attempts.to_string(),
        response(record.last_status, record.last_error.as_deref()),
        output::format_instant(record.next_attempt_at),
        record.event_id.to_string(),
    ]
}

fn attempt_row(record: &AttemptRecord) -> [String; 4] {
    let (at, duration) = (output::format_instant(Some(record.at)), format!("{} ms", record.duration_ms));
    [record.attempt.to_string(), at, duration, response(record.status, record.error.as_deref())]
}

pub(super) async fn deliveries(storage: &Storage, args: &DeliveriesArgs) -> anyhow::Result<()> {
    let endpoint = find(storage, args.id).await?;
    if let Some(event) = args.event {
        return attempts(storage, args.format, &endpoint, event).await;
    }
    let records = storage.deliveries().list(endpoint.user_id, endpoint.id, args.state, args.limit).await?;
    output::print(args.format, &records, |records| {
        let text = match (records.is_empty(), args.state) {
            (true, None) => "No deliveries yet.".to_owned(),
            (true, Some(state)) => format!("No {state} deliveries."),
            (false, _) => output::table(HEAD, records.iter().map(delivery_row)),
        };
        [Some(text), advice::disabled(&endpoint)].into_iter().flatten().collect::<Vec<_>>().join("\n\n")
    })
}

async fn attempts(storage: &Storage, format: JsonFlag, endpoint: &Endpoint, event: EventId) -> anyhow::Result<()> {
    let records = storage.deliveries().list_attempts(endpoint.user_id, endpoint.id, event).await?;
    if records.is_empty() && storage.webhook_events().find(endpoint.user_id, event).await?.is_none() {
        return Err(event_not_found(endpoint.id, event));
    }
    output::print(format, &records, |records| {
        if records.is_empty() {
            return "No attempts yet.".to_owned();
        }
        output::table(["attempt", "at", "duration", "response"], records.iter().map(attempt_row))
    })
}

/// Describes an endpoint's response: its status, the error, or both.
fn response(status: Option<u16>, error: Option<&str>) -> String {
    match (status, error) {
        (Some(status), Some(error)) => format!("{status} ({error})"),
        (Some(status), None) => status.to_string(),
        (None, error) => error.unwrap_or("-").to_owned(),
    }
}
