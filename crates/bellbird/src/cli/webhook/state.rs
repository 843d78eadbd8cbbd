//! `bellbird webhook enable` and `disable`.

use bellbird_domain::{DeliveryState, EndpointId, EndpointStatus, EventType};
use bellbird_storage::{DeliveryRecord, Endpoint, Storage};
use clap::Args;
use jiff::Timestamp;

use super::super::output::{self, JsonFlag};
use super::{EndpointView, deliveries, find, gone};

/// What the list says of an endpoint that was disabled here.
const BY_COMMAND: &str = "by command";
/// What the log says of a delivery that was given up because of that.
const GIVEN_UP: &str = "endpoint disabled";
/// Failed deliveries that are looked through for those, the newest ones.
pub(super) const LOOKED_THROUGH_MAX: u32 = 100_000;

/// Send events to an endpoint again that was disabled.
///
/// What came while it was disabled has failed, and is not sent by itself: the command says how much that is, and how to
/// have it sent.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird webhook enable 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(in super::super) struct EnableArgs {
    /// Id of the endpoint, as `webhook list` shows it
    id: EndpointId,

    #[command(flatten)]
    format: JsonFlag,
}

/// Send no more events to an endpoint, until it is enabled again.
///
/// What is still to be delivered is given up. That, and what comes later, can be sent once the endpoint is enabled again:
/// `bellbird webhook recover`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird webhook disable 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(in super::super) struct DisableArgs {
    /// Id of the endpoint, as `webhook list` shows it
    id: EndpointId,

    #[command(flatten)]
    format: JsonFlag,
}

pub(super) async fn enable(storage: &Storage, args: &EnableArgs) -> anyhow::Result<()> {
    let before = find(storage, args.id).await?;
    if !storage.enable_endpoint(before.user_id, before.id).await? {
        return Err(gone(args.id));
    }
    let endpoint = find(storage, args.id).await?;
    let was_enabled = before.status == EndpointStatus::Enabled;
    print(args.format, &endpoint, if was_enabled { "It was enabled already" } else { "Enabled" })?;
    let failed = Some(DeliveryState::Failed);
    let failed = storage.list_deliveries(endpoint.user_id, endpoint.id, failed, LOOKED_THROUGH_MAX).await?;
    if let Some(remark) = missed(&before, &failed) {
        output::note(&remark);
    }
    Ok(())
}

/// How many of these deliveries failed since the endpoint has taken nothing, or because it was disabled, and how they are
/// sent; nothing if none did.
fn missed(before: &Endpoint, failed: &[DeliveryRecord]) -> Option<String> {
    let id = before.id;
    let since_then = |one: &DeliveryRecord| {
        before.failing_since.is_some_and(|since| one.last_attempt_at.is_some_and(|last| last >= since))
    };
    let given_up = |one: &&DeliveryRecord| {
        one.event_type != EventType::Ping && (one.last_problem.as_deref() == Some(GIVEN_UP) || since_then(one))
    };
    let missed: Vec<_> = failed.iter().filter(given_up).collect();
    let first = missed.iter().map(|one| one.created_at).min()?;
    let number = u64::try_from(missed.len()).unwrap_or(u64::MAX);
    Some(format!(
        "{} failed meanwhile: `bellbird webhook recover {id} --since {}` sends what failed since then",
        deliveries(number),
        output::when(Some(first))
    ))
}

pub(super) async fn disable(storage: &Storage, args: &DisableArgs) -> anyhow::Result<()> {
    let before = find(storage, args.id).await?;
    if before.status == EndpointStatus::Disabled {
        return print(args.format, &before, "It was disabled already");
    }
    let disabled = storage.disable_endpoint(before.user_id, before.id, BY_COMMAND, Timestamp::now()).await?;
    let given_up = disabled.ok_or_else(|| gone(args.id))?;
    print(args.format, &find(storage, args.id).await?, "Disabled")?;
    if given_up > 0 {
        output::note(&format!(
            "{} given up: `bellbird webhook enable {}` tells how to have them sent",
            deliveries(given_up),
            args.id
        ));
    }
    Ok(())
}

fn print(format: JsonFlag, endpoint: &Endpoint, what: &str) -> anyhow::Result<()> {
    output::print(format, &EndpointView::from(endpoint), |view| format!("{what}: {}.", view.url))
}
