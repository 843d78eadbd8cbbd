//! API keys of users: create, rotate, revoke.

use bellbird_domain::{ApiKey, KeyId, KeyStatus, TimestampExt as _, UserId};
use bellbird_storage::writes::keys;
use bellbird_storage::{AuditAction, KeyRecord, ManagementChange};
use jiff::{SignedDuration, Timestamp};

use crate::change::{require_future, require_owner};
use crate::refusal::{KEY, Refusal, USER};
use crate::values::KeyName;

const DEFAULT_NAME: &str = "default";
/// How long a replaced key works if nobody says.
pub const DEFAULT_GRACE: SignedDuration = SignedDuration::from_hours(24);

/// A key to create.
#[derive(Debug, Clone, Copy)]
pub struct NewKey<'a> {
    pub user_id: UserId,
    /// None: `default`.
    pub name: Option<&'a KeyName>,
    /// The key works before this time. None: it does not expire.
    pub expires_at: Option<Timestamp>,
}

/// A created key.
#[derive(Debug)]
pub struct CreatedKey {
    /// Shown once, and not stored.
    pub key: ApiKey,
    pub record: KeyRecord,
}

/// A key that takes the place of another one.
#[derive(Debug)]
pub struct RotatedKey {
    pub new: CreatedKey,
    pub old: KeyRecord,
}

/// The key of a user that was made last, so that a form that is sent again makes no other one.
pub async fn newest(
    change: &mut ManagementChange<'_>,
    user: UserId,
) -> Result<Option<KeyId>, Refusal> {
    Ok(keys::find_newest(change.tx(), user).await?)
}

/// Creates a key. A user has at most 100 that work, or were made within 30 days.
pub async fn create(
    change: &mut ManagementChange<'_>,
    new: NewKey<'_>,
) -> Result<CreatedKey, Refusal> {
    let NewKey {
        user_id,
        name,
        expires_at,
    } = new;
    require_owner(change, user_id, USER)?;
    require_future(change, expires_at)?;
    let name = name.map_or(DEFAULT_NAME, |name| name);
    let (key, now) = (bellbird_storage::new_key(), change.now());
    let record = keys::insert(change.tx(), user_id, &key, name, expires_at, now).await?;
    record_action(change, "key.create", &record).await?;
    Ok(CreatedKey { key, record })
}

/// Creates a key with the name and the expiry of an old one, which works for `grace` from now on.
pub async fn rotate(
    change: &mut ManagementChange<'_>,
    id: KeyId,
    grace: SignedDuration,
) -> Result<RotatedKey, Refusal> {
    let (old, now) = (find(change, id).await?, change.now());
    if old.status(now) != KeyStatus::Active {
        return Err(Refusal::KeyEnded);
    }
    let key = bellbird_storage::new_key();
    let ends_at = now.plus(grace);
    let (record, replaced) = keys::rotate(change.tx(), &old, &key, ends_at, now).await?;
    record_action(change, "key.rotate", &old).await?;
    Ok(RotatedKey {
        new: CreatedKey { key, record },
        old: replaced,
    })
}

/// Revokes a key. Revoking it again keeps the first time.
pub async fn revoke(change: &mut ManagementChange<'_>, id: KeyId) -> Result<KeyRecord, Refusal> {
    find(change, id).await?;
    let now = change.now();
    let revoked = keys::revoke(change.tx(), id, now).await?;
    record_action(change, "key.revoke", &revoked).await?;
    Ok(revoked)
}

async fn find(change: &mut ManagementChange<'_>, id: KeyId) -> Result<KeyRecord, Refusal> {
    let key = keys::find(change.tx(), id)
        .await?
        .ok_or(Refusal::NotFound(KEY))?;
    require_owner(change, key.user_id, KEY)?;
    Ok(key)
}

async fn record_action(
    change: &mut ManagementChange<'_>,
    name: &'static str,
    key: &KeyRecord,
) -> Result<(), Refusal> {
    let action = AuditAction::of_user(name, key.user_id)
        .about(key.id)
        .called(&key.name);
    Ok(change.record(&action).await?)
}
