//! Stores fingerprints of the transactions and trades ("rows") that syncs have seen, never a row
//! itself. A fingerprint is digests and numbers. The digests are keyed with a secret of the
//! connection, which is sealed in the table `secrets`. All fingerprints of a connection are one
//! value (docs/adr/0012-fingerprints.md).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_domain::{
    AccountTag, ConnectionId, ContentDigest, Digest, Fingerprint, Fingerprints, RowDigests, RowKey,
    UserId, UtcDay,
};
use secrecy::SecretString;

use crate::connections::connection;
use crate::db::{Bound, Row, named, params, statements};
use crate::error::Result;
use crate::jobs::{ClaimedJob, sync_is_held};
use crate::locks::lock_user_if_exists;
use crate::secrets::store::SecretSlot;
use crate::{StorageError, Syncs, random_bytes};

/// Version of the stored form, its first byte.
const VERSION: u8 = 2;
/// Row digest (16), content and likeness (8 each), key (8), account, occurrence, `seen_at`,
/// `first_version` and `changed_version` (4 each, big endian), day (2), misses and whether the row
/// is gone (1 each).
const ENTRY_BYTES: usize = 64;
const KEY_BYTES: usize = 32;

statements! {
    FIND = "SELECT entries, change_versions, forgotten_version FROM fingerprints
        WHERE user_id = $1 AND connection_id = $2";

    STORE = concat!(
        "INSERT INTO fingerprints (user_id, connection_id, entries, change_versions, forgotten_version)
            SELECT :user, :connection, :entries, :change_versions, :forgotten_version WHERE ",
        sync_is_held!(),
        " ON CONFLICT (user_id, connection_id) DO UPDATE
            SET entries = excluded.entries, change_versions = excluded.change_versions,
                forgotten_version = excluded.forgotten_version"
    );
}

impl Syncs<'_> {
    /// The fingerprints of the user's connection, as they were stored.
    pub async fn fingerprints(
        self,
        user: UserId,
        connection: ConnectionId,
    ) -> Result<Fingerprints> {
        Ok(self
            .db
            .one(FIND, params![user, connection], decode)
            .await?
            .unwrap_or_default())
    }

    /// Returns the key of a connection's fingerprints: 32 random bytes in base64. The first call
    /// generates and seals it. None if the user has no such connection, or it is being deleted.
    pub async fn fingerprint_key(
        self,
        user: UserId,
        connection: ConnectionId,
    ) -> Result<Option<SecretString>> {
        let slot = SecretSlot::fingerprint_key(user, connection);
        if self.connections().find(user, connection).await?.is_none() {
            return Ok(None);
        }
        if let Some(key) = self.secrets().find(&slot).await? {
            return Ok(Some(key));
        }
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await?
            || connection::find(&mut tx, user, connection).await?.is_none()
        {
            tx.rollback().await;
            return Ok(None);
        }
        // Another task may have stored a key meanwhile.
        if let Some(key) = self.secrets().find_in(&mut tx, &slot).await? {
            tx.rollback().await;
            return Ok(Some(key));
        }
        let key = SecretString::from(STANDARD.encode(*random_bytes::<KEY_BYTES>()));
        self.secrets().store(&mut tx, &slot, &key).await?;
        tx.commit().await?;
        Ok(Some(key))
    }
}

/// Fingerprints as they are stored.
pub(crate) struct Encoded {
    entries: Vec<u8>,
    change_versions: Vec<u8>,
    forgotten_version: u32,
}

/// Replaces the fingerprints of a connection.
pub(crate) fn store<'a>(claim: &'a ClaimedJob, encoded: &'a Encoded) -> Bound<'a> {
    STORE.with(named![
        user = claim.user_id(),
        connection = claim.subject_id::<ConnectionId>(),
        entries = &encoded.entries,
        change_versions = &encoded.change_versions,
        forgotten_version = encoded.forgotten_version,
        subject = &claim.key.subject,
        fence = claim.fence,
    ])
}

