//! Stores API keys by the SHA-256 of their text, and finds the caller of a request.
//!
//! A key has 178 random bits, so guessing is hopeless and a fast hash is enough. A slow one would
//! delay each request.

use bellbird_domain::{ApiKey, KeyId, KeyStatus, TimestampExt as _, UserId};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::db::{Tx, as_stored, from_row, pair, params, statements};
use crate::digest::hash;
use crate::error::Result;
use crate::locks::{lock_staying_user, lock_user_if_exists};
use crate::users::caller_lookups::{FoundCaller, found_caller};
use crate::{Keys, StorageError};

/// Keys of a user that work, or are new: the row of a key that has ended stays, so it counts too.
const KEYS_MAX: u64 = 100;
const NEW_FOR: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How long the row of a key that has ended is kept.
const ENDED_RETENTION: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Ended keys that are read at once, to delete them.
const DELETE_BATCH_SIZE: i64 = 200;

pub(crate) const TOO_MANY_KEYS: &str = "There are 100 API keys that work, or were made within 30 days: revoke keys \
    that nobody uses, or wait";

/// The columns of [`KeyRecord`], in its order.
macro_rules! columns {
    () => {
        "id, user_id, name, prefix, created_at, last_used_at, expires_at, revoked_at, replaced_by"
    };
}

statements! {
    COUNT = "SELECT COUNT(*) FROM api_keys
        WHERE user_id = $1 AND (created_at > $2 OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $3)))";

    LIST_ENDED = "SELECT user_id, id FROM api_keys
        WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL) AND COALESCE(revoked_at, expires_at) <= $1 LIMIT $2";

    DELETE = "DELETE FROM api_keys WHERE user_id = $1 AND id = $2";

    DELETE_AUDIT = "DELETE FROM key_audit WHERE user_id = $1 AND key_id = $2";

    FIND_NEWEST = "SELECT id FROM api_keys WHERE user_id = $1 ORDER BY id DESC LIMIT 1";

    INSERT = "INSERT INTO api_keys (user_id, id, key_hash, name, prefix, created_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";

    FIND_CALLER_BY_ID = "SELECT k.id, k.user_id, k.last_used_at, u.plan, u.timezone, u.revision
        FROM api_keys k JOIN users u ON u.id = k.user_id
        WHERE k.user_id = $1 AND k.id = $2 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $3)";

    TOUCH = "UPDATE api_keys SET last_used_at = $3
        WHERE user_id = $1 AND id = $2 AND (last_used_at IS NULL OR last_used_at < $3)";

    LIST = concat!("SELECT ", columns!(), " FROM api_keys WHERE user_id = $1 ORDER BY created_at, id");

    FIND = concat!("SELECT ", columns!(), " FROM api_keys WHERE id = $1");

    REVOKE = concat!(
        "UPDATE api_keys SET revoked_at = COALESCE(revoked_at, $2) WHERE id = $1 RETURNING ",
        columns!()
    );

    REPLACE = concat!(
        "UPDATE api_keys SET expires_at = CASE WHEN expires_at < $2 THEN expires_at ELSE $2 END, replaced_by = $3
        WHERE id = $1 RETURNING ",
        columns!()
    );
}

/// A key, without the key itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Key)]
pub struct KeyRecord {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub id: KeyId,
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub user_id: UserId,
    #[schema(example = "app")]
    pub name: String,
    /// The first characters of the key.
    #[schema(example = "bb_007Kd2p")]
    pub prefix: String,
    #[schema(value_type = String, format = "date-time", example = "2026-08-01T02:10:00.25Z")]
    pub created_at: Timestamp,
    /// Exact to a minute.
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2026-08-01T02:10:00.25Z")]
    pub last_used_at: Option<Timestamp>,
    // The key works before this time.
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2027-01-31T00:00:00Z")]
    pub expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2027-01-31T00:00:00Z")]
    pub revoked_at: Option<Timestamp>,
    // The key of a rotation that takes its place.
    #[serde(skip)]
    #[schema(ignore)]
    pub replaced_by: Option<KeyId>,
}

impl KeyRecord {
    /// Whether the key works.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> KeyStatus {
        KeyStatus::of(self.revoked_at, self.expires_at, now)
    }
}

