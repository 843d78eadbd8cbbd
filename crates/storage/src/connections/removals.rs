//! Claims and finishes removals: jobs that hide a connection, withdraw its consent at the provider, and then delete its
//! rows. The job is stored in columns of the connection's row.
//!
//! The program may be killed between the steps, and several instances may run. So a claim has a lease, after which
//! another task may claim the job, and a fence, which each claim raises. A write with an older fence changes nothing:
//! its lease was lost.

use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, UserId};
use jiff::Timestamp;

use crate::connections::audit::{self, StatusChange};
use crate::connections::connection::connection;
use crate::db::{Row, params, statements};
use crate::error::Result;
use crate::linking::{link_sessions, links};
use crate::locks::bump_revision;
use crate::secrets::store::{SecretSlot, delete_secret};
use crate::webhooks::{endpoints, webhook_events};
use crate::{Storage, StorageError};

/// Claims up to `$3` due jobs. `MATERIALIZED` makes PostgreSQL pick the rows once, however it joins. `$lock` makes it
/// skip rows that another instance is claiming.
macro_rules! claim_due {
    ($lock:literal) => {
        concat!(
            "WITH due AS MATERIALIZED (
                SELECT user_id, id FROM connections
                WHERE status = 'deleting' AND (next_removal_at IS NULL OR next_removal_at <= $1)
                    AND (removal_lease_until IS NULL OR removal_lease_until <= $1)
                ORDER BY next_removal_at LIMIT $3",
            $lock,
            ")
            UPDATE connections SET removal_lease_until = $2, removal_fence = removal_fence + 1
            FROM due WHERE connections.user_id = due.user_id AND connections.id = due.id
            RETURNING connections.user_id, connections.id, provider, removal_attempts, removal_fence"
        )
    };
}

statements! {
    FIND_STATUS = "SELECT status FROM connections WHERE user_id = $1 AND id = $2";

    HIDE = "UPDATE connections SET status = 'deleting', next_removal_at = $3, removal_attempts = 0,
            removal_lease_until = $4, removal_fence = removal_fence + 1, removal_last_error = NULL
        WHERE user_id = $1 AND id = $2
        RETURNING user_id, id, provider, removal_attempts, removal_fence";

    CLAIM = "UPDATE connections SET removal_lease_until = $4, removal_fence = removal_fence + 1
        WHERE user_id = $1 AND id = $2 AND status = 'deleting'
            AND (removal_lease_until IS NULL OR removal_lease_until <= $3)
        RETURNING user_id, id, provider, removal_attempts, removal_fence";

    /// Runs before [`CLAIM_DUE`], which takes SQLite's one writer even if nothing is due.
    IS_DUE = "SELECT id FROM connections
        WHERE status = 'deleting' AND (next_removal_at IS NULL OR next_removal_at <= $1)
            AND (removal_lease_until IS NULL OR removal_lease_until <= $1)
        LIMIT 1";

    CLAIM_DUE = claim_due!(""), on_postgres = claim_due!(" FOR UPDATE SKIP LOCKED");

    POSTPONE = "UPDATE connections SET next_removal_at = $4, removal_attempts = removal_attempts + 1,
            removal_lease_until = NULL, removal_last_error = $5
        WHERE user_id = $1 AND id = $2 AND status = 'deleting' AND removal_fence = $3";

    DELETE = "DELETE FROM connections WHERE user_id = $1 AND id = $2 AND status = 'deleting' AND removal_fence = $3";

    LIST = "SELECT id, user_id, provider, category, institution_id, institution_name, institution_logo, status,
            last_refreshed_at, created_at, next_removal_at, removal_attempts, removal_last_error
        FROM connections WHERE status = 'deleting' ORDER BY created_at DESC, id";

    COUNT = "SELECT COUNT(*) FROM connections WHERE status = 'deleting'";
}

/// The right to work on one removal, until the lease ends and another task claims it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedRemoval {
    pub user_id: UserId,
    pub connection_id: ConnectionId,
    pub provider: String,
    /// Failures so far.
    pub attempts: u32,
    fence: i64,
}

/// A connection that is hidden and not yet deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRemoval {
    pub connection: Connection,
    /// The next attempt to withdraw the consent. None: due now.
    pub next_attempt_at: Option<Timestamp>,
    /// Failures so far.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}

