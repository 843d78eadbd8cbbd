//! `bellbird webhook ping`: sends a test event to an endpoint.

use std::process::ExitCode;

use bellbird_domain::EventId;
use bellbird_storage::Storage;
use bellbird_webhooks::{PingError, PingOutcome};
use serde::Serialize;

use super::super::output::{self, ErrorView};
use super::{EndpointArgs, endpoint_not_found, find, warn_of_rejections};
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
    #[serde(skip)]
    reason: Option<&'static str>,
}

impl From<&PingOutcome> for PingView {
    fn from(pinged: &PingOutcome) -> Self {
        let exchange = &pinged.exchange;
        Self {
            event_id: pinged.event_id,
            delivered: exchange.is_success(),
            status: exchange.status,
            duration_ms: u64::try_from(exchange.duration.as_millis()).unwrap_or(u64::MAX),
            error: ErrorView::of(exchange.error.map(str::to_owned).as_slice()),
            reason: exchange.error,
        }
    }
}

impl PingView {
    /// Describes the result, as a predicate of "the endpoint".
    fn outcome(&self) -> String {
        let Self { duration_ms, .. } = self;
        match (self.status, self.reason) {
            (Some(status), None) => format!("responded with {status} after {duration_ms} ms"),
            (Some(status), Some(error)) => format!("responded with {status} after {duration_ms} ms ({error})"),
            (None, error) => format!("did not respond: {} ({duration_ms} ms)", error.unwrap_or("unknown")),
        }
    }
}

pub(super) async fn ping(settings: &Settings, storage: &Storage, args: &EndpointArgs) -> anyhow::Result<ExitCode> {
    let endpoint = find(storage, args.id).await?;
    let webhooks = Wiring::new(settings, storage)?.webhooks()?;
    let pinged = match webhooks.ping(&endpoint).await {
        Err(PingError::NotFound) => return Err(endpoint_not_found(args.id)),
        other => other?,
    };
    warn_of_rejections(storage, endpoint.id, &endpoint.url).await?;
    let view = PingView::from(&pinged);
    if view.delivered {
        output::print(args.format, &view, |view| format!("Delivered: the endpoint {}.", view.outcome()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.format.json {
        output::print(args.format, &view, |_| String::new())?;
    }
    output::note(&format!("error: not delivered: the endpoint {}", view.outcome()));
    Ok(ExitCode::FAILURE)
}
