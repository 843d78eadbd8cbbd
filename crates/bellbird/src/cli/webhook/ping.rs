//! `bellbird webhook ping`.

use std::process::ExitCode;

use bellbird_domain::{EndpointId, EventId};
use bellbird_storage::Storage;
use bellbird_webhooks::{PingError, Pinged};
use clap::Args;
use serde::Serialize;

use super::super::output::{self, JsonFlag};
use super::{find, gone};
use crate::config::Settings;
use crate::wiring;

/// Send an event without rows now, to see that an endpoint answers.
///
/// Its type is `endpoint.ping`. It is sent by this command, once, to a disabled endpoint too, and changes nothing but the
/// log of deliveries. Exit status 1 if the endpoint does not take it.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird webhook ping 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(in super::super) struct PingArgs {
    /// Id of the endpoint, as `webhook list` shows it
    id: EndpointId,

    #[command(flatten)]
    format: JsonFlag,
}

/// What `--json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PingView {
    event_id: EventId,
    delivered: bool,
    status: Option<u16>,
    duration_ms: u64,
    problem: Option<&'static str>,
}

impl From<&Pinged> for PingView {
    fn from(pinged: &Pinged) -> Self {
        let exchange = &pinged.exchange;
        Self {
            event_id: pinged.event_id,
            delivered: exchange.is_success(),
            status: exchange.status,
            duration_ms: u64::try_from(exchange.duration.as_millis()).unwrap_or(u64::MAX),
            problem: exchange.problem,
        }
    }
}

impl PingView {
    /// What the endpoint did, in words.
    fn what(&self) -> String {
        let Self { duration_ms, .. } = self;
        match (self.status, self.problem) {
            (Some(status), None) => format!("answered {status} after {duration_ms} ms"),
            (Some(status), Some(problem)) => format!("answered {status} after {duration_ms} ms ({problem})"),
            (None, problem) => format!("did not answer: {} ({duration_ms} ms)", problem.unwrap_or("unknown")),
        }
    }
}

pub(super) async fn ping(settings: &Settings, storage: &Storage, args: &PingArgs) -> anyhow::Result<ExitCode> {
    let endpoint = find(storage, args.id).await?;
    let providers = wiring::providers(settings)?;
    let webhooks = wiring::webhooks(settings, storage, &providers, wiring::outbox(settings))?;
    let pinged = match webhooks.ping(&endpoint).await {
        Err(PingError::NotFound) => return Err(gone(args.id)),
        other => other?,
    };
    let view = PingView::from(&pinged);
    if view.delivered {
        output::print(args.format, &view, |view| format!("Delivered: the endpoint {}.", view.what()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.format.json {
        output::print(args.format, &view, |_| String::new())?;
    }
    output::note(&format!("error: not delivered: the endpoint {}", view.what()));
    Ok(ExitCode::FAILURE)
}
