//! Looks: asking the provider what became of a connection, as due work of its own row.
//!
//! Whoever looks holds a lease and has a fencing number, as with removals. Claiming takes the time at which the look
//! was due away; whoever wants another one meanwhile sets a new time, which stays when the look ends. None of it is a
//! change that a revision tells of.

use bellbird_domain::{ConnectionId, ConnectionStatus, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::connections::account_merge;
use crate::connections::accounts::NewAccount;
use crate::connections::audit::{self, Step};
use crate::db::{Row, params, statements};
use crate::error::Result;
use crate::locks::{bump_revision, lock_user_if_exists};
use crate::{Storage, StorageError};

/// What makes a look due: its time has come and nobody looks, or whoever looked was killed.
macro_rules! is_due {
    () => {
        "status <> 'deleting'
            AND ((next_refresh_at <= $1 AND refresh_lease_until IS NULL) OR refresh_lease_until <= $1)"
    };
}

/// The claim of what is due, as in `removals.rs`.
macro_rules! claim_due {
    ($lock:literal) => {
        concat!(
            "WITH due AS MATERIALIZED (
                SELECT user_id, id FROM connections WHERE ",
            is_due!(),
            " ORDER BY COALESCE(refresh_lease_until, next_refresh_at) LIMIT $3",
            $lock,
            ")
            UPDATE connections SET next_refresh_at = NULL, refreshed_at = $1, refresh_lease_until = $2,
                refresh_fence = refresh_fence + 1
            FROM due WHERE connections.user_id = due.user_id AND connections.id = due.id
            RETURNING connections.user_id, connections.id, backfill_ends_at, refresh_attempts, refresh_fence"
        )
    };
}

/// When a look may be that is asked for at `$3`: at once, unless there was one after `$4`; then as long after that one
/// as
/// `$3` is after `$4`.
macro_rules! next_allowed {
    () => {
        "CASE WHEN refreshed_at > $4 THEN refreshed_at - $4 + $3 ELSE $3 END"
    };
}

statements! {
    CLAIM = "UPDATE connections SET next_refresh_at = NULL, refreshed_at = $3, refresh_lease_until = $4,
            refresh_fence = refresh_fence + 1
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting'
            AND (refresh_lease_until IS NULL OR refresh_lease_until <= $3)
        RETURNING user_id, id, backfill_ends_at, refresh_attempts, refresh_fence";

    /// Asked before [`CLAIM_DUE`], which takes SQLite's one writer.
    IS_DUE = concat!("SELECT id FROM connections WHERE ", is_due!(), " LIMIT 1");

    CLAIM_DUE = claim_due!(""), on_postgres = claim_due!(" FOR UPDATE SKIP LOCKED");

    /// A look that somebody asked for meanwhile stays, and has had no attempts.
    FINISH = "UPDATE connections SET next_refresh_at = COALESCE(next_refresh_at, $4),
            refresh_attempts = CASE WHEN next_refresh_at IS NULL THEN $5 ELSE refresh_attempts END,
            refresh_lease_until = NULL, backfill_ends_at = $6
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting' AND refresh_fence = $3
            AND refresh_lease_until IS NOT NULL";

    /// An earlier time stays.
    REQUEST = concat!(
        "UPDATE connections SET refresh_attempts = 0,
            next_refresh_at = CASE WHEN next_refresh_at < ",
        next_allowed!(),
        " THEN next_refresh_at ELSE ",
        next_allowed!(),
        " END
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting'"
    );

    /// None where the status is another one, or the claim no longer holds.
    SET_STATUS = "UPDATE connections SET status = $5
        WHERE user_id = $1 AND id = $2 AND status = $4 AND refresh_fence = $3 AND refresh_lease_until IS NOT NULL";

    SET_LAST_REFRESHED_AT = "UPDATE connections SET last_refreshed_at = $4
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting' AND refresh_fence = $3
            AND refresh_lease_until IS NOT NULL";
}

/// The right to look at one connection, until the lease ends or somebody else claims it after that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedRefresh {
    /// Whose connection it is.
    pub user_id: UserId,
    /// Which.
    pub connection_id: ConnectionId,
    /// Until when accounts may still appear.
    pub backfill_ends_at: Option<Timestamp>,
    /// What the last look said of attempts.
    pub attempts: u32,
    fence: i64,
}

