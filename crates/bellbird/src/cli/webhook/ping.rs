//! `bellbird webhook ping`: sends a test event to an endpoint.

use bellbird_management::endpoints;
use bellbird_storage::Storage;
use bellbird_webhooks::PingError;
use bellbird_webhooks::delivery::send::Exchange;
use serde_json::json;

use super::super::actor;
use super::super::output::{self, ErrorView};
use super::{EndpointArgs, REJECTED, endpoint_not_found, warn_of_rejections};
use crate::config::Settings;
use crate::wiring::Wiring;

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
    let (is_delivered, outcome) = (exchange.is_success(), outcome(exchange));
    let error = exchange.error.map(|error| match exchange.status {
        Some(status) if error == REJECTED => format!("status {status}"),
        _ => error.to_owned(),
    });
    let mut view = json!({
        "eventId": pinged.event_id,
        "delivered": is_delivered,
        "status": exchange.status,
        "durationMs": u64::try_from(exchange.duration.as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(error) = ErrorView::of(error.as_slice()) {
        view["error"] = json!(error);
    }
    if is_delivered || output::is_json() {
        output::print_done(&view, |_| format!("Delivered: the endpoint {outcome}."))?;
    }
    if is_delivered {
        return Ok(());
    }
    output::finish(&[format!("not delivered: the endpoint {outcome}")])
}
