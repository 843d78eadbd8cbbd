//! Who runs a command, for the audit.

use bellbird_domain::Actor;
use bellbird_management::ManagementChange;
use bellbird_storage::{AuditAction, Storage, StorageError};
use jiff::Timestamp;

/// The Unix user of this process.
pub(super) fn of_command() -> Actor {
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut columns = line.split(':');
        let name = columns.next()?;
        (columns.nth(1)? == uid).then_some(name)
    });
    Actor::command(name.unwrap_or(&format!("uid {uid}")))
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
