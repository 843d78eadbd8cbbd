//! Looks: asking the provider what became of a connection, as due work of its own row.
//!
//! Whoever looks holds a lease and has a fencing number, as with removals. Claiming takes the time at which the look
//! was due away; whoever wants another one meanwhile sets a new time, which stays when the look ends. None of it is a
//! change that a revision tells of.

use bellbird_domain::{ConnectionId, ConnectionStatus, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::accounts::NewAccount;
use crate::audit::{self, Step};
use crate::db::{Row, params, statements};
use crate::removals::attempts;
use crate::users::{bump, lock_if_there};
use crate::{Storage, StorageError, merging};

type Result<T> = std::result::Result<T, StorageError>;

/// What makes a look due: its time has come and nobody looks, or whoever looked was killed.
macro_rules! is_due {
    () => {
        "status <> 'deleting'
            AND ((look_at <= $1 AND look_lease_until IS NULL) OR look_lease_until <= $1)"
    };
}

/// The claim of what is due, as in `removals.rs`.
macro_rules! claim_due {
    ($lock:literal) => {
        concat!(
            "WITH due AS MATERIALIZED (
                SELECT user_id, id FROM connections WHERE ",
            is_due!(),
            " ORDER BY COALESCE(look_lease_until, look_at) LIMIT $3",
            $lock,
            ")
            UPDATE connections SET look_at = NULL, looked_at = $1, look_lease_until = $2, look_fence = look_fence + 1
            FROM due WHERE connections.user_id = due.user_id AND connections.id = due.id
            RETURNING connections.user_id, connections.id, settles_at, look_attempts, look_fence"
        )
    };
}

/// When a look may be that is asked for at `$3`: at once, unless there was one after `$4`; then as long after that one as
/// `$3` is after `$4`.
macro_rules! next_allowed {
    () => {
        "CASE WHEN looked_at > $4 THEN looked_at - $4 + $3 ELSE $3 END"
    };
}

statements! {
    CLAIM = "UPDATE connections SET look_at = NULL, looked_at = $3, look_lease_until = $4, look_fence = look_fence + 1
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting'
            AND (look_lease_until IS NULL OR look_lease_until <= $3)
        RETURNING user_id, id, settles_at, look_attempts, look_fence";

    /// Asked before [`CLAIM_DUE`], which takes SQLite's one writer.
    IS_DUE = concat!("SELECT id FROM connections WHERE ", is_due!(), " LIMIT 1");

    CLAIM_DUE = claim_due!(""), on_postgres = claim_due!(" FOR UPDATE SKIP LOCKED");

    /// A look that somebody asked for meanwhile stays, and has had no attempts.
    FINISH = "UPDATE connections SET look_at = COALESCE(look_at, $4),
            look_attempts = CASE WHEN look_at IS NULL THEN $5 ELSE look_attempts END,
            look_lease_until = NULL, settles_at = $6
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting' AND look_fence = $3 AND look_lease_until IS NOT NULL";

    /// An earlier time stays.
    REQUEST = concat!(
        "UPDATE connections SET look_attempts = 0,
            look_at = CASE WHEN look_at < ",
        next_allowed!(),
        " THEN look_at ELSE ",
        next_allowed!(),
        " END
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting'"
    );

    /// None where the status is another one, or the claim no longer holds.
    SET_STATUS = "UPDATE connections SET status = $5
        WHERE user_id = $1 AND id = $2 AND status = $4 AND look_fence = $3 AND look_lease_until IS NOT NULL";

    MARK_REFRESHED = "UPDATE connections SET last_refreshed_at = $4
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting' AND look_fence = $3 AND look_lease_until IS NOT NULL";
}

/// The right to look at one connection, until the lease ends or somebody else claims it after that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedLook {
    /// Whose connection it is.
    pub user_id: UserId,
    /// Which.
    pub connection_id: ConnectionId,
    /// Until when accounts may still appear.
    pub settles_at: Option<Timestamp>,
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
    pub async fn claim_look(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedLook>> {
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
    pub async fn claim_due_looks(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
    ) -> Result<Vec<ClaimedLook>> {
        self.db.claim_due((IS_DUE, CLAIM_DUE), now, lease_until, limit, claimed).await
    }

    /// Brings a connection's accounts up to what its provider lists, as a look learned it, and notes that it answered.
    /// With `remove_missing`, those that the provider no longer lists go. The revision grows when an account changed.
    /// False when somebody else has overtaken the claim, or the connection was adopted again since, or is being
    /// deleted; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn refresh_looked_at(
        &self,
        claim: &ClaimedLook,
        accounts: &[NewAccount<'_>],
        remove_missing: bool,
        now: Timestamp,
    ) -> Result<bool> {
        let (user, id) = (claim.user_id, claim.connection_id);
        let mut tx = self.db.begin().await?;
        if !lock_if_there(&mut tx, user).await? {
            return Ok(false);
        }
        if tx.run(MARK_REFRESHED, params![user, id, claim.fence, now]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        if merging::merge(&mut tx, user, id, accounts, remove_missing).await? {
            bump(&mut tx, user).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Moves a connection from one status to another, as a look learned it, if it still has the first, and writes the
    /// step down. Whether the step is one of the allowed ones is the caller's business.
    ///
    /// False, and nothing is changed, when it has another status by now, or the claim was overtaken, as with
    /// [`Self::refresh_looked_at`].
    ///
    /// # Errors
    /// Those of the database.
    pub async fn set_looked_at_status(
        &self,
        claim: &ClaimedLook,
        from: ConnectionStatus,
        to: ConnectionStatus,
        cause: &str,
        now: Timestamp,
    ) -> Result<bool> {
        let (user, connection) = (claim.user_id, claim.connection_id);
        let mut tx = self.db.begin().await?;
        match bump(&mut tx, user).await {
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
    /// how many attempts to remember. `settled`: accounts no longer appear. False when somebody else has overtaken the
    /// claim, or the connection was adopted again since, or is being deleted; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn finish_look(
        &self,
        claim: &ClaimedLook,
        next: Option<Timestamp>,
        attempts: u32,
        settled: bool,
    ) -> Result<bool> {
        let settles_at = claim.settles_at.filter(|_| !settled);
        let values = params![claim.user_id, claim.connection_id, claim.fence, next, i64::from(attempts), settles_at];
        Ok(self.db.run(FINISH, values).await? > 0)
    }

    /// Makes a look due now, or, where one began less than `at_most_every` ago, that long after it; while somebody
    /// looks, not before they are done. Its attempts count from there. False when there is no such connection of the
    /// user, or it is being deleted.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn request_look(
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

fn claimed(row: &Row<'_>) -> Result<ClaimedLook> {
    Ok(ClaimedLook {
        user_id: row.id(0)?,
        connection_id: row.id(1)?,
        settles_at: row.opt_time(2)?,
        attempts: attempts(row, 3)?,
        fence: row.int(4)?,
    })
}
