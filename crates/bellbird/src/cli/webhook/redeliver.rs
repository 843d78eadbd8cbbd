//! `bellbird webhook redeliver` and `recover`: queue failed or delivered events for another
//! delivery.

use anyhow::anyhow;
use bellbird_domain::{
    DeliveryState, EndpointId, EndpointStatus, EventId, TimestampExt as _, UserId,
};
use bellbird_management::{Refusal, deliveries, refusal};
use bellbird_storage::{Endpoint, Storage};
use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::super::output::{self, count};
use super::super::{actor, arguments};
use super::{EndpointArgs, EventUserArgs, endpoint_error, event_not_found};

/// Deliver an event to an endpoint again, whether it failed or was delivered before.
///
/// A running service sends the event with the same id and with the provider's current rows. It
/// retries the event as often as a new one.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird webhook redeliver 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f \\
    0198c7e3-0f4f-7d53-a1b2-4c1d2e3f7b1c")]
pub(crate) struct RedeliverArgs {
    #[command(flatten)]
    endpoint: EndpointArgs,

    /// Id of the event, as `webhook deliveries` shows it
    #[arg(value_parser = arguments::event_id)]
    event: EventId,

    #[command(flatten)]
    user: EventUserArgs,
}

/// Deliver all failed events of an endpoint again.
///
/// A running service sends the events with the same ids and with the provider's current rows.
/// Delivered and pending events are not affected.
#[derive(Args)]
#[command(after_long_help = "Examples:
  bellbird webhook recover 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f --since 7d
  bellbird webhook recover 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f --since 2026-11-20T09:30:00Z")]
pub(crate) struct RecoverArgs {
    /// Oldest event to deliver: an instant such as 2026-11-20T09:30:00Z, or an age such as 24h or
    /// 7d
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Timestamp,

    #[command(flatten)]
    user: EventUserArgs,

    #[command(flatten)]
    endpoint: EndpointArgs,
}

fn since(text: &str) -> Result<Timestamp, String> {
    since_at(text, Timestamp::now())
}

fn since_at(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    text.parse::<Timestamp>()
        .or_else(|_| arguments::duration(text).map(|age| now.minus(age)))
        .map_err(|_| {
            "must be an instant such as 2026-11-20T09:30:00Z, or an age such as 30s, 15m, 24h or 7d"
                .to_owned()
        })
}

pub(super) async fn redeliver(storage: &Storage, args: &RedeliverArgs) -> anyhow::Result<()> {
    let endpoint = args.endpoint.find(storage).await?;
    let (user, event) = (args.user.find(storage, &endpoint).await?, args.event);
    let mut change = actor::begin_change(storage).await?;
    deliveries::redeliver(&mut change, endpoint.id, Some(user), event)
        .await
        .map_err(|refusal| match refusal {
            Refusal::NotFound(refusal::EVENT) => event_not_found(endpoint.id, event),
            Refusal::PingRedelivered => anyhow!(
                "a ping cannot be redelivered: send another with `bellbird webhook ping {}`",
                endpoint.id
            ),
            Refusal::EndpointDisabled => disabled(endpoint.id),
            Refusal::EventWaits => anyhow!(
                "the event waits for an earlier event of the same sync: redeliver that one instead"
            ),
            other => endpoint_error(endpoint.id, other),
        })?;
    change.commit().await?;
    let view =
        json!({"eventId": event, "endpointId": endpoint.id, "state": DeliveryState::Pending});
    output::print_done(&view, |_| {
        "Queued for redelivery. A running service sends it now.".to_owned()
    })
}

pub(super) async fn recover(storage: &Storage, args: &RecoverArgs) -> anyhow::Result<()> {
    let endpoint = args.endpoint.find(storage).await?;
    let user = args.user.find_or_all(storage, &endpoint).await?;
    check_enabled(&endpoint)?;
    let (now, since) = (Timestamp::now(), args.since);
    let mut recovered = 0;
    if user == UserId::INSTALLATION {
        while let more @ 1.. = deliveries::recover_all(storage, &endpoint, since, now).await? {
            recovered += more;
        }
    }
    let mut change = actor::begin_change(storage).await?;
    if user == UserId::INSTALLATION {
        deliveries::record_recovery(&mut change, &endpoint, user).await?;
    } else {
        recovered = deliveries::recover(&mut change, &endpoint, user, since).await?;
    }
    if recovered > 0 {
        change.commit().await?;
    } else {
        // Nothing to commit, so the audit has no row either.
        drop(change);
        // The endpoint may have been disabled meanwhile.
        check_enabled(&args.endpoint.find(storage).await?)?;
    }
    let view = json!({"endpointId": endpoint.id, "recovered": recovered});
    output::print_done(&view, |_| match recovered {
        0 => format!(
            "Nothing to recover since {}.",
            output::format_instant(since)
        ),
        number => format!(
            "Queued {} for redelivery. A running service sends them now.",
            count(number, "delivery", "deliveries")
        ),
    })
}

fn check_enabled(endpoint: &Endpoint) -> anyhow::Result<()> {
    match endpoint.status {
        EndpointStatus::Enabled => Ok(()),
        EndpointStatus::Disabled => Err(disabled(endpoint.id)),
    }
}

fn disabled(id: EndpointId) -> anyhow::Error {
    anyhow!("the endpoint is disabled: enable it first with `bellbird webhook enable {id}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_accepts_an_instant_or_an_age() {
        let now: Timestamp = "2026-11-20T09:30:00Z".parse().unwrap();
        for (text, expected) in [
            ("2026-11-01T00:00:00Z", "2026-11-01T00:00:00Z"),
            ("2026-11-01T11:00:00.5+11:00", "2026-11-01T00:00:00.5Z"),
            ("24h", "2026-11-19T09:30:00Z"),
            ("7d", "2026-11-13T09:30:00Z"),
            ("0s", "2026-11-20T09:30:00Z"),
        ] {
            assert_eq!(since_at(text, now), Ok(expected.parse().unwrap()), "{text}");
        }
        for wrong in [
            "",
            "yesterday",
            "2026-11-01",
            "2026-11-01T00:00:00",
            "7",
            "-7d",
            "1w",
            "36501d",
        ] {
            assert!(since_at(wrong, now).is_err(), "{wrong}");
        }
    }
}
