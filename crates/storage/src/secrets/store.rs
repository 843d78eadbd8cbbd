//! Everything sealed: stored, opened, counted by key, and sealed anew when the master key changes.
//!
//! One table holds it all. No foreign key leads from it to what a secret belongs to: whatever deletes that deletes the
//! secret too, in the same transaction.

use std::collections::BTreeMap;

use bellbird_domain::{ConnectionId, EndpointId, UserId};
use secrecy::{ExposeSecret, SecretString};
use uuid::Uuid;

use crate::db::{Db, Param, Row, Tx, params, statements};
use crate::error::Result;
use crate::{SealError, SealedFor, Storage, key_id_of};

/// Secrets that are sealed anew in one transaction: few enough that nobody waits for it.
const RESEAL_BATCH_SIZE: i64 = 50;
/// Secrets that are looked at in one read.
const SCAN_BATCH_SIZE: i64 = 500;

statements! {
    UPSERT = "INSERT INTO secrets (user_id, purpose, subject, sealed) VALUES ($1, $2, $3, $4)
        ON CONFLICT (user_id, purpose, subject) DO UPDATE SET sealed = excluded.sealed";

    FIND = "SELECT sealed FROM secrets WHERE user_id = $1 AND purpose = $2 AND subject = $3";

    DELETE = "DELETE FROM secrets WHERE user_id = $1 AND purpose = $2 AND subject = $3";

    LIST = "SELECT user_id, purpose, subject, sealed FROM secrets
        WHERE (user_id, purpose, subject) > ($1, $2, $3) ORDER BY user_id, purpose, subject LIMIT $4";

    COUNT = "SELECT COUNT(*) FROM secrets";

    /// Compares before it sets: a secret that changed since it was read is left alone.
    RESEAL = "UPDATE secrets SET sealed = $5 WHERE user_id = $1 AND purpose = $2 AND subject = $3 AND sealed = $4";
}

/// A place for one secret: whose, what for, and of which thing. All three are authenticated with what is sealed.
#[derive(Debug, Clone)]
pub(crate) struct SecretSlot {
    user: UserId,
    purpose: String,
    subject: String,
}

impl SecretSlot {
    /// What the adapter needs to read a connection.
    pub(crate) fn credentials(user: UserId, connection: ConnectionId) -> Self {
        Self { user, purpose: "credentials".to_owned(), subject: connection.to_string() }
    }

    /// The credentials of a user whom we registered at a provider.
    pub(crate) fn provider_user(user: UserId, provider: &str) -> Self {
        Self { user, purpose: "provider_user".to_owned(), subject: provider.to_owned() }
    }

    /// What a link session has got so far.
    pub(crate) fn link_session(user: UserId, session: Uuid) -> Self {
        Self { user, purpose: "link_session".to_owned(), subject: session.to_string() }
    }

    /// The key of a connection's fingerprints.
    pub(crate) fn fingerprint_key(user: UserId, connection: ConnectionId) -> Self {
        Self { user, purpose: "fingerprints".to_owned(), subject: connection.to_string() }
    }

    /// What an endpoint's messages are signed with.
    pub(crate) fn webhook(user: UserId, endpoint: EndpointId) -> Self {
        Self { user, purpose: "webhook".to_owned(), subject: endpoint.to_string() }
    }

    /// What they were signed with before that.
    pub(crate) fn old_webhook(user: UserId, endpoint: EndpointId) -> Self {
        Self { user, purpose: "old_webhook".to_owned(), subject: endpoint.to_string() }
    }

    fn params(&self) -> [Param<'_>; 3] {
        [self.user.into(), self.purpose.as_str().into(), self.subject.as_str().into()]
    }
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
    /// Whose it is.
    pub user_id: UserId,
    /// What it is for: `credentials`, `provider_user`, `link_session`, `fingerprints`, `webhook` or `old_webhook`.
    pub purpose: String,
    /// What it belongs to: a connection's id, a provider's name, a link session's id, an endpoint's id.
    pub subject: String,
    /// Why it does not open; holds the id of the key that is missing.
    pub why: SealError,
}

