//! Who runs a command, for the audit.

use bellbird_domain::Actor;
use bellbird_management::ManagementChange;
use bellbird_storage::{AuditAction, Storage, StorageError};
use jiff::Timestamp;

use crate::config::place;

/// The Unix user of this process.
pub(super) fn of_command() -> Actor {
    let uid = rustix::process::getuid().as_raw();
    let name = place::user_name(uid);
    Actor::command(&name.unwrap_or_else(|| format!("uid {uid}")))
}

/// Begins a change by this command.
pub(super) async fn begin_change(storage: &Storage) -> Result<ManagementChange<'_>, StorageError> {
    storage.begin_change(of_command(), Timestamp::now()).await
}

/// Records what this command did in several transactions, or is about to do.
pub(super) async fn record(
    storage: &Storage,
    action: &AuditAction<'_>,
) -> Result<(), StorageError> {
    let mut change = begin_change(storage).await?;
    change.record(action).await?;
    change.commit().await
}
