//! API keys: known by the SHA-256 of their text.
//!
//! A key has 190 random bits, so a plain hash is enough: there is nothing to guess, and a request must not wait for a
//! slow one.

use bellbird_domain::{ApiKey, Caller, KeyId, UserId};
use jiff::Timestamp;

use crate::db::{Row, params, statements, stored};
use crate::digest::hash;
use crate::error::Result;
use crate::users::user::parse_timezone;
use crate::{Storage, StorageError};

statements! {
    /// Inserts nothing when there is no such user.
    INSERT = "INSERT INTO api_keys (user_id, id, key_hash, name, prefix, created_at, expires_at)
        SELECT id, $2, $3, $4, $5, $6, $7 FROM users WHERE id = $1";

    FIND_CALLER = "SELECT k.id, k.user_id, k.last_used_at, u.plan, u.timezone, u.revision
        FROM api_keys k JOIN users u ON u.id = k.user_id
        WHERE k.key_hash = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)";

    TOUCH = "UPDATE api_keys SET last_used_at = $3
        WHERE user_id = $1 AND id = $2 AND (last_used_at IS NULL OR last_used_at < $3)";

    LIST = "SELECT id, user_id, name, prefix, created_at, last_used_at, expires_at, revoked_at
        FROM api_keys WHERE user_id = $1 ORDER BY created_at, id";

    FIND = "SELECT id, user_id, name, prefix, created_at, last_used_at, expires_at, revoked_at
        FROM api_keys WHERE id = $1";

    REVOKE = "UPDATE api_keys SET revoked_at = COALESCE(revoked_at, $2) WHERE id = $1
        RETURNING id, user_id, name, prefix, created_at, last_used_at, expires_at, revoked_at";

    EXPIRE = "UPDATE api_keys SET expires_at = CASE WHEN expires_at < $2 THEN expires_at ELSE $2 END WHERE id = $1
        RETURNING id, user_id, name, prefix, created_at, last_used_at, expires_at, revoked_at";
}

/// What is known of a key; the key itself is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Ours.
    pub id: KeyId,
    /// Whose it is.
    pub user_id: UserId,
    /// Given by its owner.
    pub name: String,
    /// First characters of the key.
    pub prefix: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last used, as far as [`Storage::touch_key`] was told.
    pub last_used_at: Option<Timestamp>,
    /// It is valid before this instant.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// The owner of a valid key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCaller {
    /// Who is calling.
    pub caller: Caller,
    /// The key's last use as stored, by which the caller decides whether [`Storage::touch_key`] is worth a write.
    pub last_used_at: Option<Timestamp>,
}

impl Storage {
    /// Stores a key: its hash, its first characters, its name.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] without such a user, [`StorageError::Conflict`] when the key is there already.
    pub async fn insert_key(
        &self,
        user: UserId,
        key: &ApiKey,
        name: &str,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<KeyRecord> {
        let (id, hash) = (KeyId::new(), hash(key.expose()));
        let values = params![user, id, hash.as_ref(), name, key.prefix(), now, expires_at];
        let inserted = self.db.run(INSERT, values).await.map_err(|error| error.or_conflict("this key"))?;
        if inserted == 0 {
            return Err(StorageError::NotFound("user"));
        }
        Ok(KeyRecord {
            id,
            user_id: user,
            name: name.to_owned(),
            prefix: key.prefix().to_owned(),
            created_at: stored(now),
            last_used_at: None,
            expires_at: expires_at.map(stored),
            revoked_at: None,
        })
    }

    /// Who is calling, if the key is known, not revoked and not expired. One indexed read, for every request: what it
    /// says is as fresh as the database.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when the owner's plan or timezone is none that this program knows; those of the
    /// database.
    pub async fn find_caller(&self, key: &ApiKey, now: Timestamp) -> Result<Option<FoundCaller>> {
        self.db.one(FIND_CALLER, params![hash(key.expose()).as_ref(), now], found_caller).await
    }

    /// Notes a key's last use, unless a later one is noted. Not a change that a revision tells of.
    ///
    /// # Errors
    /// Those of the database. A key that is gone is none.
    pub async fn touch_key(&self, user: UserId, key: KeyId, now: Timestamp) -> Result<()> {
        self.db.run(TOUCH, params![user, key, now]).await.map(|_| ())
    }

    /// All keys of a user, oldest first, those that no longer work included.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list_keys(&self, user: UserId) -> Result<Vec<KeyRecord>> {
        self.db.all(LIST, params![user], record).await
    }

    /// A key of whatever user, for the command line.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_key(&self, id: KeyId) -> Result<Option<KeyRecord>> {
        self.db.one(FIND, params![id], record).await
    }

    /// Revokes a key. Doing so again changes nothing: the first instant stays.
    ///
    /// # Errors
    /// [`StorageError::NotFound`].
    pub async fn revoke_key(&self, id: KeyId, now: Timestamp) -> Result<KeyRecord> {
        let mut tx = self.db.begin().await?;
        let key = tx.one(REVOKE, params![id, now], record).await?.ok_or(StorageError::NotFound("key"))?;
        tx.commit().await?;
        Ok(key)
    }

    /// Lets a key live until `at`, or until its own expiry where that is earlier.
    ///
    /// # Errors
    /// [`StorageError::NotFound`].
    pub async fn expire_key(&self, id: KeyId, at: Timestamp) -> Result<KeyRecord> {
        let mut tx = self.db.begin().await?;
        let key = tx.one(EXPIRE, params![id, at], record).await?.ok_or(StorageError::NotFound("key"))?;
        tx.commit().await?;
        Ok(key)
    }
}

fn found_caller(row: &Row<'_>) -> Result<FoundCaller> {
    let caller = Caller {
        key_id: row.id(0)?,
        user_id: row.id(1)?,
        plan: row.word(3, "a plan")?,
        timezone: parse_timezone(row.opt_text(4)?)?,
        revision: row.int(5)?,
    };
    Ok(FoundCaller { caller, last_used_at: row.opt_time(2)? })
}

fn record(row: &Row<'_>) -> Result<KeyRecord> {
    Ok(KeyRecord {
        id: row.id(0)?,
        user_id: row.id(1)?,
        name: row.text(2)?.to_owned(),
        prefix: row.text(3)?.to_owned(),
        created_at: row.time(4)?,
        last_used_at: row.opt_time(5)?,
        expires_at: row.opt_time(6)?,
        revoked_at: row.opt_time(7)?,
    })
}
