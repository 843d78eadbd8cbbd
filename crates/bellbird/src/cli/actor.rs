//! Who runs a command, for the audit. A command changes something with its row in the audit, in one
//! transaction where the storage has one for it.

use bellbird_domain::{Actor, UserId};
use bellbird_storage::{OperatorAction, OperatorChange, Storage, StorageError};
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
pub(super) async fn begin_change(
    storage: &Storage,
    now: Timestamp,
) -> Result<OperatorChange<'_>, StorageError> {
    storage.begin_change_by(of_command(), now).await
}

/// Commits a change of a user by this command.
pub(super) async fn commit(
    change: OperatorChange<'_>,
    name: &'static str,
    user_id: UserId,
    subject: Option<String>,
) -> Result<(), StorageError> {
    change
        .commit_alone(&OperatorAction {
            name,
            user_id,
            subject: subject.as_deref(),
        })
        .await
}

/// Records what this command did in several transactions, or is about to do.
pub(super) async fn record(
    storage: &Storage,
    name: &'static str,
    user_id: UserId,
    subject: Option<String>,
) -> Result<(), StorageError> {
    commit(
        begin_change(storage, Timestamp::now()).await?,
        name,
        user_id,
        subject,
    )
    .await
}
