//! `bellbird webhook enable` and `disable`: resume or stop deliveries to an endpoint.

use bellbird_domain::{DeliveryState, EndpointStatus, EventType};
use bellbird_storage::{DeliveryRecord, Endpoint, Storage};
use jiff::Timestamp;

use super::super::actor;
use super::super::output::{self, JsonFlag, count};
use super::{EndpointArgs, endpoint_not_found, find, warn_of_rejections};

/// Disabled reason of an endpoint that this command disabled.
const BY_COMMAND: &str = "by command";
/// Last error that storage gives to deliveries which a disabled endpoint misses.
const ENDPOINT_DISABLED: &str = "endpoint disabled";
/// Deliveries that a command searches, newest first.
pub(super) const SCANNED_MAX: u32 = 100_000;

pub(super) async fn enable(storage: &Storage, args: &EndpointArgs) -> anyhow::Result<()> {
    let before = find(storage, args.id).await?;
    let mut change = actor::begin_change(storage, Timestamp::now()).await?;
    if !change.enable_endpoint((before.user_id, before.id)).await? {
        return Err(endpoint_not_found(args.id));
    }
    actor::commit(
        change,
        "webhook_endpoint.enable",
        before.user_id,
        Some(before.id.to_string()),
    )
    .await?;
    let endpoint = find(storage, args.id).await?;
    let was_enabled = before.status == EndpointStatus::Enabled;
    print(
        args.format,
        &endpoint,
        if was_enabled {
            "Already enabled"
        } else {
            "Enabled"
        },
    )?;
    let failed = Some(DeliveryState::Failed);
    let failed = storage
        .deliveries()
        .list(endpoint.user_id, endpoint.id, failed, SCANNED_MAX)
        .await?;
    if let Some(remark) = missed_remark(&before, &failed) {
        output::note(&remark);
    }
    warn_of_rejections(storage, endpoint.id, &endpoint.url).await
}

/// Counts the deliveries that failed while the endpoint was failing or disabled, and names the
/// command that recovers them. `None` if there are none.
fn missed_remark(before: &Endpoint, failed: &[DeliveryRecord]) -> Option<String> {
    let id = before.id;
    let while_failing = |one: &DeliveryRecord| {
        before
            .failing_since
            .is_some_and(|since| one.last_attempt_at.is_some_and(|last| last >= since))
    };
    let while_disabled =
        |one: &DeliveryRecord| one.last_error.as_deref() == Some(ENDPOINT_DISABLED);
    let is_missed = |one: &&DeliveryRecord| {
        one.event_type != EventType::Ping && (while_disabled(one) || while_failing(one))
    };
    let missed: Vec<_> = failed.iter().filter(is_missed).collect();
    let first = missed.iter().map(|one| one.created_at).min()?;
    let number = u64::try_from(missed.len()).unwrap_or(u64::MAX);
    Some(format!(
        "{} failed meanwhile. To recover them, run `bellbird webhook recover {id} --since {}`",
        count(number, "delivery", "deliveries"),
        output::format_instant(Some(first))
    ))
}

pub(super) async fn disable(storage: &Storage, args: &EndpointArgs) -> anyhow::Result<()> {
    let before = find(storage, args.id).await?;
    if before.status == EndpointStatus::Disabled {
        return print(args.format, &before, "Already disabled");
    }
    let mut change = actor::begin_change(storage, Timestamp::now()).await?;
    let disabled = change
        .disable_endpoint((before.user_id, before.id), BY_COMMAND)
        .await?;
    let cancelled = disabled.ok_or_else(|| endpoint_not_found(args.id))?;
    actor::commit(
        change,
        "webhook_endpoint.disable",
        before.user_id,
        Some(before.id.to_string()),
    )
    .await?;
    print(args.format, &find(storage, args.id).await?, "Disabled")?;
    if cancelled > 0 {
        output::note(&format!(
            "{} cancelled: `bellbird webhook enable {}` shows how to recover them",
            count(cancelled, "delivery", "deliveries"),
            args.id
        ));
    }
    Ok(())
}

fn print(format: JsonFlag, endpoint: &Endpoint, outcome: &str) -> anyhow::Result<()> {
    output::print(format, endpoint, |endpoint| {
        format!("{outcome}: {}.", endpoint.url)
    })
}
