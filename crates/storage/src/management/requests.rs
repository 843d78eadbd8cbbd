//! Remembers the responses to requests with an `Idempotency-Key`, so that a repeated request
//! changes nothing again.
//!
//! The row is inserted first, in the transaction of the change, so a request that is repeated
//! meanwhile waits for it.

use bellbird_domain::{OperatorKeyId, TimestampExt as _, UserId};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use uuid::Uuid;

use crate::db::{Db, Row, Tx, params, scalar, statements};
use crate::error::{Result, StorageError};
use crate::locks::lock_user_if_exists;
use crate::secrets::store::{SecretSlot, delete_secret};
use crate::{Audit, Secrets};

/// How long a response is remembered.
const RETENTION: SignedDuration = SignedDuration::from_hours(24);
/// Rows deleted in one transaction, with their secrets.
const DELETE_BATCH_SIZE: i64 = 50;

/// `$lock` skips rows that another instance is deleting.
macro_rules! delete_outdated {
    ($lock:literal) => {
        concat!(
            "WITH old AS MATERIALIZED (SELECT operator_key_id, idempotency_hash FROM operator_requests
                WHERE created_at <= $1 LIMIT $2",
            $lock,
            ") DELETE FROM operator_requests WHERE (operator_key_id, idempotency_hash)
                IN (SELECT operator_key_id, idempotency_hash FROM old) RETURNING id, user_id"
        )
    };
}

statements! {
    FIND_EXPIRED = "SELECT user_id FROM operator_requests
        WHERE operator_key_id = $1 AND idempotency_hash = $2 AND created_at <= $3";

    DELETE_EXPIRED = "DELETE FROM operator_requests
        WHERE operator_key_id = $1 AND idempotency_hash = $2 AND created_at <= $3 RETURNING id, user_id";

    INSERT = "INSERT INTO operator_requests (operator_key_id, idempotency_hash, id, request_digest, created_at)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT (operator_key_id, idempotency_hash) DO NOTHING";

    FIND = "SELECT id, user_id, request_digest, status FROM operator_requests
        WHERE operator_key_id = $1 AND idempotency_hash = $2";

    FINISH = "UPDATE operator_requests SET user_id = $3, status = $4
        WHERE operator_key_id = $1 AND idempotency_hash = $2";

    DELETE_OF = "DELETE FROM operator_requests WHERE user_id = $1 RETURNING id, user_id";

    HAS_OUTDATED = "SELECT id FROM operator_requests WHERE created_at <= $1 LIMIT 1";

    DELETE_OUTDATED = delete_outdated!(""), on_postgres = delete_outdated!(" FOR UPDATE SKIP LOCKED");
}

/// What identifies a request that may be repeated.
#[derive(Debug, Clone, Copy)]
pub struct Idempotency {
    /// SHA-256 of the header `Idempotency-Key`.
    pub key_hash: [u8; 32],
    /// SHA-256 of method, path and body.
    pub request_digest: [u8; 32],
}

/// The response to an earlier request with the same key.
#[derive(Debug)]
pub struct StoredResponse {
    pub status: u16,
    pub body: SecretString,
}

/// What is known about an `Idempotency-Key`.
pub(crate) enum Found {
    /// It is new: the row of this id was inserted.
    Nothing(Uuid),
    /// That of the same request.
    Response(StoredResponse),
    /// It is that of another request, or of one whose response cannot be opened.
    OtherRequest,
}

struct Stored {
    slot: SecretSlot,
    request_digest: Vec<u8>,
    status: u16,
}