/// Where a walk over the secrets stands.
#[derive(Debug, Clone)]
pub struct SecretCursor(SecretSlot);

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
    InWal,
    /// PostgreSQL keeps dead rows until it needs their place, and its own log besides: out of our hands.
    ServerManaged,
}

/// A secret as it is stored.
struct Stored {
    slot: SecretSlot,
    sealed: Vec<u8>,
}

impl Storage {
    /// The opened credentials of the user's connection, also of one being deleted.
    ///
    /// # Errors
    /// [`StorageError::Sealed`](crate::StorageError::Sealed) when it does not open.
    pub async fn find_credentials(&self, user: UserId, connection: ConnectionId) -> Result<Option<SecretString>> {
        self.find_secret(&SecretSlot::credentials(user, connection)).await
    }

    /// How many secrets there are under which key, and which of them do not open.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn sealed_secrets(&self) -> Result<SealedSecrets> {
        let mut found = SealedSecrets::default();
        let mut after = None;
        loop {
            let secrets = self.db.all(LIST, &page(after.as_ref(), SCAN_BATCH_SIZE), stored).await?;
            let Some(last) = secrets.last() else { return Ok(found) };
            after = Some(SecretCursor(last.slot.clone()));
            for Stored { slot, sealed } in secrets {
                let opened = self.open_secret(&slot, &sealed);
                if let Some(key) = key_id_of(&sealed) {
                    *found.by_key.entry(key.to_owned()).or_default() += 1;
                    *found.opened_by.entry(key.to_owned()).or_default() += u64::from(opened.is_ok());
                }
                if let Err(why) = opened {
                    let SecretSlot { user: user_id, purpose, subject } = slot;
                    found.unopenable.push(UnopenableSecret { user_id, purpose, subject, why });
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
    /// is, so a walk that was interrupted is simply begun again. A secret that changes meanwhile is never lost: what is
    /// sealed anew is what the row holds at that moment.
    ///
    /// # Errors
    /// Those of the database. A secret that does not open is none.
    pub async fn reseal_batch(&self, after: Option<SecretCursor>) -> Result<ResealedBatch> {
        let mut batch = ResealedBatch::default();
        let mut tx = self.db.begin().await?;
        let secrets = tx.all(LIST, &page(after.as_ref(), RESEAL_BATCH_SIZE), stored).await?;
        batch.next = secrets.last().map(|last| SecretCursor(last.slot.clone()));
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

    async fn reseal(&self, tx: &mut Tx, secret: Stored, batch: &mut ResealedBatch) -> Result<()> {
        let Stored { slot, sealed: mut before } = secret;
        let [user, purpose, subject] = slot.params();
        loop {
            let Ok(opened) = self.open_secret(&slot, &before) else {
                batch.unopenable += 1;
                return Ok(());
            };
            if key_id_of(&before) == Some(self.sealing_key_id()) {
                batch.already_current += 1;
                return Ok(());
            }
            let resealed = self.seal_secret(&slot, &opened)?;
            let values = params![user, purpose, subject, before.as_slice(), resealed.as_slice()];
            if tx.run(RESEAL, values).await? > 0 {
                batch.resealed += 1;
                return Ok(());
            }
            // It changed under us: what it holds now is what counts, if it is still there.
            let Some(now) = tx.one(FIND, &slot.params(), sealed).await? else { return Ok(()) };
            before = now;
        }
    }

    /// Rids the database's files of what was sealed before, as far as that is in our hands. To be called after the last
    /// [`Self::reseal_batch`], also when there was nothing left to do: an earlier walk may have been interrupted here.
    ///
    /// # Errors
    /// Those of the database: SQLite's is busy when another process writes for seconds.
    pub async fn erase_leftovers(&self) -> Result<Leftovers> {
        match &self.db {
            Db::Sqlite(db) => Ok(if db.compact().await? { Leftovers::None } else { Leftovers::InWal }),
            Db::Postgres(_) => Ok(Leftovers::ServerManaged),
        }
    }

    /// Seals a secret and stores it, in place of the one that was there.
    pub(crate) async fn store_secret(&self, tx: &mut Tx, slot: &SecretSlot, secret: &SecretString) -> Result<()> {
        store_sealed(tx, slot, &self.seal_secret(slot, secret)?).await
    }

    /// The opened secret of a slot, if there is one.
    pub(crate) async fn find_secret(&self, slot: &SecretSlot) -> Result<Option<SecretString>> {
        let sealed = self.db.one(FIND, &slot.params(), sealed).await?;
        Ok(sealed.map(|sealed| self.open_secret(slot, &sealed)).transpose()?)
    }

    /// As [`Self::find_secret`], in a transaction.
    pub(crate) async fn find_secret_in(&self, tx: &mut Tx, slot: &SecretSlot) -> Result<Option<SecretString>> {
        let sealed = tx.one(FIND, &slot.params(), sealed).await?;
        Ok(sealed.map(|sealed| self.open_secret(slot, &sealed)).transpose()?)
    }

    /// Seals for one place what another one holds, and leaves that as it is. What does not open is taken over as it
    /// is: it opens there as little, and whoever tries is told so.
    pub(crate) async fn copy_secret(&self, tx: &mut Tx, from: &SecretSlot, to: &SecretSlot) -> Result<()> {
        let Some(held) = tx.one(FIND, &from.params(), sealed).await? else { return Ok(()) };
        let resealed = match self.open_secret(from, &held) {
            Ok(secret) => self.seal_secret(to, &secret)?,
            Err(_) => held,
        };
        store_sealed(tx, to, &resealed).await
    }

    fn seal_secret(&self, slot: &SecretSlot, secret: &SecretString) -> std::result::Result<Vec<u8>, SealError> {
        let row = (slot.user.to_string(), slot.subject.as_str());
        let sealed_for = SealedFor { purpose: &slot.purpose, row: &[&row.0, row.1] };
        self.sealer.seal(sealed_for, secret.expose_secret().as_bytes())
    }

    fn open_secret(&self, slot: &SecretSlot, sealed: &[u8]) -> std::result::Result<SecretString, SealError> {
        let row = (slot.user.to_string(), slot.subject.as_str());
        let opened = self.sealer.open(SealedFor { purpose: &slot.purpose, row: &[&row.0, row.1] }, sealed)?;
        let text = std::str::from_utf8(&opened).map_err(|_| SealError::DoesNotOpen)?;
        Ok(SecretString::from(text))
    }
}

async fn store_sealed(tx: &mut Tx, slot: &SecretSlot, sealed: &[u8]) -> Result<()> {
    let [user, purpose, subject] = slot.params();
    tx.run(UPSERT, params![user, purpose, subject, sealed]).await.map(|_| ())
}

/// Forgets a secret, in the transaction that deletes what it belongs to. One that is not there is no error.
pub(crate) async fn delete_secret(tx: &mut Tx, slot: &SecretSlot) -> Result<()> {
    tx.run(DELETE, &slot.params()).await.map(|_| ())
}

/// What [`LIST`] needs: before the first place there is only the empty text.
fn page(after: Option<&SecretCursor>, rows: i64) -> [Param<'_>; 4] {
    let [user, purpose, subject] = after.map_or(["".into(); 3], |SecretCursor(slot)| slot.params());
    [user, purpose, subject, rows.into()]
}

fn sealed(row: &Row<'_>) -> Result<Vec<u8>> {
    row.blob(0).map(<[u8]>::to_vec)
}

fn stored(row: &Row<'_>) -> Result<Stored> {
    let slot = SecretSlot { user: row.id(0)?, purpose: row.text(1)?.to_owned(), subject: row.text(2)?.to_owned() };
    Ok(Stored { slot, sealed: row.blob(3)?.to_vec() })
}
