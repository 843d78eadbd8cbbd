//! `bellbird webhook ping`: sends a test event to an endpoint.

use bellbird_domain::EventId;
use bellbird_management::endpoints;
use bellbird_storage::Storage;
use bellbird_webhooks::PingError;
use bellbird_webhooks::delivery::send::Exchange;
use serde::Serialize;

use super::super::actor;
use super::super::output::{self, ErrorView};
use super::{EndpointArgs, REJECTED, endpoint_not_found, warn_of_rejections};
use crate::config::Settings;
use crate::wiring::Wiring;

/// What `--json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PingView {
    event_id: EventId,
    delivered: bool,
    status: Option<u16>,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView>,
}

/// Describes the result, as a predicate of "the endpoint".
fn outcome(
    Exchange {
        status,
        error,
        duration,
        ..
    }: &Exchange,
) -> String {
    let duration_ms = duration.as_millis();
    match (status, error) {
        (Some(status), None | Some(REJECTED)) => {
            format!("responded with {status} after {duration_ms} ms")
        }
        (Some(status), Some(error)) => {
            format!("responded with {status} after {duration_ms} ms ({error})")
        }
        (None, error) => format!(
            "did not respond: {} ({duration_ms} ms)",
            error.unwrap_or("unknown")
        ),
    }
}

pub(super) async fn ping(
    settings: &Settings,
    storage: &Storage,
    args: &EndpointArgs,
) -> anyhow::Result<()> {
    let endpoint = args.find(storage).await?;
    let webhooks = Wiring::new(settings, storage).await?.webhooks()?;
    let pinged = match webhooks.ping(&endpoint).await {
        Err(PingError::NotFound) => return Err(endpoint_not_found(args.id)),
        other => other?,
    };
    let mut change = actor::begin_change(storage).await?;
    endpoints::record_ping(&mut change, &endpoint).await?;
    change.commit().await?;
    warn_of_rejections(storage, &endpoint).await?;
    let exchange = &pinged.exchange;
    let error = exchange.error.map(|error| match exchange.status {
        Some(status) if error == REJECTED => format!("status {status}"),
        _ => error.to_owned(),
    });
    let view = PingView {
        event_id: pinged.event_id,
        delivered: exchange.is_success(),
        status: exchange.status,
        duration_ms: u64::try_from(exchange.duration.as_millis()).unwrap_or(u64::MAX),
        error: ErrorView::of(error.as_slice()),
    };
    let outcome = outcome(exchange);
    if view.delivered || output::is_json() {
        output::print_done(&view, |_| format!("Delivered: the endpoint {outcome}."))?;
    }
    if view.delivered {
        return Ok(());
    }
    output::finish(&[format!("not delivered: the endpoint {outcome}")])
}
