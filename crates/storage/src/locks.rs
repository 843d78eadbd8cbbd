//! Locks a user's row, so that transactions about one user run one after the other.
//!
//! A transaction that changes several tables of a user locks that row first, and secrets last. The
//! same lock order everywhere prevents deadlocks. These do without the lock on the user's row:
//!
//! * Claiming, renewing, requesting and releasing a job lock that one row of `jobs` and nothing
//!   else. A transaction that also changes another table locks the user's row before the job's.
//! * Delivery attempts lock the endpoint's row (see `webhooks/endpoints.rs`).
//! * Freeing the leases of an instance that is gone skips what is locked, so it waits for nothing.
//! * Cleanup of links and events and key rotation serve all users. Key rotation locks secrets in
//!   the order of their keys.

use bellbird_domain::UserId;

use crate::db::{Bound, Db, Param, Sql, Tx, params, statements};
use crate::error::{Result, StorageError};

/// Of a row of `users`: the removal of the user has not begun.
macro_rules! stays {
    () => {
        "NOT EXISTS (SELECT 1 FROM jobs WHERE user_id = users.id AND kind = 'user_removal')"
    };
}
pub(crate) use stays;

statements! {
    /// PostgreSQL needs the lock. SQLite has only one writer anyway.
    LOCK = "SELECT revision FROM users WHERE id = $1", lock = " FOR NO KEY UPDATE";

    STAYS = concat!("SELECT id FROM users WHERE id = $1 AND ", stays!());

    BUMP = "UPDATE users SET revision = revision + 1 WHERE id = $1";
}

/// The text of the conflict.
pub const USER_BEING_REMOVED: &str = "The user is being removed, and gets no new access";

pub(crate) async fn lock_user(tx: &mut Tx, id: UserId) -> Result<()> {
    if lock_user_if_exists(tx, id).await? {
        Ok(())
    } else {
        Err(StorageError::NotFound("user"))
    }
}

/// As [`lock_user`], before something is added with which somebody reads the user's data.
/// [`StorageError::Conflict`] if the removal of the user has begun. That is asked under the lock,
/// and not with it, because PostgreSQL would show the jobs as they were before it waited.
pub(crate) async fn lock_staying_user(tx: &mut Tx, id: UserId) -> Result<()> {
    lock_user(tx, id).await?;
    if tx.exists(STAYS, params![id]).await? {
        Ok(())
    } else {
        Err(StorageError::Conflict(USER_BEING_REMOVED))
    }
}

/// [`lock_user`] as the first part of a batch.
pub(crate) fn user_lock<'a>(id: UserId) -> Bound<'a> {
    (LOCK, params![id].to_vec())
}

/// Locks the user's row and increments the revision.
pub(crate) async fn bump_revision(tx: &mut Tx, id: UserId) -> Result<()> {
    tx.execute_or_not_found(BUMP, params![id], "user").await
}

/// As [`bump_revision`]. Returns false if the user does not exist.
pub(crate) async fn bump_revision_if_exists(tx: &mut Tx, id: UserId) -> Result<bool> {
    tx.changes(BUMP, params![id]).await
}

/// Begins a transaction that locks the user's row and runs one write. None, and nothing changes, if
/// the user does not exist or the write touches no row.
pub(crate) async fn begin_locked_write(
    db: &Db,
    user: UserId,
    write: Sql,
    params: &[Param<'_>],
) -> Result<Option<Tx>> {
    let mut tx = db.begin().await?;
    if lock_user_if_exists(&mut tx, user).await? && tx.changes(write, params).await? {
        return Ok(Some(tx));
    }
    tx.rollback().await;
    Ok(None)
}

/// Locks the row of the user who owns something. Returns false if the user does not exist. The
/// installation has no row: what it owns is locked by its own rows.
pub(crate) async fn lock_owner_if_exists(tx: &mut Tx, id: UserId) -> Result<bool> {
    Ok(id == UserId::INSTALLATION || lock_user_if_exists(tx, id).await?)
}

/// Locks the user's row. Returns false if the user does not exist.
pub(crate) async fn lock_user_if_exists(tx: &mut Tx, id: UserId) -> Result<bool> {
    tx.exists(LOCK, params![id]).await
}
