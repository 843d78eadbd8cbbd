//! Deletes old webhook events, and finishes changes of the installation's endpoints that were interrupted.

use bellbird_storage::{Storage, StorageError};
use jiff::{SignedDuration, Timestamp};

/// How long events are kept. Until then, they can be redelivered.
const EVENT_RETENTION: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Number of events deleted in one transaction.
const BATCH: u32 = 500;

/// Deletes events after their retention, with their deliveries, and secrets whose rotation has ended.
pub async fn delete_outdated(storage: &Storage, now: Timestamp) -> Result<(), StorageError> {
    let before = now.saturating_sub(EVENT_RETENTION).unwrap_or(Timestamp::MIN);
    storage.endpoints().align_queues(now).await?;
    storage.endpoints().delete_old_secrets(now).await?;
    while storage.webhook_events().delete_outdated(before, BATCH).await? >= BATCH.into() {}
    Ok(())
}
