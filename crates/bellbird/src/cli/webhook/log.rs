//! `bellbird webhook deliveries`: shows the delivery log of an endpoint.

use anyhow::bail;
use bellbird_domain::{DeliveryState, EndpointId, EventId, EventType, SyncRunId};
use bellbird_storage::{AttemptRecord, DeliveryRecord, Endpoint, Storage};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use jiff::Timestamp;
use serde::Serialize;

use super::super::output::{self, JsonFlag};
use super::{event_not_found, find};

const HEAD: [&str; 10] =
    ["created", "type", "chunk", "new", "updated", "state", "attempts", "answer", "next attempt", "event id"];

/// Show the delivery log of an endpoint, newest event first, including pending deliveries.
///
/// The log covers 90 days. It does not contain event bodies, because Bellbird does not store them.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird webhook deliveries 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f --state failed")]
pub(in super::super) struct DeliveriesArgs {
    /// Id of the endpoint, as `webhook list` shows it
    id: EndpointId,

    /// Show only deliveries in this state
    #[arg(long, value_parser = state_parser())]
    state: Option<DeliveryState>,

    /// Show at most this many deliveries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Show all delivery attempts of this event instead, oldest first
    #[arg(long, value_name = "EVENT_ID", conflicts_with_all = ["state", "limit"])]
    event: Option<EventId>,

    #[command(flatten)]
    format: JsonFlag,
}

fn state_parser() -> impl clap::builder::TypedValueParser<Value = DeliveryState> {
    PossibleValuesParser::new(DeliveryState::ALL.iter().map(|state| state.as_str()))
        .try_map(|text| text.parse::<DeliveryState>())
}

/// A delivery, as `deliveries --json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeliveryView<'a> {
    event_id: EventId,
    #[serde(rename = "type")]
    event_type: EventType,
    sync_run_id: SyncRunId,
    chunk: u32,
    total_chunks: u32,
    new_count: u32,
    updated_count: u32,
    created_at: Timestamp,
    state: DeliveryState,
    attempts: u32,
    next_attempt_at: Option<Timestamp>,
    last_attempt_at: Option<Timestamp>,
    last_status: Option<u16>,
    last_error: Option<&'a str>,
    last_duration_ms: Option<u32>,
    ended_at: Option<Timestamp>,
}

impl<'a> From<&'a DeliveryRecord> for DeliveryView<'a> {
    fn from(record: &'a DeliveryRecord) -> Self {
        Self {
            event_id: record.event_id,
            event_type: record.event_type,
            sync_run_id: record.sync_run_id,
            chunk: record.chunk,
            total_chunks: record.total_chunks,
            new_count: record.new_count,
            updated_count: record.updated_count,
            created_at: record.created_at,
            state: record.state,
            attempts: record.attempts,
            next_attempt_at: record.next_attempt_at,
            last_attempt_at: record.last_attempt_at,
            last_status: record.last_status,
            last_error: record.last_error.as_deref(),
            last_duration_ms: record.last_duration_ms,
            ended_at: record.ended_at,
        }
    }
}

impl DeliveryView<'_> {
    fn row(&self) -> [String; 10] {
        [
            output::format_instant(Some(self.created_at)),
            self.event_type.to_string(),
            format!("{}/{}", self.chunk, self.total_chunks),
            self.new_count.to_string(),
            self.updated_count.to_string(),
            self.state.to_string(),
            self.attempts.to_string(),
            answer(self.last_status, self.last_error),
            output::format_instant(self.next_attempt_at),
            self.event_id.to_string(),
        ]
    }
}

/// An attempt, as `deliveries --event ... --json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AttemptView<'a> {
    attempt: u32,
    at: Timestamp,
    duration_ms: u32,
    status: Option<u16>,
    error: Option<&'a str>,
}

impl<'a> From<&'a AttemptRecord> for AttemptView<'a> {
    fn from(record: &'a AttemptRecord) -> Self {
        let AttemptRecord { attempt, at, duration_ms, status, .. } = *record;
        Self { attempt, at, duration_ms, status, error: record.error.as_deref() }
    }
}

impl AttemptView<'_> {
    fn row(&self) -> [String; 4] {
        let duration = format!("{} ms", self.duration_ms);
        [self.attempt.to_string(), output::format_instant(Some(self.at)), duration, answer(self.status, self.error)]
    }
}

pub(super) async fn deliveries(storage: &Storage, args: &DeliveriesArgs) -> anyhow::Result<()> {
    let endpoint = find(storage, args.id).await?;
    if let Some(event) = args.event {
        return attempts(storage, args.format, &endpoint, event).await;
    }
    let records = storage.list_deliveries(endpoint.user_id, endpoint.id, args.state, args.limit).await?;
    let views: Vec<_> = records.iter().map(DeliveryView::from).collect();
    output::print(args.format, &views, |views| match (views.is_empty(), args.state) {
        (true, None) => "No deliveries yet.".to_owned(),
        (true, Some(state)) => format!("No {state} deliveries."),
        (false, _) => output::table(HEAD, views.iter().map(DeliveryView::row)),
    })
}

async fn attempts(storage: &Storage, format: JsonFlag, endpoint: &Endpoint, event: EventId) -> anyhow::Result<()> {
    let records = storage.list_attempts(endpoint.user_id, endpoint.id, event).await?;
    if records.is_empty() && storage.find_webhook_event(endpoint.user_id, event).await?.is_none() {
        bail!(event_not_found(endpoint.id, event));
    }
    let views: Vec<_> = records.iter().map(AttemptView::from).collect();
    output::print(format, &views, |views| {
        if views.is_empty() {
            return "No attempts yet.".to_owned();
        }
        output::table(["attempt", "at", "duration", "answer"], views.iter().map(AttemptView::row))
    })
}

/// Describes an endpoint's response: its status, the error, or both.
fn answer(status: Option<u16>, error: Option<&str>) -> String {
    match (status, error) {
        (Some(status), Some(error)) => format!("{status} ({error})"),
        (Some(status), None) => status.to_string(),
        (None, error) => error.unwrap_or("-").to_owned(),
    }
}
