//! Stores setup tokens by the SHA-256 of their text. Claiming one creates an API key, once.

use bellbird_domain::{ApiKey, KeyId, SetupToken, UserId};
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::db::{Tx, from_row, params, statements};
use crate::digest::hash;
use crate::error::Result;
use crate::locks::{lock_staying_user, lock_user_if_exists};
use crate::users::keys::{self, KeyRecord};
use crate::{SetupTokens, StorageError};

/// Further rejected claims of a key's token are not recorded: anyone who has the token can repeat
/// them.
const REJECTED_CLAIMS_MAX: i64 = 100;

/// Tokens of a user that nobody has claimed.
const UNCLAIMED_MAX: u64 = 20;
const TOO_MANY_TOKENS: &str =
    "There are 20 setup tokens that no program has claimed: revoke them first";

const CLAIMED: &str = "claimed";
const CLAIM_REJECTED: &str = "claim_rejected";

statements! {
    INSERT = "INSERT INTO setup_tokens (user_id, id, token_hash, name, created_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6)";

    COUNT_UNCLAIMED = "SELECT COUNT(*) FROM setup_tokens WHERE user_id = $1 AND key_id IS NULL AND expires_at > $2";

    FIND = "SELECT user_id, id, name, expires_at, key_id FROM setup_tokens WHERE token_hash = $1";

    FIND_NEWEST = "SELECT id FROM setup_tokens WHERE user_id = $1 ORDER BY id DESC LIMIT 1";

    SET_KEY = "UPDATE setup_tokens SET key_id = $3 WHERE user_id = $1 AND id = $2 AND key_id IS NULL";

    DELETE_UNCLAIMED = "DELETE FROM setup_tokens WHERE user_id = $1 AND key_id IS NULL AND expires_at > $2";

    RECORD = "INSERT INTO key_audit (user_id, id, key_id, recorded_at, event)
        SELECT id, $2, $3, $4, $5 FROM users WHERE id = $1
            AND (SELECT COUNT(*) FROM key_audit WHERE user_id = $1 AND key_id = $3) <= $6";

    LIST_AUDIT = "SELECT recorded_at, event FROM key_audit WHERE user_id = $1 AND key_id = $2 ORDER BY recorded_at, id";
}

/// Without `Debug`, because it holds the token.
#[derive(Clone, Copy)]
pub struct NewSetupToken<'a> {
    /// The user whose key a claim creates.
    pub user_id: UserId,
    pub token: &'a SetupToken,
    /// The name of that key.
    pub name: &'a str,
    /// The token can be claimed before this time.
    pub expires_at: Timestamp,
}

/// The result of a claim.
#[derive(Debug)]
pub enum SetupTokenClaim {
    /// The key was created.
    Created(KeyRecord),
    /// The token was claimed before, which created this key. Recorded in the audit of the key.
    Repeated { user_id: UserId, key_id: KeyId },
    /// The token is unknown, or expired before it was claimed.
    Unknown,
}

/// An event of a key. Serialized as commands print it with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyAuditRow {
    pub at: Timestamp,
    /// One word: see docs/database.md#tables.
    pub event: String,
}

struct StoredToken {
    user: UserId,
    id: Uuid,
    name: String,
    expires_at: Timestamp,
    key: Option<KeyId>,
}

impl SetupTokens<'_> {
    /// The id of the token that was made last. None: all have expired, or there was none.
    pub async fn find_newest(self, user: UserId) -> Result<Option<Uuid>> {
        self.db.value(FIND_NEWEST, params![user]).await
    }

    /// Creates `key` for the user of the token. Of several concurrent claims, one succeeds.
    /// [`StorageError::TooMany`] if the user has too many keys: the token can then still be
    /// claimed.
    pub async fn claim(
        self,
        token: &SetupToken,
        key: &ApiKey,
        now: Timestamp,
    ) -> Result<SetupTokenClaim> {
        let hash = hash(token.expose());
        // A read first: made-up tokens must not take SQLite's one writer.
        let Some(found) = self.db.one(FIND, params![&hash], stored_token).await? else {
            return Ok(SetupTokenClaim::Unknown);
        };
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, found.user).await? {
            tx.rollback().await;
            return Ok(SetupTokenClaim::Unknown);
        }
        let locked = tx.one(FIND, params![&hash], stored_token).await?;
        let is_known = |token: &StoredToken| token.key.is_some() || now < token.expires_at;
        let Some(token) = locked.filter(is_known) else {
            tx.rollback().await;
            return Ok(SetupTokenClaim::Unknown);
        };
        let user_id = token.user;
        let claim = if let Some(key_id) = token.key {
            record(&mut tx, user_id, key_id, CLAIM_REJECTED, now).await?;
            SetupTokenClaim::Repeated { user_id, key_id }
        } else {
            let created = keys::insert(&mut tx, user_id, key, &token.name, None, now).await?;
            tx.run(SET_KEY, params![user_id, token.id, created.id])
                .await?;
            record(&mut tx, user_id, created.id, CLAIMED, now).await?;
            SetupTokenClaim::Created(created)
        };
        tx.commit().await?;
        Ok(claim)
    }

    /// Lists how a key was created with a setup token, and rejected claims of that token. Oldest
    /// first.
    pub async fn list_key_audit(self, user: UserId, key: KeyId) -> Result<Vec<KeyAuditRow>> {
        self.db.all(LIST_AUDIT, params![user, key], audit_row).await
    }
}

/// As [`SetupTokens::find_newest`], in a change.
pub async fn find_newest(tx: &mut Tx, user: UserId) -> Result<Option<Uuid>> {
    tx.value(FIND_NEWEST, params![user]).await
}

/// Stores a setup token, and returns its id.
///
/// # Errors
/// [`StorageError::NotFound`] if the user does not exist, [`StorageError::Conflict`] if the
/// token does or the user is being removed, and [`StorageError::TooMany`] if nobody has claimed 20
/// tokens of the user.
pub async fn insert(tx: &mut Tx, new: &NewSetupToken<'_>, now: Timestamp) -> Result<Uuid> {
    lock_staying_user(tx, new.user_id).await?;
    let values = params![new.user_id, now];
    if tx.count(COUNT_UNCLAIMED, values).await? >= UNCLAIMED_MAX {
        return Err(StorageError::TooMany(TOO_MANY_TOKENS));
    }
    let (id, hash) = (Uuid::now_v7(), hash(new.token.expose()));
    let values = params![new.user_id, id, &hash, new.name, now, new.expires_at];
    tx.execute_or_conflict(INSERT, values, "this setup token")
        .await?;
    Ok(id)
}

/// Deletes the setup tokens of a user that somebody could still claim. Returns their number.
pub async fn revoke_unclaimed(tx: &mut Tx, user: UserId, now: Timestamp) -> Result<u64> {
    tx.run(DELETE_UNCLAIMED, params![user, now]).await
}

async fn record(tx: &mut Tx, user: UserId, key: KeyId, event: &str, now: Timestamp) -> Result<()> {
    // UUIDv7 ids increase, so events at the same time keep their order.
    let id = Uuid::now_v7();
    let values = params![user, id, key, now, event, REJECTED_CLAIMS_MAX];
    tx.execute(RECORD, values).await
}

from_row! {
    fn stored_token(row) -> StoredToken {
        user, id, name, expires_at, key,
    }
}

from_row! {
    fn audit_row(row) -> KeyAuditRow {
        at, event,
    }
}
