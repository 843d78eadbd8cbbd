//! Stores sealed secrets in one table, counts them by key, and seals them again when the master key
//! changes.
//!
//! No foreign key points from a secret to its subject. The transaction that deletes a subject also
//! deletes its secret.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use bellbird_domain::{ConnectionId, EndpointId, UserId};
use secrecy::{ExposeSecret, SecretString};
use uuid::Uuid;

use crate::db::{Db, Param, Row, Tx, params, statements};
use crate::error::Result;
use crate::secrets::sealer;
use crate::{SealError, SealedFor, Secrets, key_id_of};

/// Secrets sealed again in one transaction: few enough that other writers hardly wait.
const RESEAL_BATCH_SIZE: i64 = 50;
/// Secrets read by one statement.
const SCAN_BATCH_SIZE: i64 = 500;

statements! {
    UPSERT = "INSERT INTO secrets (user_id, purpose, subject, sealed) VALUES ($1, $2, $3, $4)
        ON CONFLICT (user_id, purpose, subject) DO UPDATE SET sealed = excluded.sealed";

    FIND = "SELECT sealed FROM secrets WHERE user_id = $1 AND purpose = $2 AND subject = $3";

    DELETE = "DELETE FROM secrets WHERE user_id = $1 AND purpose = $2 AND subject = $3";

    LIST = "SELECT user_id, purpose, subject, sealed FROM secrets
        WHERE (user_id, purpose, subject) > ($1, $2, $3) ORDER BY user_id, purpose, subject LIMIT $4";

    COUNT = "SELECT COUNT(*) FROM secrets";

    /// One that begins with $1. $2 is the end of the values that do.
    FIND_SEALED_WITH = "SELECT user_id, purpose, subject, sealed FROM secrets WHERE sealed >= $1 AND sealed < $2
        LIMIT 1";

    /// Compares before it writes, so a secret that changed since it was read stays.
    RESEAL = "UPDATE secrets SET sealed = $5 WHERE user_id = $1 AND purpose = $2 AND subject = $3 AND sealed = $4";
}

/// The key of a secret: user, purpose and subject. All three are authenticated with the sealed
/// value.
#[derive(Debug, Clone)]
pub(crate) struct SecretSlot {
    user: UserId,
    purpose: String,
    subject: String,
}

impl SecretSlot {
    fn new(user: UserId, purpose: &str, subject: impl ToString) -> Self {
        Self {
            user,
            purpose: purpose.to_owned(),
            subject: subject.to_string(),
        }
    }

    /// What the adapter reads a connection with.
    pub(crate) fn credentials(user: UserId, connection: ConnectionId) -> Self {
        Self::new(user, "credentials", connection)
    }

    /// The credentials of a user whom we registered at a provider.
    pub(crate) fn provider_user(user: UserId, provider: &str) -> Self {
        Self::new(user, "provider_user", provider)
    }

    /// The callback parameters of a consent session, then the credentials obtained for them.
    pub(crate) fn consent_session(user: UserId, session: Uuid) -> Self {
        Self::new(user, "consent_session", session)
    }

    /// The key of a connection's fingerprints.
    pub(crate) fn fingerprint_key(user: UserId, connection: ConnectionId) -> Self {
        Self::new(user, "fingerprints", connection)
    }

    /// The secret that signs an endpoint's messages.
    pub(crate) fn webhook(user: UserId, endpoint: EndpointId) -> Self {
        Self::new(user, "webhook", endpoint)
    }

    /// The previous secret, valid until it expires.
    pub(crate) fn old_webhook(user: UserId, endpoint: EndpointId) -> Self {
        Self::new(user, "old_webhook", endpoint)
    }

    /// The credentials of the installation at a provider, or what is entered for the console.
    pub(crate) fn provider_settings(provider: &str) -> Self {
        Self::new(UserId::INSTALLATION, "provider_settings", provider)
    }

    /// The response to an operator's request with an `Idempotency-Key`.
    pub(crate) fn operator_request(user: UserId, request: Uuid) -> Self {
        Self::new(user, "operator_request", request)
    }

    fn params(&self) -> [Param<'_>; 3] {
        [
            self.user.into(),
            self.purpose.as_str().into(),
            self.subject.as_str().into(),
        ]
    }
}

