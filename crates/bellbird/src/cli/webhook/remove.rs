//! `bellbird webhook remove`: removes an endpoint with its deliveries.

use bellbird_domain::DeliveryState;
use bellbird_management::endpoints;
use bellbird_storage::Storage;
use clap::Args;
use serde_json::json;

use super::super::ask::RemovalArgs;
use super::super::{actor, output};
use super::state::SCANNED_MAX;
use super::{EndpointArgs, details, endpoint_error, user_of};

/// Remove an endpoint with its secret and its delivery log.
///
/// The command shows what it removes, and asks. Pending deliveries to the endpoint are cancelled.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird webhook remove 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    removal: RemovalArgs,

    #[command(flatten)]
    endpoint: EndpointArgs,
}

pub(super) async fn remove(storage: &Storage, args: &RemoveArgs) -> anyhow::Result<()> {
    let (id, endpoint) = (args.endpoint.id, args.endpoint.find(storage).await?);
    let user = user_of(storage, &endpoint).await?;
    let mut cancelled_deliveries = 0;
    for state in [DeliveryState::Pending, DeliveryState::Waiting] {
        let deliveries = storage
            .deliveries()
            .list(endpoint.user_id, endpoint.id, Some(state), SCANNED_MAX)
            .await?;
        cancelled_deliveries += deliveries.len();
    }
    let cancels = output::details(&[(
        "cancels",
        &format_args!("pending deliveries: {cancelled_deliveries}"),
    )]);
    let description = format!("{}\n{cancels}", details(&endpoint, user.as_deref()));
    let plan = json!({"cancelledDeliveries": cancelled_deliveries, "dryRun": true});
    let plan = output::with_members(&endpoint, plan);
    if !args.removal.confirm(&plan, &description)? {
        return Ok(());
    }
    let mut change = actor::begin_change(storage).await?;
    let removed = endpoints::remove(&mut change, id).await;
    removed.map_err(|refusal| endpoint_error(id, refusal))?;
    change.commit().await?;
    output::print_done(&json!({"id": id, "removed": true}), |_| {
        format!("Removed the endpoint {}.", endpoint.url)
    })
}
