//! The sealed grants: stored, opened, counted by key, and sealed anew when the master key changes.

use std::collections::BTreeMap;

use bellbird_domain::{ConnectionId, UserId};
use secrecy::{ExposeSecret, SecretString};

use crate::db::{Db, Row, Tx, params, statements};
use crate::{SealError, SealedFor, Storage, StorageError, key_id_of};

type Result<T> = std::result::Result<T, StorageError>;

/// What grants are sealed for.
const PURPOSE: &str = "grant";
/// Secrets that are sealed anew in one transaction: few enough that nobody waits for it.
const RESEALED_AT_ONCE: i64 = 50;
/// Secrets that are looked at in one read.
const LOOKED_AT_AT_ONCE: i64 = 500;

statements! {
    UPSERT = "INSERT INTO connection_grants (user_id, connection_id, sealed) VALUES ($1, $2, $3)
        ON CONFLICT (user_id, connection_id) DO UPDATE SET sealed = excluded.sealed";

    FIND = "SELECT sealed FROM connection_grants WHERE user_id = $1 AND connection_id = $2";

    LIST = "SELECT user_id, connection_id, sealed FROM connection_grants
        WHERE (user_id, connection_id) > ($1, $2) ORDER BY user_id, connection_id LIMIT $3";

    COUNT = "SELECT COUNT(*) FROM connection_grants";

    /// Compares before it sets: a grant that changed since it was read is left alone.
    RESEAL = "UPDATE connection_grants SET sealed = $4 WHERE user_id = $1 AND connection_id = $2 AND sealed = $3";
}

/// All secrets, by the key that sealed them.
#[derive(Debug, Default)]
pub struct SealedSecrets {
    /// How many say that they are sealed with the key of this id, openable or not.
    pub by_key: BTreeMap<String, u64>,
    /// How many of them open.
    pub opened_by: BTreeMap<String, u64>,
    /// Those that no configured key opens.
    pub unopenable: Vec<UnopenableSecret>,
}

/// A secret that no configured key opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnopenableSecret {
    /// Whose grant it is.
    pub connection_id: ConnectionId,
    /// Why it does not open; holds the id of the key that is missing.
    pub why: SealError,
}

/// Where a walk over the secrets stands.
#[derive(Debug, Clone, Copy)]
pub struct SecretCursor(UserId, ConnectionId);

/// What one step of sealing anew came to.
#[derive(Debug, Default)]
pub struct ResealedBatch {
    /// Sealed anew with the first key.
    pub resealed: u64,
    /// Sealed with the first key before.
    pub already_current: u64,
    /// Left as they are, because they do not open.
    pub unopenable: u64,
    /// Where the next step begins; none at the end.
    pub next: Option<SecretCursor>,
}

/// Whether what was sealed before is still in the files of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftovers {
    /// It is not.
    None,
    /// Somebody else's reading kept SQLite's log from being emptied; another try may do.
    InTheLog,
    /// PostgreSQL keeps dead rows until it needs their place, and its own log besides: out of our hands.
    UpToTheServer,
}

/// A secret as it is stored.
struct Stored {
    user: UserId,
    connection: ConnectionId,
    sealed: Vec<u8>,
}

impl Storage {
    /// The opened grant of the user's connection, also of one being deleted.
    ///
    /// # Errors
    /// [`StorageError::Sealed`] when it does not open.
    pub async fn find_grant(&self, user: UserId, connection: ConnectionId) -> Result<Option<SecretString>> {
        let sealed = self.db.one(FIND, params![user, connection], sealed).await?;
        Ok(sealed.map(|sealed| self.open_grant(user, connection, &sealed)).transpose()?)
    }

