//! Stores operators' keys by the SHA-256 of their text, as users' keys are. They are never deleted,
//! so that a revoked key stays known.

use bellbird_domain::{KeyStatus, OperatorKey, OperatorKeyId};
use jiff::Timestamp;
use serde::Serialize;

use crate::db::{Tx, as_stored, from_row, params, statements};
use crate::digest::hash;
use crate::error::Result;
use crate::{OperatorKeys, StorageError};

/// The columns of [`OperatorKeyRecord`], in its order.
macro_rules! columns {
    () => {
        "id, name, prefix, created_at, last_used_at, expires_at, revoked_at"
    };
}

statements! {
    INSERT = "INSERT INTO operator_keys (id, key_hash, name, prefix, created_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6)";

    FIND_VALID = "SELECT id, last_used_at FROM operator_keys
        WHERE key_hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)";

    TOUCH = "UPDATE operator_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)";

    LIST = concat!("SELECT ", columns!(), " FROM operator_keys ORDER BY created_at, id");

    REVOKE = concat!(
        "UPDATE operator_keys SET revoked_at = COALESCE(revoked_at, $2) WHERE id = $1 RETURNING ",
        columns!()
    );
}

/// What is known about an operator's key. The key itself is not stored. Serialized as commands
/// print it with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorKeyRecord {
    pub id: OperatorKeyId,
    pub name: String,
    /// The first characters of the key, to recognise it in a list.
    pub prefix: String,
    pub created_at: Timestamp,
    /// The last use that `storage.operator_keys().touch` recorded.
    pub last_used_at: Option<Timestamp>,
    /// The key works before this time.
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

impl OperatorKeyRecord {
    /// Whether the key works.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> KeyStatus {
        KeyStatus::of(self.revoked_at, self.expires_at, now)
    }
}

/// A valid key of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundOperatorKey {
    pub id: OperatorKeyId,
    /// The recorded last use. It lets the caller decide whether to call
    /// `storage.operator_keys().touch`.
    pub last_used_at: Option<Timestamp>,
}

impl OperatorKeys<'_> {
    /// Finds a key that is neither revoked nor expired, as one indexed read.
    pub async fn find_valid(
        self,
        key: &OperatorKey,
        now: Timestamp,
    ) -> Result<Option<FoundOperatorKey>> {
        self.db
            .one(FIND_VALID, params![&hash(key.expose()), now], found)
            .await
    }

    /// Records the last use of a key, unless a later one is recorded.
    pub async fn touch(self, key: OperatorKeyId, now: Timestamp) -> Result<()> {
        self.db.execute(TOUCH, params![key, now]).await
    }

    /// All keys, oldest first, including revoked and expired ones.
    pub async fn list(self) -> Result<Vec<OperatorKeyRecord>> {
        self.db.all(LIST, params![], record).await
    }
}

/// Stores a key's hash, prefix and name, in a transaction. [`StorageError::Conflict`] if the key
/// exists.
pub async fn insert(
    tx: &mut Tx,
    key: &OperatorKey,
    name: &str,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<OperatorKeyRecord> {
    let (id, hash) = (OperatorKeyId::new(), hash(key.expose()));
    let values = params![id, &hash, name, key.prefix(), now, expires_at];
    tx.execute_or_conflict(INSERT, values, "this key").await?;
    Ok(OperatorKeyRecord {
        id,
        name: name.to_owned(),
        prefix: key.prefix().to_owned(),
        created_at: as_stored(now),
        last_used_at: None,
        expires_at: expires_at.map(as_stored),
        revoked_at: None,
    })
}

/// Revokes a key, in a transaction. Revoking it again keeps the first time.
pub async fn revoke(tx: &mut Tx, id: OperatorKeyId, now: Timestamp) -> Result<OperatorKeyRecord> {
    tx.one(REVOKE, params![id, now], record)
        .await?
        .ok_or(StorageError::NotFound("operator key"))
}

from_row! {
    fn record(row) -> OperatorKeyRecord {
        id, name, prefix, created_at, last_used_at, expires_at, revoked_at,
    }
}

from_row! {
    fn found(row) -> FoundOperatorKey {
        id, last_used_at,
    }
}