/// Forgets a response that is older than 24 hours, if the cleanup has not. In a transaction of its
/// own, because that of the change locks another user, and the locks of two users have no order.
pub(crate) async fn forget_expired(
    db: &Db,
    operator: OperatorKeyId,
    idempotency: &Idempotency,
    now: Timestamp,
) -> Result<()> {
    let values = params![operator, &idempotency.key_hash[..], now.minus(RETENTION)];
    let Some(user) = db
        .one(FIND_EXPIRED, values, scalar::<Option<UserId>>)
        .await?
    else {
        return Ok(());
    };
    let mut tx = db.begin().await?;
    if let Some(user) = user {
        lock_user_if_exists(&mut tx, user).await?;
    }
    let old = tx.all(DELETE_EXPIRED, values, deleted).await?;
    delete_secrets(&mut tx, old).await?;
    tx.commit().await
}

/// Inserts the row of a request, or finds that of an earlier one.
pub(crate) async fn begin(
    tx: &mut Tx,
    secrets: Secrets<'_>,
    operator: OperatorKeyId,
    idempotency: &Idempotency,
    now: Timestamp,
) -> Result<Found> {
    let key_hash = &idempotency.key_hash[..];
    let id = Uuid::now_v7();
    let values = params![operator, key_hash, id, &idempotency.request_digest[..], now];
    if tx.changes(INSERT, values).await? {
        return Ok(Found::Nothing(id));
    }
    let Some(found) = tx.one(FIND, params![operator, key_hash], stored).await? else {
        // Deleted with its user since.
        return Ok(Found::OtherRequest);
    };
    if found.request_digest != idempotency.request_digest {
        return Ok(Found::OtherRequest);
    }
    match secrets.find_in(tx, &found.slot).await {
        Ok(Some(body)) => Ok(Found::Response(StoredResponse {
            status: found.status,
            body,
        })),
        Ok(None) => Err(StorageError::Corrupt("a response without its body")),
        // Its master key is lost.
        Err(StorageError::Sealed(_)) => Ok(Found::OtherRequest),
        Err(error) => Err(error),
    }
}

/// Stores the response.
pub(crate) async fn finish(
    tx: &mut Tx,
    secrets: Secrets<'_>,
    (operator, idempotency, id): (OperatorKeyId, &Idempotency, Uuid),
    user: UserId,
    response: &StoredResponse,
) -> Result<()> {
    let values = params![operator, &idempotency.key_hash[..], user, response.status];
    tx.run(FINISH, values).await?;
    secrets
        .store(tx, &SecretSlot::operator_request(user, id), &response.body)
        .await
}

/// Deletes the remembered responses about a user.
pub(crate) async fn delete_of(tx: &mut Tx, user: UserId) -> Result<()> {
    let old = tx.all(DELETE_OF, params![user], deleted).await?;
    delete_secrets(tx, old).await
}

impl Audit<'_> {
    /// Deletes remembered responses that are older than 24 hours. Returns their number.
    pub async fn delete_outdated_requests(self, now: Timestamp) -> Result<u64> {
        let until = now.minus(RETENTION);
        let mut count = 0;
        while self.db.exists(HAS_OUTDATED, params![until]).await? {
            let mut tx = self.db.begin().await?;
            let old = tx
                .all(DELETE_OUTDATED, params![until, DELETE_BATCH_SIZE], deleted)
                .await?;
            if old.is_empty() {
                // Another transaction has locked the rows that are left.
                tx.rollback().await;
                break;
            }
            count += old.len() as u64;
            delete_secrets(&mut tx, old).await?;
            tx.commit().await?;
        }
        Ok(count)
    }
}

async fn delete_secrets(tx: &mut Tx, mut old: Vec<(Option<UserId>, Uuid)>) -> Result<()> {
    old.sort_unstable();
    for (user, id) in old {
        if let Some(user) = user {
            delete_secret(tx, &SecretSlot::operator_request(user, id)).await?;
        }
    }
    Ok(())
}

fn deleted(row: &Row<'_>) -> Result<(Option<UserId>, Uuid)> {
    Ok((row.get(1)?, row.get(0)?))
}

fn stored(row: &Row<'_>) -> Result<Stored> {
    Ok(Stored {
        slot: SecretSlot::operator_request(row.get(1)?, row.get(0)?),
        request_digest: row.get(2)?,
        status: row.get(3)?,
    })
}
