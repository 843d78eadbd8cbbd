//! Stores fingerprints of the transactions and trades ("rows") that syncs have seen, never a row itself. A fingerprint
//! is two digests, keyed with a secret of the connection, which is sealed in the table `secrets`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_domain::{ConnectionId, Fingerprint, UserId};
use jiff::Timestamp;
use secrecy::SecretString;

use crate::db::{Row, Tx, params, statements};
use crate::digest::parse_digest;
use crate::error::Result;
use crate::locks::lock_user_if_exists;
use crate::secrets::store::SecretSlot;
use crate::{Storage, random_bytes};

/// Fingerprints written by one statement.
const FINGERPRINTS_PER_STATEMENT: usize = 1000;
const KEY_BYTES: usize = 32;

/// Inserts `$5` fingerprints from packed parameters. `$3` holds 32 bytes for each: the row digest, then the content
/// digest. `$4` holds ten digits for each: the occurrence. `$4` is bytes, because finding the n-th character of a text
/// means counting from its start.
///
/// The first half of `packed` selects nothing. It only gives `$3` the type bytes, because PostgreSQL would assume text.
/// `WHERE 1 = 1` keeps SQLite from reading `ON CONFLICT` as part of a join.
macro_rules! upsert {
    ($digits:literal) => {
        concat!(
            "WITH RECURSIVE n(i) AS (
                SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $5
            ), packed(digests) AS (SELECT content_digest FROM row_fingerprints WHERE 1 = 0 UNION ALL SELECT $3)
            INSERT INTO row_fingerprints (user_id, connection_id, row_digest, occurrence, content_digest, seen_at)
            SELECT $1, $2, substr(digests, CAST(i * 32 + 1 AS INTEGER), 16), CAST(",
            $digits,
            " AS BIGINT), substr(digests, CAST(i * 32 + 17 AS INTEGER), 16), $6
            FROM n CROSS JOIN packed WHERE 1 = 1
            ON CONFLICT (user_id, connection_id, row_digest, occurrence)
                DO UPDATE SET content_digest = excluded.content_digest, seen_at = excluded.seen_at"
        )
    };
}

statements! {
    LIST = "SELECT row_digest, occurrence, content_digest, seen_at FROM row_fingerprints
        WHERE user_id = $1 AND connection_id = $2";

    UPSERT = upsert!("CAST(substr($4, i * 10 + 1, 10) AS TEXT)"),
        on_postgres = upsert!("convert_from(substr(CAST($4 AS BYTEA), CAST(i * 10 + 1 AS INTEGER), 10), 'UTF8')");

    PRUNE = "DELETE FROM row_fingerprints WHERE user_id = $1 AND connection_id = $2 AND seen_at < $3";

    HAS_CONNECTION = "SELECT id FROM connections WHERE user_id = $1 AND id = $2 AND status <> 'deleting'";
}

impl Storage {
    /// The fingerprints of the user's connection, in no order, each with the time at which its row was last seen.
    pub async fn list_fingerprints(
        &self,
        user: UserId,
        connection: ConnectionId,
    ) -> Result<Vec<(Fingerprint, Timestamp)>> {
        self.db.all(LIST, params![user, connection], fingerprint).await
    }

    /// Returns the key of a connection's fingerprints: 32 random bytes in base64. The first call generates and seals
    /// it. None if the user has no such connection, or it is being deleted.
    ///
    /// # Errors
    /// [`StorageError::Sealed`](crate::StorageError::Sealed) if the key cannot be opened, or the system has no random
    /// numbers.
    pub async fn fingerprint_key(&self, user: UserId, connection: ConnectionId) -> Result<Option<SecretString>> {
        let slot = SecretSlot::fingerprint_key(user, connection);
        if self.db.one(HAS_CONNECTION, params![user, connection], |_| Ok(())).await?.is_none() {
            return Ok(None);
        }
        if let Some(key) = self.find_secret(&slot).await? {
            return Ok(Some(key));
        }
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await?
            || tx.one(HAS_CONNECTION, params![user, connection], |_| Ok(())).await?.is_none()
        {
            tx.rollback().await;
            return Ok(None);
        }
        // Another task may have stored a key meanwhile.
        if let Some(key) = self.find_secret_in(&mut tx, &slot).await? {
            tx.rollback().await;
            return Ok(Some(key));
        }
        let key = SecretString::from(STANDARD.encode(*random_bytes::<KEY_BYTES>()));
        self.store_secret(&mut tx, &slot, &key).await?;
        tx.commit().await?;
        Ok(Some(key))
    }
}

/// Inserts fingerprints or replaces those of the same row and occurrence. The caller holds the lock on the connection's
/// row.
pub(crate) async fn upsert(
    tx: &mut Tx,
    (user, connection): (UserId, ConnectionId),
    fingerprints: &[Fingerprint],
    seen_at: Timestamp,
) -> Result<()> {
    // Sorted as the table is, so that each page is written once. Deduplicated, because PostgreSQL rejects two writes of
    // a row in one statement.
    let mut sorted: Vec<&Fingerprint> = fingerprints.iter().collect();
    sorted.sort_unstable_by_key(|fingerprint| (fingerprint.row, fingerprint.occurrence));
    sorted.dedup_by_key(|fingerprint| (fingerprint.row, fingerprint.occurrence));
    for batch in sorted.chunks(FINGERPRINTS_PER_STATEMENT) {
        let digests: Vec<u8> =
            batch.iter().flat_map(|fingerprint| fingerprint.row.0.into_iter().chain(fingerprint.content.0)).collect();
        let occurrences: String = batch.iter().map(|fingerprint| format!("{:010}", fingerprint.occurrence)).collect();
        let count = i64::try_from(batch.len()).unwrap_or(0);
        let values = params![user, connection, digests.as_slice(), occurrences.as_bytes(), count, seen_at];
        tx.run(UPSERT, values).await?;
    }
    Ok(())
}

/// Deletes fingerprints last seen before `before`. The caller holds the lock on the connection's row.
pub(crate) async fn prune(tx: &mut Tx, (user, connection): (UserId, ConnectionId), before: Timestamp) -> Result<()> {
    tx.run(PRUNE, params![user, connection, before]).await.map(|_| ())
}

fn fingerprint(row: &Row<'_>) -> Result<(Fingerprint, Timestamp)> {
    let fingerprint = Fingerprint {
        row: parse_digest(row.blob(0)?)?,
        occurrence: row.number(1, "the occurrence of a row")?,
        content: parse_digest(row.blob(2)?)?,
    };
    Ok((fingerprint, row.time(3)?))
}