/// Counts of secrets by master key.
#[derive(Debug, Default)]
pub struct SealedSecrets {
    /// The number of secrets for each key id in their header, whether they open or not.
    pub by_key: BTreeMap<String, u64>,
    /// The number of those that open, for each key id.
    pub opened_by: BTreeMap<String, u64>,
    pub unopenable: Vec<UnopenableSecret>,
}

/// A secret that no configured key opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnopenableSecret {
    pub user_id: UserId,
    /// `credentials`, `provider_user`, `consent_session`, `fingerprints`, `webhook`, `old_webhook`,
    /// `operator_request` or `provider_settings`.
    pub purpose: String,
    /// The id of a connection, consent session, endpoint or request, the name of a provider, or
    /// `console`.
    pub subject: String,
    /// Names the missing key, if that is the reason.
    pub why: SealError,
}

/// What `storage.secrets().reseal_all` did.
#[derive(Debug, Default)]
pub struct ResealCounts {
    /// Now sealed with the first key.
    pub resealed: u64,
    /// Already sealed with the first key.
    pub already_current: u64,
    /// Left unchanged, because no key opens them.
    pub unopenable: u64,
}

/// Whether the files of the database still hold secrets sealed with an old key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftovers {
    None,
    /// A reader kept SQLite's WAL from being emptied. A retry may succeed.
    InWal,
    /// PostgreSQL keeps dead rows until VACUUM, and also its own log. Bellbird cannot erase them.
    ServerManaged,
}

/// A row of the table.
struct Stored {
    slot: SecretSlot,
    sealed: Vec<u8>,
}

impl<'s> Secrets<'s> {
    /// Opens the credentials of the user's connection, even of one being deleted.
    pub async fn find_credentials(
        self,
        user: UserId,
        connection: ConnectionId,
    ) -> Result<Option<SecretString>> {
        self.find(&SecretSlot::credentials(user, connection)).await
    }

    /// Counts secrets by key, and lists those that cannot be opened.
    pub async fn sealed(self) -> Result<SealedSecrets> {
        let mut found = SealedSecrets::default();
        let mut after = None;
        loop {
            let secrets = self
                .db
                .all(LIST, &list_params(after.as_ref(), SCAN_BATCH_SIZE), stored)
                .await?;
            let Some(last) = secrets.last() else {
                return Ok(found);
            };
            after = Some(last.slot.clone());
            for Stored { slot, sealed } in secrets {
                let opened = self.open_secret(&slot, &sealed);
                if let Some(key) = key_id_of(&sealed) {
                    *found.by_key.entry(key.to_owned()).or_default() += 1;
                    *found.opened_by.entry(key.to_owned()).or_default() +=
                        u64::from(opened.is_ok());
                }
                if let Err(why) = opened {
                    found.unopenable.push(UnopenableSecret {
                        user_id: slot.user,
                        purpose: slot.purpose,
                        subject: slot.subject,
                        why,
                    });
                }
            }
        }
    }

