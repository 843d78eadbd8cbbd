//! Webhook endpoints of users and of the installation: create, change, enable, disable, rotate the
//! secret, remove.

use bellbird_domain::{
    ActorKind, ApiVersion, EndpointId, EndpointStatus, EventType, TimestampExt as _, UserId,
};
use bellbird_storage::writes::endpoints;
use bellbird_storage::{
    AuditAction, DISABLED_BY_COMMAND, DISABLED_BY_OPERATOR, DISABLED_BY_USER, Endpoint,
    ManagementChange, StorageError,
};
use bellbird_webhooks::delivery::sign::new_secret;
use bellbird_webhooks::endpoint::{
    ENDPOINTS_MAX, EndpointUrl, OLD_SECRET_LIFE, defaults_for, event_types_for,
};
use jiff::Timestamp;
use secrecy::SecretString;

use crate::change::{NOTHING_CHANGED, require_owner};
use crate::refusal::{ENDPOINT, Refusal, USER};

/// An endpoint to create.
#[derive(Debug, Clone, Copy)]
pub struct NewEndpoint<'a> {
    /// [`UserId::INSTALLATION`]: it gets the events of all users.
    pub user_id: UserId,
    /// Checked before the change, because it asks a name server.
    pub url: &'a EndpointUrl,
    /// None: those of the owner by default.
    pub events: Option<&'a [EventType]>,
    /// None: that of the owner by default.
    pub api_version: Option<ApiVersion>,
}

/// A created endpoint.
#[derive(Debug)]
pub struct CreatedEndpoint {
    pub endpoint: Endpoint,
    /// Shown once.
    pub secret: SecretString,
}

/// What to change of an endpoint. None keeps a value.
#[derive(Debug, Clone, Copy, Default)]
pub struct EndpointChange<'a> {
    pub url: Option<&'a EndpointUrl>,
    pub events: Option<&'a [EventType]>,
    pub api_version: Option<ApiVersion>,
    pub enabled: Option<bool>,
}

/// A new secret of an endpoint.
#[derive(Debug)]
pub struct RotatedSecret {
    pub endpoint: Endpoint,
    /// Shown once.
    pub secret: SecretString,
    /// Until then, the old one verifies too. None: it could not be opened and is deleted.
    pub old_expires_at: Option<Timestamp>,
}

/// The endpoint of a user that was made last, so that a form that is sent again makes no other one.
pub async fn newest(
    change: &mut ManagementChange<'_>,
    user: UserId,
) -> Result<Option<EndpointId>, Refusal> {
    Ok(endpoints::find_newest(change.tx(), user).await?)
}

/// Creates an endpoint. There are at most 20 of a user, and 20 for all.
pub async fn create(
    change: &mut ManagementChange<'_>,
    new: NewEndpoint<'_>,
) -> Result<CreatedEndpoint, Refusal> {
    let NewEndpoint {
        user_id,
        url,
        events,
        api_version,
    } = new;
    require_owner(change, user_id, USER)?;
    require_events_of(user_id, events)?;
    let (default_events, default_version) = defaults_for(user_id);
    let (secret, now) = (new_secret(), change.now());
    let new = bellbird_storage::NewEndpoint {
        user_id,
        url: &url.url,
        event_types: events.unwrap_or(default_events),
        api_version: api_version.unwrap_or(default_version),
        secret: &secret,
    };
    let secrets = change.storage().secrets();
    let inserted = endpoints::insert(change.tx(), secrets, &new, ENDPOINTS_MAX, now).await;
    let endpoint = inserted.map_err(|error| match error {
        StorageError::Conflict("endpoints") => Refusal::TooManyEndpoints,
        other => other.into(),
    })?;
    record_action(change, "webhook_endpoint.create", &endpoint).await?;
    Ok(CreatedEndpoint { endpoint, secret })
}

/// Changes an endpoint. Pending deliveries follow, and fail if it is disabled.
pub async fn update(
    change: &mut ManagementChange<'_>,
    id: EndpointId,
    to: EndpointChange<'_>,
) -> Result<Endpoint, Refusal> {
    let before = find(change, id).await?;
    require_events_of(before.user_id, to.events)?;
    let of = (before.user_id, id);
    let values = bellbird_storage::EndpointChange {
        url: to.url.map(|url| url.url.as_str()),
        event_types: to.events,
        api_version: to.api_version,
    };
    require(endpoints::update(change.tx(), of, &values).await?)?;
    match (to.enabled, find(change, id).await?.status) {
        (Some(true), _) => set_enabled(change, &before).await?,
        (Some(false), EndpointStatus::Enabled) => {
            set_disabled(change, &before).await?;
        }
        (Some(false), EndpointStatus::Disabled) | (None, _) => {}
    }
    let endpoint = find(change, id).await?;
    let changed = changed(&before, &endpoint);
    let action = action("webhook_endpoint.update", &endpoint).changing(&changed);
    change.record(&action.about(id)).await?;
    Ok(endpoint)
}

/// What differs, for the audit. A URL may hold a secret.
fn changed(before: &Endpoint, after: &Endpoint) -> String {
    let differences = [
        ("URL", before.url != after.url),
        ("events", before.event_types != after.event_types),
        ("API version", before.api_version != after.api_version),
        ("enabled or disabled", before.status != after.status),
    ];
    let names = differences.into_iter().filter(|(_, is_other)| *is_other);
    let names: Vec<_> = names.map(|(name, _)| name).collect();
    match &*names {
        [] => NOTHING_CHANGED.to_owned(),
        names => names.join(", "),
    }
}

