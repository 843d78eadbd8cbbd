//! Connections: show, sync, remove.

use bellbird_connections::Connections;
use bellbird_domain::{Connection, ConnectionStatus};
use bellbird_storage::writes::{removals, syncs};
use bellbird_storage::{
    AuditAction, ManagementChange, PendingRemoval, Storage, StorageError, SyncState,
};
use jiff::SignedDuration;

use crate::change::require_owner;
use crate::refusal::{CONNECTION, Refusal};

/// At most one sync that a user requests in this time.
const SYNC_OF_USER_AT_MOST_EVERY: SignedDuration = SignedDuration::from_secs(60);

/// A connection with its jobs.
#[derive(Debug)]
pub struct ConnectionDetails {
    pub connection: Connection,
    /// None: it is being removed.
    pub sync: Option<SyncState>,
    /// None: it is not being removed.
    pub removal: Option<PendingRemoval>,
}

/// Loads what belongs to a connection.
pub async fn details(
    storage: &Storage,
    connection: Connection,
) -> Result<ConnectionDetails, StorageError> {
    let (user, id) = (connection.user_id, connection.id);
    let (sync, removal) = if connection.status == ConnectionStatus::Deleting {
        (None, storage.removals().find(user, id).await?)
    } else {
        (storage.syncs().find(user, id).await?, None)
    };
    Ok(ConnectionDetails {
        connection,
        sync,
        removal,
    })
}

/// Fails if a running service would not sync the connection.
pub fn require_syncable(connections: &Connections, connection: &Connection) -> Result<(), Refusal> {
    if connection.status == ConnectionStatus::Deleting {
        return Err(Refusal::BeingRemoved);
    }
    if !connections.syncs().are_enabled() {
        return Err(Refusal::SyncsAreOff);
    }
    Ok(())
}

/// Requests a sync as soon as possible, for a user at most once a minute. The caller commits and
/// wakes the service.
pub async fn request_sync(
    change: &mut ManagementChange<'_>,
    connection: &Connection,
) -> Result<(), Refusal> {
    require_owner(change, connection.user_id, CONNECTION)?;
    let (of, now) = ((connection.user_id, connection.id), change.now());
    let at_most_every = match change.owner() {
        Some(_) => SYNC_OF_USER_AT_MOST_EVERY,
        None => SignedDuration::ZERO,
    };
    if !syncs::request(change.tx(), of, now, at_most_every).await? {
        return Err(Refusal::NotFound(CONNECTION));
    }
    record_sync(change, connection).await
}

/// Records a sync that [`request_sync`] has requested, or that the caller runs itself after this.
pub async fn record_sync(
    change: &mut ManagementChange<'_>,
    connection: &Connection,
) -> Result<(), Refusal> {
    require_owner(change, connection.user_id, CONNECTION)?;
    record_action(change, "connection.sync", connection).await
}

/// Hides a connection, which the service then removes. The caller commits and wakes the service.
/// Returns false if it is hidden or gone already, and there is nothing to commit.
pub async fn remove(
    change: &mut ManagementChange<'_>,
    connection: &Connection,
) -> Result<bool, Refusal> {
    require_owner(change, connection.user_id, CONNECTION)?;
    let (user, id, now) = (connection.user_id, connection.id, change.now());
    if !removals::hide(change.tx(), "removed", user, id, now).await? {
        return Ok(false);
    }
    record_action(change, "connection.remove", connection).await?;
    Ok(true)
}

async fn record_action(
    change: &mut ManagementChange<'_>,
    name: &'static str,
    connection: &Connection,
) -> Result<(), Refusal> {
    let action = AuditAction::of_user(name, connection.user_id)
        .about(connection.id)
        .called(&connection.institution_name);
    Ok(change.record(&action).await?)
}