    /// Fails if the key that seals is another one than the key of the same id that sealed what is
    /// stored, because a database with both could never be opened whole. Reads one secret, and all
    /// of them only if that one does not open: it may be damaged alone. If nothing has the id of
    /// this key yet, each seal from now on checks it again, until something has: another process
    /// may begin to seal with another key of this id.
    ///
    /// # Errors
    /// [`SealError::OtherKey`] if secrets have the id of this key, and it opens none of them.
    pub async fn check_sealing_key(self) -> Result<()> {
        let id = self.sealing_key_id();
        let (begin, end) = sealed_with(id);
        let range = params![&begin, &end];
        let Some(Stored { slot, sealed }) = self.db.one(FIND_SEALED_WITH, range, stored).await?
        else {
            self.sealing_key_is_new.store(true, Ordering::Relaxed);
            return Ok(());
        };
        if self.open_secret(&slot, &sealed).is_ok() {
            return Ok(());
        }
        let secrets = self.sealed().await?;
        if secrets.opened_by.get(id).is_some_and(|opened| *opened > 0) {
            return Ok(());
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for secret in secrets
            .unopenable
            .iter()
            .filter(|secret| secret.why == SealError::DoesNotOpen)
        {
            *counts.entry(&secret.purpose).or_default() += 1;
        }
        let affected: Vec<_> = counts
            .iter()
            .map(|(purpose, count)| format!("{purpose}: {count}"))
            .collect();
        Err(SealError::OtherKey {
            id: id.to_owned(),
            affected: affected.join(", "),
        }
        .into())
    }

    /// As [`Self::check_sealing_key`], in a transaction that seals, if nothing had the id of the
    /// key then.
    async fn check_new_sealing_key(self, tx: &mut Tx) -> Result<()> {
        if !self.sealing_key_is_new.load(Ordering::Relaxed) {
            return Ok(());
        }
        let id = self.sealing_key_id();
        let (begin, end) = sealed_with(id);
        let found = tx
            .one(FIND_SEALED_WITH, params![&begin, &end], stored)
            .await?;
        let Some(Stored { slot, sealed }) = found else {
            return Ok(());
        };
        if self.open_secret(&slot, &sealed).is_err() {
            return Err(SealError::OtherKey {
                id: id.to_owned(),
                affected: slot.purpose,
            }
            .into());
        }
        self.sealing_key_is_new.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// See [`crate::Sealer::name_key`].
    pub fn name_key(self) -> [u8; 32] {
        self.sealer.name_key()
    }

    /// The id of the key that seals.
    pub fn sealing_key_id(self) -> &'s str {
        self.0.sealer.key_ids().next().unwrap_or_default()
    }

    pub async fn count(self) -> Result<u64> {
        self.db.count(COUNT, params![]).await
    }

    /// Seals all secrets with the first key, a few in one transaction, and reports how many of them
    /// were read. Secrets already under that key are skipped, so an interrupted rotation can start
    /// again. A secret that changes meanwhile is not lost: its new value is sealed. A secret that
    /// cannot be opened is counted, not an error.
    pub async fn reseal_all(self, mut on_progress: impl FnMut(u64)) -> Result<ResealCounts> {
        let mut counts = ResealCounts::default();
        let mut after = None;
        loop {
            let mut tx = self.db.begin().await?;
            let secrets = tx
                .all(
                    LIST,
                    &list_params(after.as_ref(), RESEAL_BATCH_SIZE),
                    stored,
                )
                .await?;
            let Some(last) = secrets.last() else {
                tx.rollback().await;
                return Ok(counts);
            };
            after = Some(last.slot.clone());
            let (read, resealed_before) = (secrets.len() as u64, counts.resealed);
            for secret in secrets {
                self.reseal(&mut tx, secret, &mut counts).await?;
            }
            if counts.resealed > resealed_before {
                tx.commit().await?;
            } else {
                tx.rollback().await;
            }
            on_progress(read);
        }
    }

    async fn reseal(self, tx: &mut Tx, secret: Stored, counts: &mut ResealCounts) -> Result<()> {
        let Stored {
            slot,
            sealed: mut before,
        } = secret;
        let [user, purpose, subject] = slot.params();
        loop {
            let Ok(opened) = self.open_secret(&slot, &before) else {
                counts.unopenable += 1;
                return Ok(());
            };
            if key_id_of(&before) == Some(self.sealing_key_id()) {
                counts.already_current += 1;
                return Ok(());
            }
            let resealed = self.seal_secret(tx, &slot, &opened).await?;
            let values = params![user, purpose, subject, &before, &resealed];
            if tx.changes(RESEAL, values).await? {
                counts.resealed += 1;
                return Ok(());
            }
            // The secret changed meanwhile: retry with its new value, if it still exists.
            let Some(changed) = tx.value(FIND, &slot.params()).await? else {
                return Ok(());
            };
            before = changed;
        }
    }

    /// Erases old sealed values from the database files, as far as Bellbird can. Call it after the
    /// last [`Self::reseal_all`], even if that changed nothing: an earlier rotation may have been
    /// interrupted before this step.
    ///
    /// # Errors
    /// [`StorageError::Unavailable`](crate::StorageError::Unavailable) also if another process
    /// writes to the SQLite file for several seconds.
    pub async fn erase_leftovers(self) -> Result<Leftovers> {
        match &self.db {
            Db::Sqlite(db) => Ok(if db.compact().await? {
                Leftovers::None
            } else {
                Leftovers::InWal
            }),
            Db::Postgres(_) => Ok(Leftovers::ServerManaged),
        }
    }

    /// Seals a secret and stores it, replacing the old one.
    pub(crate) async fn store(
        self,
        tx: &mut Tx,
        slot: &SecretSlot,
        secret: &SecretString,
    ) -> Result<()> {
        let sealed = self.seal_secret(tx, slot, secret).await?;
        store_sealed(tx, slot, &sealed).await
    }

    /// Opens the secret of a slot, if there is one.
    pub(crate) async fn find(self, slot: &SecretSlot) -> Result<Option<SecretString>> {
        let sealed: Option<Vec<u8>> = self.db.value(FIND, &slot.params()).await?;
        let opened = sealed.map(|sealed| self.open_secret(slot, &sealed));
        Ok(opened.transpose()?)
    }

    /// As [`Self::find`], in a transaction.
    pub(crate) async fn find_in(
        self,
        tx: &mut Tx,
        slot: &SecretSlot,
    ) -> Result<Option<SecretString>> {
        let sealed: Option<Vec<u8>> = tx.value(FIND, &slot.params()).await?;
        let opened = sealed.map(|sealed| self.open_secret(slot, &sealed));
        Ok(opened.transpose()?)
    }

    /// Copies a secret to another slot. A secret that cannot be opened is copied as it is: it
    /// cannot be opened there either, and a later read reports that.
    pub(crate) async fn copy(self, tx: &mut Tx, from: &SecretSlot, to: &SecretSlot) -> Result<()> {
        let held: Option<Vec<u8>> = tx.value(FIND, &from.params()).await?;
        let Some(held) = held else {
            return Ok(());
        };
        let resealed = match self.open_secret(from, &held) {
            Ok(secret) => self.seal_secret(tx, to, &secret).await?,
            Err(_) => held,
        };
        store_sealed(tx, to, &resealed).await
    }

    async fn seal_secret(
        self,
        tx: &mut Tx,
        slot: &SecretSlot,
        secret: &SecretString,
    ) -> Result<Vec<u8>> {
        self.check_new_sealing_key(tx).await?;
        let row = (slot.user.to_string(), slot.subject.as_str());
        let sealed_for = SealedFor {
            purpose: &slot.purpose,
            row: &[&row.0, row.1],
        };
        Ok(self
            .sealer
            .seal(sealed_for, secret.expose_secret().as_bytes())?)
    }

    fn open_secret(
        self,
        slot: &SecretSlot,
        sealed: &[u8],
    ) -> std::result::Result<SecretString, SealError> {
        let row = (slot.user.to_string(), slot.subject.as_str());
        let opened = self.sealer.open(
            SealedFor {
                purpose: &slot.purpose,
                row: &[&row.0, row.1],
            },
            sealed,
        )?;
        let text = std::str::from_utf8(&opened).map_err(|_| SealError::DoesNotOpen)?;
        Ok(SecretString::from(text))
    }
}

async fn store_sealed(tx: &mut Tx, slot: &SecretSlot, sealed: &[u8]) -> Result<()> {
    let [user, purpose, subject] = slot.params();
    tx.execute(UPSERT, params![user, purpose, subject, sealed])
        .await
}

/// Deletes a secret, in the transaction that deletes its subject. Idempotent.
pub(crate) async fn delete_secret(tx: &mut Tx, slot: &SecretSlot) -> Result<()> {
    tx.execute(DELETE, &slot.params()).await
}

/// The parameters of [`FIND_SEALED_WITH`].
fn sealed_with(key_id: &str) -> (Vec<u8>, Vec<u8>) {
    let begin = sealer::header(key_id);
    let mut end = begin.clone();
    // The last character of an id is ASCII.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    (begin, end)
}

/// The parameters of [`LIST`]. The nil user without a purpose sorts before the first key.
fn list_params(after: Option<&SecretSlot>, rows: i64) -> [Param<'_>; 4] {
    let [user, purpose, subject] = after.map_or(
        [Uuid::nil().into(), "".into(), "".into()],
        SecretSlot::params,
    );
    [user, purpose, subject, rows.into()]
}

fn stored(row: &Row<'_>) -> Result<Stored> {
    let slot = SecretSlot {
        user: row.get(0)?,
        purpose: row.get(1)?,
        subject: row.get(2)?,
    };
    Ok(Stored {
        slot,
        sealed: row.get(3)?,
    })
}