/// The stored form of fingerprints, which must be sorted.
pub(crate) fn encode(
    Fingerprints {
        rows,
        change_versions,
        forgotten_version,
    }: &Fingerprints,
) -> Encoded {
    debug_assert!(
        rows.is_sorted_by(|one, other| one.id() < other.id()),
        "sorted, without repetitions"
    );
    let mut entries = Vec::with_capacity(1 + rows.len() * ENTRY_BYTES);
    entries.push(VERSION);
    for Fingerprint {
        digests,
        occurrence,
        key,
        seen_at,
        misses,
        is_gone,
        first_version,
        changed_version,
    } in rows
    {
        entries.extend_from_slice(&digests.row.0);
        for digest in [digests.content.0, digests.likeness.0, key.0] {
            entries.extend_from_slice(&digest);
        }
        for number in [
            &digests.account.0,
            occurrence,
            seen_at,
            first_version,
            changed_version,
        ] {
            entries.extend_from_slice(&number.to_be_bytes());
        }
        entries.extend_from_slice(&digests.day.0.to_be_bytes());
        entries.extend_from_slice(&[*misses, u8::from(*is_gone)]);
    }
    let change_versions = change_versions
        .iter()
        .flat_map(|change_version| change_version.to_be_bytes())
        .collect();
    Encoded {
        entries,
        change_versions,
        forgotten_version: *forgotten_version,
    }
}

fn decode(row: &Row<'_>) -> Result<Fingerprints> {
    const CORRUPT: StorageError = StorageError::Corrupt("the fingerprints of a connection");
    let (rows, rest) = match row.blob(0)?.split_first() {
        Some((&VERSION, entries)) => entries.as_chunks::<ENTRY_BYTES>(),
        _ => return Err(CORRUPT),
    };
    let (change_versions, rest_of_versions) = row.blob(1)?.as_chunks();
    // Collecting options would let the list grow step by step.
    let mut fingerprints = Vec::with_capacity(rows.len());
    for entry in rows {
        fingerprints.push(fingerprint(entry).ok_or(CORRUPT)?);
    }
    let decoded = Fingerprints {
        rows: fingerprints,
        change_versions: change_versions
            .iter()
            .map(|change_version| u32::from_be_bytes(*change_version))
            .collect(),
        forgotten_version: row.number(2, "a change version")?,
    };
    // A comparison of fingerprints in another order would report rows again.
    let is_sorted = decoded
        .rows
        .is_sorted_by(|one, other| one.id() < other.id())
        && decoded
            .change_versions
            .is_sorted_by(|one, other| one < other);
    if rest.is_empty() && rest_of_versions.is_empty() && is_sorted {
        Ok(decoded)
    } else {
        Err(CORRUPT)
    }
}

fn fingerprint(entry: &[u8; ENTRY_BYTES]) -> Option<Fingerprint> {
    let (row, entry) = entry.split_first_chunk()?;
    let (digests, entry) = entry.split_first_chunk::<24>()?;
    let [content, likeness, key] = *digests.as_chunks::<8>().0 else {
        return None;
    };
    let (numbers, entry) = entry.split_first_chunk::<20>()?;
    let [account, occurrence, seen_at, first_version, changed_version] =
        *numbers.as_chunks::<4>().0
    else {
        return None;
    };
    let [day @ .., misses, is_gone] = entry else {
        return None;
    };
    Some(Fingerprint {
        digests: RowDigests {
            row: Digest(*row),
            content: ContentDigest(content),
            likeness: ContentDigest(likeness),
            account: AccountTag(u32::from_be_bytes(account)),
            day: UtcDay(u16::from_be_bytes(*day.first_chunk()?)),
        },
        occurrence: u32::from_be_bytes(occurrence),
        key: RowKey(key),
        seen_at: u32::from_be_bytes(seen_at),
        misses: *misses,
        is_gone: *is_gone != 0,
        first_version: u32::from_be_bytes(first_version),
        changed_version: u32::from_be_bytes(changed_version),
    })
}