    /// How many secrets there are under which key, and which of them do not open.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn sealed_secrets(&self) -> Result<SealedSecrets> {
        let mut found = SealedSecrets::default();
        let mut after = None;
        loop {
            let secrets = self.db.all(LIST, &page(after, LOOKED_AT_AT_ONCE), stored).await?;
            let Some(last) = secrets.last() else { return Ok(found) };
            after = Some(SecretCursor(last.user, last.connection));
            for secret in &secrets {
                let opened = self.open_grant(secret.user, secret.connection, &secret.sealed);
                if let Some(key) = key_id_of(&secret.sealed) {
                    *found.by_key.entry(key.to_owned()).or_default() += 1;
                    *found.opened_by.entry(key.to_owned()).or_default() += u64::from(opened.is_ok());
                }
                if let Err(why) = opened {
                    found.unopenable.push(UnopenableSecret { connection_id: secret.connection, why });
                }
            }
        }
    }

    /// The id of the key that seals.
    #[must_use]
    pub fn sealing_key_id(&self) -> &str {
        self.sealer.key_ids().next().unwrap_or_default()
    }

    /// How many secrets there are.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn count_secrets(&self) -> Result<u64> {
        let count = self.db.one(COUNT, params![], |row| row.int(0)).await?.unwrap_or(0);
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Seals the next few secrets with the first key, in one transaction. What is sealed with it already stays as it
    /// is, so a walk that was interrupted is simply begun again. A grant that changes meanwhile is never lost: what is
    /// sealed anew is what the row holds at that moment.
    ///
    /// # Errors
    /// Those of the database. A secret that does not open is none.
    pub async fn reseal_batch(&self, after: Option<SecretCursor>) -> Result<ResealedBatch> {
        let mut batch = ResealedBatch::default();
        let mut tx = self.db.begin().await?;
        let secrets = tx.all(LIST, &page(after, RESEALED_AT_ONCE), stored).await?;
        batch.next = secrets.last().map(|last| SecretCursor(last.user, last.connection));
        for secret in secrets {
            self.reseal(&mut tx, secret, &mut batch).await?;
        }
        if batch.resealed > 0 {
            tx.commit().await?;
        } else {
            tx.rollback().await;
        }
        Ok(batch)
    }

    async fn reseal(&self, tx: &mut Tx, mut secret: Stored, batch: &mut ResealedBatch) -> Result<()> {
        loop {
            let Stored { user, connection, .. } = secret;
            let Ok(opened) = self.open_grant(user, connection, &secret.sealed) else {
                batch.unopenable += 1;
                return Ok(());
            };
            if key_id_of(&secret.sealed) == Some(self.sealing_key_id()) {
                batch.already_current += 1;
                return Ok(());
            }
            let anew = self.seal_grant(user, connection, &opened)?;
            let values = params![user, connection, secret.sealed.as_slice(), anew.as_slice()];
            if tx.run(RESEAL, values).await? > 0 {
                batch.resealed += 1;
                return Ok(());
            }
            // It changed under us: what it holds now is what counts, if it is still there.
            let Some(now) = tx.one(FIND, params![user, connection], sealed).await? else { return Ok(()) };
            secret.sealed = now;
        }
    }

    /// Rids the database's files of what was sealed before, as far as that is in our hands. To be called after the last
    /// [`Self::reseal_batch`], also when there was nothing left to do: an earlier walk may have been interrupted here.
    ///
    /// # Errors
    /// Those of the database: SQLite's is busy when another process writes for seconds.
    pub async fn erase_leftovers(&self) -> Result<Leftovers> {
        match &self.db {
            Db::Sqlite(db) => Ok(if db.compact().await? { Leftovers::None } else { Leftovers::InTheLog }),
            Db::Postgres(_) => Ok(Leftovers::UpToTheServer),
        }
    }

    pub(crate) async fn store_grant(
        &self,
        tx: &mut Tx,
        user: UserId,
        connection: ConnectionId,
        grant: &SecretString,
    ) -> Result<()> {
        let sealed = self.seal_grant(user, connection, grant)?;
        tx.run(UPSERT, params![user, connection, sealed.as_slice()]).await.map(|_| ())
    }

    fn seal_grant(
        &self,
        user: UserId,
        connection: ConnectionId,
        grant: &SecretString,
    ) -> std::result::Result<Vec<u8>, SealError> {
        let row = (user.to_string(), connection.to_string());
        let owner = SealedFor { purpose: PURPOSE, row: &[&row.0, &row.1] };
        self.sealer.seal(owner, grant.expose_secret().as_bytes())
    }

    fn open_grant(
        &self,
        user: UserId,
        connection: ConnectionId,
        sealed: &[u8],
    ) -> std::result::Result<SecretString, SealError> {
        let row = (user.to_string(), connection.to_string());
        let opened = self.sealer.open(SealedFor { purpose: PURPOSE, row: &[&row.0, &row.1] }, sealed)?;
        let text = std::str::from_utf8(&opened).map_err(|_| SealError::DoesNotOpen)?;
        Ok(SecretString::from(text))
    }
}

/// What [`LIST`] needs: before the first id there is only the empty text.
fn page<'a>(after: Option<SecretCursor>, rows: i64) -> [crate::db::Param<'a>; 3] {
    match after {
        Some(SecretCursor(user, connection)) => [user.into(), connection.into(), rows.into()],
        None => ["".into(), "".into(), rows.into()],
    }
}

fn sealed(row: &Row<'_>) -> Result<Vec<u8>> {
    row.blob(0).map(<[u8]>::to_vec)
}

fn stored(row: &Row<'_>) -> Result<Stored> {
    Ok(Stored { user: row.id(0)?, connection: row.id(1)?, sealed: row.blob(2)?.to_vec() })
}
