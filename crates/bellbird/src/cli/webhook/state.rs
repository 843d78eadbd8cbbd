//! `bellbird webhook enable` and `disable`: resume or stop deliveries to an endpoint.

use bellbird_domain::{DeliveryState, EndpointStatus, EventType};
use bellbird_management::endpoints;
use bellbird_storage::{DeliveryRecord, Endpoint, Storage};

use super::super::actor;
use super::super::output::{self, count};
use super::{EndpointArgs, endpoint_error, warn_of_rejections};

/// Last error that storage gives to deliveries which a disabled endpoint misses.
const ENDPOINT_DISABLED: &str = "endpoint disabled";
/// Deliveries that a command searches, newest first.
pub(super) const SCANNED_MAX: u32 = 100_000;

pub(super) async fn enable(storage: &Storage, args: &EndpointArgs) -> anyhow::Result<()> {
    let before = args.find(storage).await?;
    let mut change = actor::begin_change(storage).await?;
    let enabled = endpoints::enable(&mut change, args.id).await;
    enabled.map_err(|refusal| endpoint_error(args.id, refusal))?;
    change.commit().await?;
    let endpoint = args.find(storage).await?;
    let was_enabled = before.status == EndpointStatus::Enabled;
    print(
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
    warn_of_rejections(storage, &endpoint).await
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
        output::format_instant(first)
    ))
}

pub(super) async fn disable(storage: &Storage, args: &EndpointArgs) -> anyhow::Result<()> {
    let mut change = actor::begin_change(storage).await?;
    let disabled = endpoints::disable(&mut change, args.id).await;
    let disabled = disabled.map_err(|refusal| endpoint_error(args.id, refusal))?;
    let Some(cancelled) = disabled else {
        drop(change);
        return print(&args.find(storage).await?, "Already disabled");
    };
    change.commit().await?;
    print(&args.find(storage).await?, "Disabled")?;
    if cancelled > 0 {
        output::note(&format!(
            "{} cancelled: `bellbird webhook enable {}` shows how to recover them",
            count(cancelled, "delivery", "deliveries"),
            args.id
        ));
    }
    Ok(())
}

fn print(endpoint: &Endpoint, outcome: &str) -> anyhow::Result<()> {
    output::print_done(endpoint, |endpoint| format!("{outcome}: {}.", endpoint.url))
}