/// Enables an endpoint and clears its failures. Failed deliveries stay failed.
pub async fn enable(change: &mut ManagementChange<'_>, id: EndpointId) -> Result<(), Refusal> {
    let endpoint = find(change, id).await?;
    set_enabled(change, &endpoint).await?;
    record_action(change, "webhook_endpoint.enable", &endpoint).await
}

/// Disables an endpoint. Returns how many deliveries it has cancelled, or None if it is disabled
/// already, and there is nothing to commit.
pub async fn disable(
    change: &mut ManagementChange<'_>,
    id: EndpointId,
) -> Result<Option<u64>, Refusal> {
    let endpoint = find(change, id).await?;
    if endpoint.status == EndpointStatus::Disabled {
        return Ok(None);
    }
    let cancelled = set_disabled(change, &endpoint).await?;
    record_action(change, "webhook_endpoint.disable", &endpoint).await?;
    Ok(Some(cancelled))
}

/// Replaces the secret of an endpoint. For a day, events are also signed with the old one.
pub async fn rotate_secret(
    change: &mut ManagementChange<'_>,
    id: EndpointId,
) -> Result<RotatedSecret, Refusal> {
    let endpoint = find(change, id).await?;
    let (secret, old_until) = (new_secret(), change.now().plus(OLD_SECRET_LIFE));
    let (of, secrets) = ((endpoint.user_id, id), change.storage().secrets());
    let rotated = endpoints::rotate_secret(change.tx(), secrets, of, &secret, old_until).await?;
    let old_expires_at = rotated.ok_or(Refusal::NotFound(ENDPOINT))?.old_expires_at;
    record_action(change, "webhook_endpoint.rotate_secret", &endpoint).await?;
    Ok(RotatedSecret {
        endpoint,
        secret,
        old_expires_at,
    })
}

/// Removes an endpoint with its secret and its deliveries.
pub async fn remove(change: &mut ManagementChange<'_>, id: EndpointId) -> Result<(), Refusal> {
    let endpoint = find(change, id).await?;
    require(endpoints::delete(change.tx(), (endpoint.user_id, id)).await?)?;
    record_action(change, "webhook_endpoint.remove", &endpoint).await
}

/// Records a ping that `webhooks.ping` has sent, before the change: on SQLite, it would hold up
/// every other write while the endpoint responds.
pub async fn record_ping(
    change: &mut ManagementChange<'_>,
    endpoint: &Endpoint,
) -> Result<(), Refusal> {
    require_owner(change, endpoint.user_id, ENDPOINT)?;
    record_action(change, "webhook_endpoint.ping", endpoint).await
}

/// Rejects event types that are for endpoints of all users only.
pub fn require_events_of(owner: UserId, events: Option<&[EventType]>) -> Result<(), Refusal> {
    let is_wrong = |event: &&EventType| !event_types_for(owner).contains(event);
    match events.unwrap_or_default().iter().find(is_wrong) {
        Some(event) => Err(Refusal::ForAllUsersOnly(*event)),
        None => Ok(()),
    }
}

pub(crate) async fn find(
    change: &mut ManagementChange<'_>,
    id: EndpointId,
) -> Result<Endpoint, Refusal> {
    let endpoint = endpoints::find(change.tx(), id)
        .await?
        .ok_or(Refusal::NotFound(ENDPOINT))?;
    require_owner(change, endpoint.user_id, ENDPOINT)?;
    Ok(endpoint)
}

async fn set_enabled(
    change: &mut ManagementChange<'_>,
    endpoint: &Endpoint,
) -> Result<(), Refusal> {
    let now = change.now();
    require(endpoints::enable(change.tx(), (endpoint.user_id, endpoint.id), now).await?)
}

async fn set_disabled(
    change: &mut ManagementChange<'_>,
    endpoint: &Endpoint,
) -> Result<u64, Refusal> {
    let reason = match change.actor().kind {
        ActorKind::Command => DISABLED_BY_COMMAND,
        ActorKind::OperatorKey | ActorKind::Operator => DISABLED_BY_OPERATOR,
        ActorKind::User => DISABLED_BY_USER,
    };
    let (of, now) = ((endpoint.user_id, endpoint.id), change.now());
    let cancelled = endpoints::disable(change.tx(), of, reason, now).await?;
    cancelled.ok_or(Refusal::NotFound(ENDPOINT))
}

fn require(is_found: bool) -> Result<(), Refusal> {
    if is_found {
        Ok(())
    } else {
        Err(Refusal::NotFound(ENDPOINT))
    }
}

async fn record_action(
    change: &mut ManagementChange<'_>,
    name: &'static str,
    endpoint: &Endpoint,
) -> Result<(), Refusal> {
    let action = action(name, endpoint).about(endpoint.id);
    Ok(change.record(&action).await?)
}

fn action<'a>(name: &'static str, endpoint: &'a Endpoint) -> AuditAction<'a> {
    AuditAction::of_user(name, endpoint.user_id).called(&endpoint.url)
}
