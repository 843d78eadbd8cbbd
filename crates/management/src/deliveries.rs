//! Deliveries of webhook events: send them again.

use bellbird_domain::{DeliveryState, EndpointId, EndpointStatus, EventId, EventType, UserId};
use bellbird_storage::writes::{delivery_log, redeliveries};
use bellbird_storage::{AuditAction, Endpoint, ManagementChange, Storage, StorageError};
use jiff::Timestamp;

use crate::change::require_owner;
use crate::endpoints::find;
use crate::refusal::{ENDPOINT, EVENT, Refusal, USER};

/// Whose event is meant at an endpoint. Only one for all users has those of several.
pub fn user_of_event(endpoint: &Endpoint, given: Option<UserId>) -> Result<UserId, Refusal> {
    match (endpoint.user_id, given) {
        (UserId::INSTALLATION, None) => Err(Refusal::UserRequired),
        (UserId::INSTALLATION, Some(user)) => Ok(user),
        (owner, Some(user)) if user != owner => Err(Refusal::NotFound(EVENT)),
        (owner, _) => Ok(owner),
    }
}

/// Makes an event due now, with all attempts again, whether it failed or was delivered before.
pub async fn redeliver(
    change: &mut ManagementChange<'_>,
    id: EndpointId,
    user: Option<UserId>,
    event: EventId,
) -> Result<(), Refusal> {
    let endpoint = find(change, id).await?;
    let (user_id, now) = (user_of_event(&endpoint, user)?, change.now());
    match redeliveries::redeliver(change.tx(), (user_id, id), event, now).await {
        Err(StorageError::NotFound(_)) => {
            return Err(why_not_redelivered(change, user_id, id, event).await?);
        }
        other => other?,
    }
    let action = AuditAction::of_user("delivery.redeliver", user_id)
        .about(event)
        .called(&endpoint.url);
    Ok(change.record(&action).await?)
}

async fn why_not_redelivered(
    change: &mut ManagementChange<'_>,
    user: UserId,
    id: EndpointId,
    event: EventId,
) -> Result<Refusal, Refusal> {
    // It may have been disabled or removed meanwhile.
    let endpoint = find(change, id).await?;
    let Some(delivery) = delivery_log::find(change.tx(), (user, id), event).await? else {
        return Ok(Refusal::NotFound(EVENT));
    };
    Ok(
        match (delivery.event_type, endpoint.status, delivery.state) {
            (EventType::Ping, ..) => Refusal::PingRedelivered,
            (_, EndpointStatus::Disabled, _) => Refusal::EndpointDisabled,
            (_, EndpointStatus::Enabled, DeliveryState::Waiting) => Refusal::EventWaits,
            // Its connection is being removed.
            (_, EndpointStatus::Enabled, _) => Refusal::NotFound(EVENT),
        },
    )
}

/// Whose events [`recover`] makes due: those of this user, or of all at an endpoint for all. Fails
/// at a disabled endpoint.
pub async fn user_to_recover(
    storage: &Storage,
    endpoint: &Endpoint,
    given: Option<UserId>,
) -> Result<UserId, Refusal> {
    let user = match given {
        Some(_) => user_of_event(endpoint, given)?,
        None => endpoint.user_id,
    };
    // Events that are not delivered outlive their user.
    if given.is_some()
        && storage
            .deliveries()
            .list(user, endpoint.id, None, 1)
            .await?
            .is_empty()
        && storage.users().find(user).await?.is_none()
    {
        return Err(Refusal::NotFound(USER));
    }
    match endpoint.status {
        EndpointStatus::Enabled => Ok(user),
        EndpointStatus::Disabled => Err(Refusal::EndpointDisabled),
    }
}

/// Makes the failed events of a user due that were created at `since` or later. Returns how many.
/// Those of all users take a transaction each, before the change: see [`recover_all`].
pub async fn recover(
    change: &mut ManagementChange<'_>,
    endpoint: &Endpoint,
    user: UserId,
    since: Timestamp,
) -> Result<u64, Refusal> {
    require_owner(change, endpoint.user_id, ENDPOINT)?;
    let now = change.now();
    // None: the endpoint was disabled meanwhile, or had no event of this user yet.
    let recovered = redeliveries::recover(change.tx(), (user, endpoint.id), since, now).await?;
    record_recovery(change, endpoint, user).await?;
    Ok(recovered.unwrap_or(0))
}

/// As [`recover`], of all users of an endpoint for all, some 10,000 events at a time. What was
/// recovered is not failed any more, so a repetition finds the rest, until this returns 0.
/// [`record_recovery`] follows.
pub async fn recover_all(
    storage: &Storage,
    endpoint: &Endpoint,
    since: Timestamp,
    now: Timestamp,
) -> Result<u64, StorageError> {
    storage
        .deliveries()
        .recover_all(endpoint.id, since, now)
        .await
}

/// Records what [`recover_all`] has done.
pub async fn record_recovery(
    change: &mut ManagementChange<'_>,
    endpoint: &Endpoint,
    user: UserId,
) -> Result<(), Refusal> {
    require_owner(change, endpoint.user_id, ENDPOINT)?;
    let action = AuditAction::of_user("delivery.recover", user)
        .about(endpoint.id)
        .called(&endpoint.url);
    Ok(change.record(&action).await?)
}
