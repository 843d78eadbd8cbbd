//! Keys of the operator's API: create, revoke. Only commands make them.

use bellbird_domain::{OperatorKey, OperatorKeyId};
use bellbird_storage::writes::operator_keys;
use bellbird_storage::{AuditAction, ManagementChange, OperatorKeyRecord};
use jiff::Timestamp;

use crate::change::require_future;
use crate::refusal::Refusal;
use crate::values::KeyName;

/// A created key.
#[derive(Debug)]
pub struct CreatedOperatorKey {
    /// Shown once, and not stored.
    pub key: OperatorKey,
    pub record: OperatorKeyRecord,
}

/// Creates a key that works before `expires_at`, or until it is revoked.
pub async fn create(
    change: &mut ManagementChange<'_>,
    name: &KeyName,
    expires_at: Option<Timestamp>,
) -> Result<CreatedOperatorKey, Refusal> {
    require_future(change, expires_at)?;
    let (key, now) = (bellbird_storage::new_operator_key(), change.now());
    let record = operator_keys::insert(change.tx(), &key, name, expires_at, now).await?;
    record_action(change, "operator_key.create", &record).await?;
    Ok(CreatedOperatorKey { key, record })
}

/// Revokes a key. Revoking it again keeps the first time.
pub async fn revoke(
    change: &mut ManagementChange<'_>,
    id: OperatorKeyId,
) -> Result<OperatorKeyRecord, Refusal> {
    let now = change.now();
    let revoked = operator_keys::revoke(change.tx(), id, now).await?;
    record_action(change, "operator_key.revoke", &revoked).await?;
    Ok(revoked)
}

async fn record_action(
    change: &mut ManagementChange<'_>,
    name: &'static str,
    key: &OperatorKeyRecord,
) -> Result<(), Refusal> {
    let action = AuditAction::of_installation(name).about(key.id);
    Ok(change.record(&action).await?)
}
