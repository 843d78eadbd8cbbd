//! Stores fingerprints of the transactions and trades ("rows") that syncs have seen, never a row itself. A fingerprint
//! is two digests, keyed with a secret of the connection, which is sealed in the table `secrets`. All fingerprints of a
//! connection are one value (docs/adr/0012-fingerprints.md).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_domain::{ConnectionId, ContentDigest, Digest, Fingerprint, UserId};
use secrecy::SecretString;

use crate::db::{Bound, named, params, statements};
use crate::error::Result;
use crate::jobs::{ClaimedJob, sync_is_held};
use crate::locks::lock_user_if_exists;
use crate::secrets::store::SecretSlot;
use crate::{StorageError, Syncs, random_bytes};

/// Version of the stored form, its first byte.
const VERSION: u8 = 1;
/// Row digest (16), content digest (8), then occurrence, `seen_at`, `first_sequence` and `changed_sequence` (4 each,
/// big endian).
const ENTRY_BYTES: usize = 40;
const KEY_BYTES: usize = 32;

statements! {
    LIST = "SELECT entries FROM fingerprints WHERE user_id = $1 AND connection_id = $2";

    STORE = concat!(
        "INSERT INTO fingerprints (user_id, connection_id, entries) SELECT :user, :connection, :entries WHERE ",
        sync_is_held!(),
        " ON CONFLICT (user_id, connection_id) DO UPDATE SET entries = excluded.entries"
    );

    HAS_CONNECTION = "SELECT id FROM connections WHERE user_id = $1 AND id = $2 AND status <> 'deleting'";
}

impl Syncs<'_> {
    /// The fingerprints of the user's connection, sorted.
    pub async fn list_fingerprints(self, user: UserId, connection: ConnectionId) -> Result<Vec<Fingerprint>> {
        Ok(self.0.db.one(LIST, params![user, connection], |row| decode(row.blob(0)?)).await?.unwrap_or_default())
    }

    /// Returns the key of a connection's fingerprints: 32 random bytes in base64. The first call generates and seals
    /// it. None if the user has no such connection, or it is being deleted.
    pub async fn fingerprint_key(self, user: UserId, connection: ConnectionId) -> Result<Option<SecretString>> {
        let slot = SecretSlot::fingerprint_key(user, connection);
        if self.0.db.one(HAS_CONNECTION, params![user, connection], |_| Ok(())).await?.is_none() {
            return Ok(None);
        }
        if let Some(key) = self.0.secrets().find(&slot).await? {
            return Ok(Some(key));
        }
        let mut tx = self.0.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await?
            || tx.one(HAS_CONNECTION, params![user, connection], |_| Ok(())).await?.is_none()
        {
            tx.rollback().await;
            return Ok(None);
        }
        // Another task may have stored a key meanwhile.
        if let Some(key) = self.0.secrets().find_in(&mut tx, &slot).await? {
            tx.rollback().await;
            return Ok(Some(key));
        }
        let key = SecretString::from(STANDARD.encode(*random_bytes::<KEY_BYTES>()));
        self.0.secrets().store(&mut tx, &slot, &key).await?;
        tx.commit().await?;
        Ok(Some(key))
    }
}

/// Replaces the fingerprints of a connection by encoded ones.
pub(crate) fn store<'a>(claim: &ClaimedJob, entries: &'a [u8]) -> Bound<'a> {
    let (user, connection) = (claim.user_id(), claim.subject_id::<ConnectionId>());
    STORE.with(named![user = user, connection = connection, entries = entries, fence = claim.fence])
}

/// The stored form of fingerprints, which must be sorted.
pub(crate) fn encode(fingerprints: &[Fingerprint]) -> Vec<u8> {
    debug_assert!(fingerprints.is_sorted_by(|one, other| one.key() < other.key()), "sorted, without repetitions");
    let mut entries = Vec::with_capacity(1 + fingerprints.len() * ENTRY_BYTES);
    entries.push(VERSION);
    for Fingerprint { row, occurrence, content, seen_at, first_sequence, changed_sequence } in fingerprints {
        entries.extend_from_slice(&row.0);
        entries.extend_from_slice(&content.0);
        for number in [occurrence, seen_at, first_sequence, changed_sequence] {
            entries.extend_from_slice(&number.to_be_bytes());
        }
    }
    entries
}

fn decode(entries: &[u8]) -> Result<Vec<Fingerprint>> {
    const CORRUPT: StorageError = StorageError::Corrupt("the fingerprints of a connection");
    let (entries, rest) = match entries.split_first() {
        Some((&VERSION, entries)) => entries.as_chunks::<ENTRY_BYTES>(),
        _ => return Err(CORRUPT),
    };
    let fingerprints: Vec<Fingerprint> = entries.iter().map(fingerprint).collect::<Option<_>>().ok_or(CORRUPT)?;
    // A comparison of fingerprints in another order would report rows again.
    if !rest.is_empty() || !fingerprints.is_sorted_by(|one, other| one.key() < other.key()) {
        return Err(CORRUPT);
    }
    Ok(fingerprints)
}

fn fingerprint(entry: &[u8; ENTRY_BYTES]) -> Option<Fingerprint> {
    let (row, entry) = entry.split_first_chunk()?;
    let (content, entry) = entry.split_first_chunk()?;
    let [occurrence, seen_at, first_sequence, changed_sequence] = *entry.as_chunks::<4>().0 else { return None };
    Some(Fingerprint {
        row: Digest(*row),
        occurrence: u32::from_be_bytes(occurrence),
        content: ContentDigest(*content),
        seen_at: u32::from_be_bytes(seen_at),
        first_sequence: u32::from_be_bytes(first_sequence),
        changed_sequence: u32::from_be_bytes(changed_sequence),
    })
}