impl Storage {
    /// Claims a look at one connection, due or not. None while somebody looks, and when it is gone, is being deleted,
    /// or is another user's.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn claim_refresh(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedRefresh>> {
        let mut tx = self.db.begin().await?;
        let claim = tx.one(CLAIM, params![user, id, now, lease_until], claimed).await?;
        tx.commit().await?;
        Ok(claim)
    }

    /// Claims a few of the looks that are due and that nobody is at, and of those whose lease ran out (whoever looked
    /// then was killed), the longest due first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn claim_due_refreshes(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
    ) -> Result<Vec<ClaimedRefresh>> {
        self.db.claim_due((IS_DUE, CLAIM_DUE), now, lease_until, limit, claimed).await
    }

    /// Brings a connection's accounts up to what its provider lists, as a look learned it, and notes that it answered.
    /// With `remove_missing`, those that the provider no longer lists go. The revision grows when an account changed.
    /// False when somebody else has overtaken the claim, or the connection was adopted again since, or is being
    /// deleted; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn apply_refresh(
        &self,
        claim: &ClaimedRefresh,
        accounts: &[NewAccount<'_>],
        remove_missing: bool,
        now: Timestamp,
    ) -> Result<bool> {
        let (user, id) = (claim.user_id, claim.connection_id);
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await? {
            return Ok(false);
        }
        if tx.run(SET_LAST_REFRESHED_AT, params![user, id, claim.fence, now]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        if account_merge::merge_accounts(&mut tx, user, id, accounts, remove_missing).await? {
            bump_revision(&mut tx, user).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Moves a connection from one status to another, as a look learned it, if it still has the first, and writes the
    /// step down. Whether the step is one of the allowed ones is the caller's business.
    ///
    /// False, and nothing is changed, when it has another status by now, or the claim was overtaken, as with
    /// [`Self::apply_refresh`].
    ///
    /// # Errors
    /// Those of the database.
    pub async fn set_refreshed_status(
        &self,
        claim: &ClaimedRefresh,
        from: ConnectionStatus,
        to: ConnectionStatus,
        cause: &str,
        now: Timestamp,
    ) -> Result<bool> {
        let (user, connection) = (claim.user_id, claim.connection_id);
        let mut tx = self.db.begin().await?;
        match bump_revision(&mut tx, user).await {
            Err(StorageError::NotFound(_)) => return Ok(false),
            other => other?,
        }
        if tx.run(SET_STATUS, params![user, connection, claim.fence, from.as_str(), to.as_str()]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        if from == to {
            // Nothing happened: no new revision, no audit row.
            tx.rollback().await;
            return Ok(true);
        }
        audit::record(&mut tx, &Step { user, connection, from: Some(from), to: Some(to), cause }, now).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Ends a look: when the next one is due (none: when somebody asks), unless somebody asked for one meanwhile, and
    /// how many attempts to remember. `backfill_ended`: accounts no longer appear. False when somebody else has
    /// overtaken the claim, or the connection was adopted again since, or is being deleted; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn finish_refresh(
        &self,
        claim: &ClaimedRefresh,
        next: Option<Timestamp>,
        attempts: u32,
        backfill_ended: bool,
    ) -> Result<bool> {
        let backfill_ends_at = claim.backfill_ends_at.filter(|_| !backfill_ended);
        let values =
            params![claim.user_id, claim.connection_id, claim.fence, next, i64::from(attempts), backfill_ends_at];
        Ok(self.db.run(FINISH, values).await? > 0)
    }

    /// Makes a look due now, or, where one began less than `at_most_every` ago, that long after it; while somebody
    /// looks, not before they are done. Its attempts count from there. False when there is no such connection of the
    /// user, or it is being deleted.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn request_refresh(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        at_most_every: SignedDuration,
    ) -> Result<bool> {
        let since = now.saturating_sub(at_most_every).map_err(StorageError::unavailable)?;
        Ok(self.db.run(REQUEST, params![user, id, now, since]).await? > 0)
    }
}

fn claimed(row: &Row<'_>) -> Result<ClaimedRefresh> {
    Ok(ClaimedRefresh {
        user_id: row.id(0)?,
        connection_id: row.id(1)?,
        backfill_ends_at: row.opt_time(2)?,
        attempts: row.attempts(3)?,
        fence: row.int(4)?,
    })
}
