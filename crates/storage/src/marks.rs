//! Marks: what is remembered of rows that were seen. Digests with a key that is the connection's own, never a row.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_domain::{ConnectionId, Digest, Mark, UserId};
use jiff::Timestamp;
use secrecy::SecretString;
use zeroize::Zeroizing;

use crate::db::{Row, Tx, params, statements};
use crate::secrets::Place;
use crate::users::lock_if_there;
use crate::{SealError, Storage, StorageError};

type Result<T> = std::result::Result<T, StorageError>;

/// Marks that one statement writes.
const MARKS_AT_ONCE: usize = 1000;
const KEY_BYTES: usize = 32;

/// `$3` holds the digests of the rows and of their contents, 32 bytes a mark, and `$4` the occurrences, ten digits a mark:
/// bytes, because places in a text are counted from its beginning. The half of `packed` that is always empty says what
/// `$3` is: PostgreSQL takes it for a text otherwise. `WHERE 1 = 1` keeps SQLite from reading `ON CONFLICT` as part of a
/// join.
macro_rules! upsert {
    ($digits:literal) => {
        concat!(
            "WITH RECURSIVE n(i) AS (
                SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $5
            ), packed(digests) AS (SELECT content FROM row_marks WHERE 1 = 0 UNION ALL SELECT $3)
            INSERT INTO row_marks (user_id, connection_id, row_digest, occurrence, content, seen_at)
            SELECT $1, $2, substr(digests, CAST(i * 32 + 1 AS INTEGER), 16), CAST(",
            $digits,
            " AS BIGINT), substr(digests, CAST(i * 32 + 17 AS INTEGER), 16), $6
            FROM n CROSS JOIN packed WHERE 1 = 1
            ON CONFLICT (user_id, connection_id, row_digest, occurrence)
                DO UPDATE SET content = excluded.content, seen_at = excluded.seen_at"
        )
    };
}

statements! {
    LIST = "SELECT row_digest, occurrence, content, seen_at FROM row_marks WHERE user_id = $1 AND connection_id = $2";

    UPSERT = upsert!("CAST(substr($4, i * 10 + 1, 10) AS TEXT)"),
        on_postgres = upsert!("convert_from(substr(CAST($4 AS BYTEA), CAST(i * 10 + 1 AS INTEGER), 10), 'UTF8')");

    PRUNE = "DELETE FROM row_marks WHERE user_id = $1 AND connection_id = $2 AND seen_at < $3";

    HAS_CONNECTION = "SELECT id FROM connections WHERE user_id = $1 AND id = $2 AND status <> 'deleting'";
}

impl Storage {
    /// The marks of the user's connection, each with the time at which its row was seen, in no order.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list_marks(&self, user: UserId, connection: ConnectionId) -> Result<Vec<(Mark, Timestamp)>> {
        self.db.all(LIST, params![user, connection], mark).await
    }

    /// The key of a connection's marks: 32 random bytes, in base64. Made and sealed when it is asked for the first time.
    /// None when there is no such connection of the user, or it is being deleted.
    ///
    /// # Errors
    /// [`StorageError::Sealed`] when it does not open, or when there are no random numbers.
    pub async fn marks_key(&self, user: UserId, connection: ConnectionId) -> Result<Option<SecretString>> {
        let place = Place::marks(user, connection);
        if self.db.one(HAS_CONNECTION, params![user, connection], |_| Ok(())).await?.is_none() {
            return Ok(None);
        }
        if let Some(key) = self.find_secret(&place).await? {
            return Ok(Some(key));
        }
        let mut tx = self.db.begin().await?;
        if !lock_if_there(&mut tx, user).await?
            || tx.one(HAS_CONNECTION, params![user, connection], |_| Ok(())).await?.is_none()
        {
            tx.rollback().await;
            return Ok(None);
        }
        // Somebody else may have been faster.
        if let Some(key) = self.find_secret_in(&mut tx, &place).await? {
            tx.rollback().await;
            return Ok(Some(key));
        }
        let key = new_key()?;
        self.store_secret(&mut tx, &place, &key).await?;
        tx.commit().await?;
        Ok(Some(key))
    }
}

fn new_key() -> Result<SecretString> {
    let mut bytes = Zeroizing::new([0_u8; KEY_BYTES]);
    rand::fill(&mut *bytes).map_err(|_| SealError::DoesNotSeal)?;
    Ok(SecretString::from(STANDARD.encode(*bytes)))
}

/// Writes marks, over those of the same row and occurrence. The connection's row is locked.
pub(crate) async fn upsert(
    tx: &mut Tx,
    (user, connection): (UserId, ConnectionId),
    marks: &[Mark],
    seen_at: Timestamp,
) -> Result<()> {
    // In the order of the table, so that each page of it is written once. PostgreSQL refuses to write a row twice.
    let mut sorted: Vec<&Mark> = marks.iter().collect();
    sorted.sort_unstable_by_key(|mark| (mark.row, mark.occurrence));
    sorted.dedup_by_key(|mark| (mark.row, mark.occurrence));
    for some in sorted.chunks(MARKS_AT_ONCE) {
        let digests: Vec<u8> = some.iter().flat_map(|mark| mark.row.0.into_iter().chain(mark.content.0)).collect();
        let occurrences: String = some.iter().map(|mark| format!("{:010}", mark.occurrence)).collect();
        let count = i64::try_from(some.len()).unwrap_or(0);
        let values = params![user, connection, digests.as_slice(), occurrences.as_bytes(), count, seen_at];
        tx.run(UPSERT, values).await?;
    }
    Ok(())
}

/// Forgets what was last seen before then. The connection's row is locked.
pub(crate) async fn prune(tx: &mut Tx, (user, connection): (UserId, ConnectionId), before: Timestamp) -> Result<()> {
    tx.run(PRUNE, params![user, connection, before]).await.map(|_| ())
}

fn mark(row: &Row<'_>) -> Result<(Mark, Timestamp)> {
    let mark = Mark {
        row: digest(row.blob(0)?)?,
        occurrence: row.number(1, "the number of a row")?,
        content: digest(row.blob(2)?)?,
    };
    Ok((mark, row.time(3)?))
}

/// A digest of the bytes that the database holds.
pub(crate) fn digest(bytes: &[u8]) -> Result<Digest> {
    bytes.try_into().map(Digest).map_err(|_| StorageError::Corrupt("the digest of a row"))
}