impl Storage {
    /// Hides a connection, deletes its webhook events, and claims its removal. If the caller is killed, the removal is
    /// due when the lease ends. None if the user has no such connection, or it is hidden already.
    pub async fn begin_removal(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedRemoval>> {
        let mut tx = self.db.begin().await?;
        match bump_revision(&mut tx, user).await {
            Err(StorageError::NotFound(_)) => return Ok(None),
            other => other?,
        }
        // The user's row is locked, so the status cannot change meanwhile.
        let before = tx.one(FIND_STATUS, params![user, id], |row| row.word(0, "a connection status")).await?;
        let to = ConnectionStatus::Deleting;
        let Some(from) = before.filter(|status| *status != to) else {
            tx.rollback().await;
            return Ok(None);
        };
        // From here on, no webhook event of this connection is delivered.
        endpoints::lock_endpoints(&mut tx, user).await?;
        let claim = tx.one(HIDE, params![user, id, now, lease_until], claimed).await?;
        webhook_events::delete_webhook_events_of(&mut tx, user, id).await?;
        let change = StatusChange { user, connection: id, from: Some(from), to: Some(to), cause: "removed" };
        audit::record(&mut tx, &change, now).await?;
        tx.commit().await?;
        Ok(claim)
    }

    /// Claims one removal, due or not. None while another task holds its lease, or if the connection is not being
    /// deleted.
    pub async fn claim_removal(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedRemoval>> {
        let mut tx = self.db.begin().await?;
        let claim = tx.one(CLAIM, params![user, id, now, lease_until], claimed).await?;
        tx.commit().await?;
        Ok(claim)
    }

    /// Claims up to `limit` due removals without a lease, the longest due first.
    pub async fn claim_due_removals(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
    ) -> Result<Vec<ClaimedRemoval>> {
        self.db.claim_due((IS_DUE, CLAIM_DUE), now, lease_until, limit, claimed).await
    }

    /// Releases a removal after a failed attempt, with the time of the next one and an error for the operator. Returns
    /// false, and changes nothing, if the lease was lost.
    pub async fn postpone_removal(&self, claim: &ClaimedRemoval, until: Timestamp, last_error: &str) -> Result<bool> {
        let values = params![claim.user_id, claim.connection_id, claim.fence, until, last_error];
        Ok(self.db.run(POSTPONE, values).await? > 0)
    }

    /// Deletes a connection with its credentials, accounts, fingerprints, webhook events, deliveries and repair links.
    /// The audit rows stay, and a last one records `cause`. Returns false, and changes nothing, if the lease was lost.
    pub async fn finish_removal(&self, claim: &ClaimedRemoval, cause: &str, now: Timestamp) -> Result<bool> {
        let (user, id) = (claim.user_id, claim.connection_id);
        let mut tx = self.db.begin().await?;
        match bump_revision(&mut tx, user).await {
            Err(StorageError::NotFound(_)) => return Ok(false),
            other => other?,
        }
        // Deliveries are deleted too, so no other task may be writing them.
        endpoints::lock_endpoints(&mut tx, user).await?;
        if tx.run(DELETE, params![user, id, claim.fence]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        webhook_events::delete_webhook_events_of(&mut tx, user, id).await?;
        links::delete_links_to(&mut tx, user, id).await?;
        link_sessions::clear_connection(&mut tx, user, id).await?;
        let change = StatusChange { user, connection: id, from: Some(ConnectionStatus::Deleting), to: None, cause };
        audit::record(&mut tx, &change, now).await?;
        // Secrets come last, and in the order of key rotation, which locks secrets of several users. Otherwise the two
        // could deadlock.
        delete_secret(&mut tx, &SecretSlot::credentials(user, id)).await?;
        delete_secret(&mut tx, &SecretSlot::fingerprint_key(user, id)).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// All hidden connections that are not yet deleted, newest first, of all users. For the operator.
    pub async fn list_removals(&self) -> Result<Vec<PendingRemoval>> {
        self.db.all(LIST, params![], pending).await
    }

    pub async fn count_removals(&self) -> Result<u64> {
        let count = self.db.one(COUNT, params![], |row| row.int(0)).await?.unwrap_or(0);
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

fn claimed(row: &Row<'_>) -> Result<ClaimedRemoval> {
    Ok(ClaimedRemoval {
        user_id: row.id(0)?,
        connection_id: row.id(1)?,
        provider: row.text(2)?.to_owned(),
        attempts: row.attempts(3)?,
        fence: row.int(4)?,
    })
}

fn pending(row: &Row<'_>) -> Result<PendingRemoval> {
    Ok(PendingRemoval {
        connection: connection(row)?,
        next_attempt_at: row.opt_time(10)?,
        attempts: row.attempts(11)?,
        last_error: row.opt_text(12)?.map(str::to_owned),
    })
}