impl Keys<'_> {
    /// Finds the user of a key that is neither revoked nor expired. It runs for each request as one
    /// indexed read, so a revoked key stops working at once.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if this program does not know the user's plan or timezone.
    pub async fn find_caller(self, key: &ApiKey, now: Timestamp) -> Result<Option<FoundCaller>> {
        self.caller_lookups
            .find(&self.db, hash(key.expose()).as_ref(), now)
            .await
    }

    /// As [`Self::find_caller`], for a key or a session that was found before: a long response
    /// checks it again.
    pub async fn find_caller_by_id(
        self,
        user: UserId,
        key: KeyId,
        now: Timestamp,
    ) -> Result<Option<FoundCaller>> {
        if let Some(found) = self
            .db
            .one(FIND_CALLER_BY_ID, params![user, key, now], found_caller)
            .await?
        {
            return Ok(Some(found));
        }
        let session = self.sessions().find_by_id(user, key, now).await?;
        Ok(session.map(|session| FoundCaller {
            caller: session.caller,
            last_used_at: None,
        }))
    }

    /// Records the last use of a key, unless a later one is recorded. Does nothing if the key is
    /// gone. The revision stays the same.
    pub async fn touch(self, user: UserId, key: KeyId, now: Timestamp) -> Result<()> {
        self.db.execute(TOUCH, params![user, key, now]).await
    }

    /// All keys of a user, oldest first, including revoked and expired ones.
    pub async fn list(self, user: UserId) -> Result<Vec<KeyRecord>> {
        self.db.all(LIST, params![user], record).await
    }

    /// Finds a key of any user, for the command line.
    pub async fn find(self, id: KeyId) -> Result<Option<KeyRecord>> {
        self.db.one(FIND, params![id], record).await
    }

    /// Deletes keys 90 days after they have ended, with their audit. Returns how many. It works in
    /// small transactions, so the caller may cancel it at any time.
    pub async fn delete_ended(self, now: Timestamp) -> Result<u64> {
        let until = now.minus(ENDED_RETENTION);
        let mut deleted = 0;
        loop {
            let ended = self
                .db
                .all(
                    LIST_ENDED,
                    params![until, DELETE_BATCH_SIZE],
                    pair::<UserId, KeyId>,
                )
                .await?;
            let before = deleted;
            for (user, key) in ended {
                let mut tx = self.db.begin().await?;
                if lock_user_if_exists(&mut tx, user).await? {
                    deleted += tx.run(DELETE, params![user, key]).await?;
                    tx.run(DELETE_AUDIT, params![user, key]).await?;
                    tx.commit().await?;
                } else {
                    tx.rollback().await;
                }
            }
            if deleted == before {
                return Ok(deleted);
            }
        }
    }
}

/// Finds a key of any user.
pub async fn find(tx: &mut Tx, id: KeyId) -> Result<Option<KeyRecord>> {
    tx.one(FIND, params![id], record).await
}

/// The key of a user that was made last, also if it has ended.
pub async fn find_newest(tx: &mut Tx, user: UserId) -> Result<Option<KeyId>> {
    tx.value(FIND_NEWEST, params![user]).await
}

/// Stores the key's hash, prefix and name.
///
/// # Errors
/// [`StorageError::NotFound`] if the user does not exist, [`StorageError::Conflict`] if the key
/// does or the user is being removed, and [`StorageError::TooMany`] if the user has too many keys.
pub async fn insert(
    tx: &mut Tx,
    user: UserId,
    key: &ApiKey,
    name: &str,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<KeyRecord> {
    insert_as(tx, (user, KeyId::new()), key, name, expires_at, now).await
}

async fn insert_as(
    tx: &mut Tx,
    (user, id): (UserId, KeyId),
    key: &ApiKey,
    name: &str,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<KeyRecord> {
    lock_staying_user(tx, user).await?;
    let values = params![user, now.minus(NEW_FOR), now];
    if tx.count(COUNT, values).await? >= KEYS_MAX {
        return Err(StorageError::TooMany(TOO_MANY_KEYS));
    }
    let hash = hash(key.expose());
    let values = params![user, id, &hash, name, key.prefix(), now, expires_at];
    tx.execute_or_conflict(INSERT, values, "this key").await?;
    Ok(KeyRecord {
        id,
        user_id: user,
        name: name.to_owned(),
        prefix: key.prefix().to_owned(),
        created_at: as_stored(now),
        last_used_at: None,
        expires_at: expires_at.map(as_stored),
        revoked_at: None,
        replaced_by: None,
    })
}

/// Stores a new key with the name and the expiry of an old one, which from now on expires at
/// `ends_at` or at its own expiry. If the old one was rotated before, the expiry is the one that it
/// had then. Returns the new record and the changed old one. [`StorageError::TooMany`] as for a new
/// key.
pub async fn rotate(
    tx: &mut Tx,
    old: &KeyRecord,
    new: &ApiKey,
    ends_at: Timestamp,
    now: Timestamp,
) -> Result<(KeyRecord, KeyRecord)> {
    // Before the key, as the removal of a user locks them.
    if !lock_user_if_exists(tx, old.user_id).await? {
        return Err(StorageError::NotFound("key"));
    }
    let expires_at = expiry_before_rotations(tx, old.id).await?;
    let id = KeyId::new();
    let replaced = tx
        .one(REPLACE, params![old.id, ends_at, id], record)
        .await?;
    // It may have been revoked since it was read.
    let replaced = replaced
        .filter(|old| old.revoked_at.is_none())
        .ok_or(StorageError::NotFound("key"))?;
    let new = insert_as(tx, (old.user_id, id), new, &old.name, expires_at, now).await?;
    Ok((new, replaced))
}

/// A rotated key ends with its grace period. Only the key that took its place still has the expiry.
async fn expiry_before_rotations(tx: &mut Tx, id: KeyId) -> Result<Option<Timestamp>> {
    let mut key = find(tx, id).await?.ok_or(StorageError::NotFound("key"))?;
    while let Some(next) = key.replaced_by {
        let Some(found) = find(tx, next).await? else {
            break;
        };
        key = found;
    }
    Ok(key.expires_at)
}

/// Revokes a key. Revoking it again keeps the first time.
pub async fn revoke(tx: &mut Tx, id: KeyId, now: Timestamp) -> Result<KeyRecord> {
    tx.one(REVOKE, params![id, now], record)
        .await?
        .ok_or(StorageError::NotFound("key"))
}

from_row! {
    fn record(row) -> KeyRecord {
        id, user_id, name, prefix, created_at, last_used_at, expires_at, revoked_at, replaced_by,
    }
}
