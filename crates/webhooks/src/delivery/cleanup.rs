//! Deletes old webhook events, and what removed endpoints and users have left.

use bellbird_storage::{Storage, StorageError};
use jiff::{SignedDuration, Timestamp};

/// How long events are kept that were delivered to all endpoints. Until then, they can be
/// redelivered.
const DELIVERED_RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How long other events are kept. Until then, they can be recovered.
const EVENT_RETENTION: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Number of events that one transaction looks at.
const BATCH: u32 = 500;

/// Deletes events after their retention, with their deliveries, and secrets whose rotation has
/// ended.
pub async fn delete_outdated(storage: &Storage, now: Timestamp) -> Result<(), StorageError> {
    let before = |retention| now.saturating_sub(retention).unwrap_or(Timestamp::MIN);
    storage.endpoints().delete_old_secrets(now).await?;
    let (delivered_before, before) = (before(DELIVERED_RETENTION), before(EVENT_RETENTION));
    storage
        .webhook_events()
        .delete_outdated(delivered_before, before, BATCH)
        .await?;
    storage.endpoints().delete_ended_queues().await
}
