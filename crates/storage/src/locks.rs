//! Locks on a user's row. The first statement of every transaction about a user's data is one of these: the same order
//! everywhere, so no deadlock.

use bellbird_domain::UserId;

use crate::db::{Tx, params, statements};
use crate::error::{Result, StorageError};

statements! {
    /// Changes nothing, but makes a second transaction wait on both databases.
    LOCK = "UPDATE users SET revision = revision WHERE id = $1";

    BUMP = "UPDATE users SET revision = revision + 1 WHERE id = $1";
}

/// Locks the user's row, so that transactions about one user run one after the other on PostgreSQL too.
pub(crate) async fn lock_user(tx: &mut Tx, id: UserId) -> Result<()> {
    require_row(tx.run(LOCK, params![id]).await?)
}

/// As [`lock_user`], and raises the user's revision.
pub(crate) async fn bump_revision(tx: &mut Tx, id: UserId) -> Result<()> {
    require_row(tx.run(BUMP, params![id]).await?)
}

/// As [`lock_user`]; false if the user does not exist.
pub(crate) async fn lock_user_if_exists(tx: &mut Tx, id: UserId) -> Result<bool> {
    Ok(tx.run(LOCK, params![id]).await? > 0)
}

fn require_row(touched: u64) -> Result<()> {
    if touched == 0 { Err(StorageError::NotFound("user")) } else { Ok(()) }
}
