//! Schedules and claims refreshes: jobs that read a connection's accounts and status from its provider. The job is
//! stored in columns of the connection's row.
//!
//! The holder of a claim has a lease and a fence, as in `removals.rs`. Claiming clears `next_refresh_at`. A request
//! during the refresh sets it again, and finishing keeps that request.
//!
//! `refresh_started_at` is the start of the last refresh. `last_refreshed_at`, which users see, is when the provider
//! last answered with data.

use bellbird_domain::{ConnectionId, ConnectionStatus, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::connections::account_merge;
use crate::connections::accounts::NewAccount;
use crate::connections::audit::{self, StatusChange};
use crate::db::{Row, params, statements};
use crate::error::Result;
use crate::locks::{bump_revision, lock_user_if_exists};
use crate::{Storage, StorageError};

/// A refresh is due at its time if no lease exists, and also when a lease has expired, because its holder was killed.
macro_rules! is_due {
    () => {
        "status <> 'deleting'
            AND ((next_refresh_at <= $1 AND refresh_lease_until IS NULL) OR refresh_lease_until <= $1)"
    };
}

/// Claims up to `$3` due rows until `$2`, as in `connections/removals.rs`.
macro_rules! claim_due {
    ($lock:literal) => {
        concat!(
            "WITH due AS MATERIALIZED (
                SELECT user_id, id FROM connections WHERE ",
            is_due!(),
            " ORDER BY COALESCE(refresh_lease_until, next_refresh_at) LIMIT $3",
            $lock,
            ")
            UPDATE connections SET next_refresh_at = NULL, refresh_started_at = $1, refresh_lease_until = $2,
                refresh_fence = refresh_fence + 1
            FROM due WHERE connections.user_id = due.user_id AND connections.id = due.id
            RETURNING connections.user_id, connections.id, backfill_ends_at, refresh_attempts, refresh_fence"
        )
    };
}

/// The time of a refresh requested at `$3`: at once, unless the last one started after `$4`. Then it starts `$3 - $4`
/// after the last one started.
macro_rules! next_allowed {
    () => {
        "CASE WHEN refresh_started_at > $4 THEN refresh_started_at - $4 + $3 ELSE $3 END"
    };
}

statements! {
    CLAIM = "UPDATE connections SET next_refresh_at = NULL, refresh_started_at = $3, refresh_lease_until = $4,
            refresh_fence = refresh_fence + 1
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting'
            AND (refresh_lease_until IS NULL OR refresh_lease_until <= $3)
        RETURNING user_id, id, backfill_ends_at, refresh_attempts, refresh_fence";

    /// Runs before [`CLAIM_DUE`], which takes SQLite's one writer even if nothing is due.
    IS_DUE = concat!("SELECT id FROM connections WHERE ", is_due!(), " LIMIT 1");

    CLAIM_DUE = claim_due!(""), on_postgres = claim_due!(" FOR UPDATE SKIP LOCKED");

    /// A refresh requested meanwhile stays. Its request has reset the attempts.
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

    /// Changes nothing if the status is not `$4`, or the lease was lost.
    SET_STATUS = "UPDATE connections SET status = $5
        WHERE user_id = $1 AND id = $2 AND status = $4 AND refresh_fence = $3 AND refresh_lease_until IS NOT NULL";

    SET_LAST_REFRESHED_AT = "UPDATE connections SET last_refreshed_at = $4
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting' AND refresh_fence = $3
            AND refresh_lease_until IS NOT NULL";
}

/// The right to refresh one connection, until the lease ends and another task claims it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedRefresh {
    pub user_id: UserId,
    pub connection_id: ConnectionId,
    /// Until then, accounts may still appear.
    pub backfill_ends_at: Option<Timestamp>,
    /// The count that the last refresh passed to [`Storage::finish_refresh`], or 0 after a request.
    pub attempts: u32,
    fence: i64,
}

impl Storage {
    /// Claims the refresh of one connection, due or not. None while another task holds its lease, or if the user has no
    /// such connection, or it is being deleted.
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

    /// Claims up to `limit` refreshes, the longest due first. An expired lease counts as due, because its holder was
    /// killed.
    pub async fn claim_due_refreshes(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
    ) -> Result<Vec<ClaimedRefresh>> {
        self.db.claim_due((IS_DUE, CLAIM_DUE), now, lease_until, limit, claimed).await
    }

    /// Merges the accounts that a refresh read, and records that the provider answered. With `remove_missing`, accounts
    /// that are no longer listed are deleted. The revision grows if an account changed.
    ///
    /// Returns false, and changes nothing, if the claim is stale: the lease was lost, the connection was imported
    /// again, or it is being deleted.
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

    /// Changes the status of a connection from `from` to `to`, and records the change in the audit. The caller checks
    /// that the change is allowed.
    ///
    /// Returns false, and changes nothing, if the status is no longer `from`, or the claim is stale as with
    /// [`Self::apply_refresh`].
    pub async fn set_status_after_refresh(
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
            // No change: no new revision, no audit row.
            tx.rollback().await;
            return Ok(true);
        }
        audit::record(&mut tx, &StatusChange { user, connection, from: Some(from), to: Some(to), cause }, now).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Finishes a refresh. `next` is the time of the next one, or None to wait for a request. A refresh requested
    /// meanwhile has priority. `attempts` is stored for the next claim. `backfill_ended` clears the end of the
    /// backfill.
    ///
    /// Returns false, and changes nothing, if the claim is stale as with [`Self::apply_refresh`].
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

    /// Requests a refresh: now, or `at_most_every` after the last start if that is later. While one runs, the next one
    /// waits for its end. Resets the attempts. Returns false if the user has no such connection, or it is being
    /// deleted.
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
