//! Removing connections, as due work of their own rows.
//!
//! A connection is hidden first, then its consent is withdrawn at the provider, then every row about it goes. Between
//! these steps the program may be killed, and several copies of it may run. So whoever works on a removal holds a lease
//! on it and has a fencing number: a write of somebody whose lease ran out, and who was overtaken, changes nothing.

use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, UserId};
use jiff::Timestamp;

use crate::connections::audit::{self, Step};
use crate::connections::connection::connection;
use crate::db::{Row, params, statements};
use crate::error::Result;
use crate::linking::{link_sessions, links};
use crate::locks::bump_revision;
use crate::secrets::store::{SecretSlot, delete_secret};
use crate::webhooks::{endpoints, webhook_events};
use crate::{Storage, StorageError};

/// The claim of what is due, without and with the locks of rows. `MATERIALIZED`, so that PostgreSQL picks the rows
/// once, however it joins.
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

    /// Asked before [`CLAIM_DUE`], which takes SQLite's one writer.
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

/// The right to work on one removal, until the lease ends or somebody else claims it after that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedRemoval {
    /// Whose connection it is.
    pub user_id: UserId,
    /// Which.
    pub connection_id: ConnectionId,
    /// Which adapter withdraws its consent.
    pub provider: String,
    /// Attempts that failed so far.
    pub attempts: u32,
    fence: i64,
}

/// A connection that is hidden, but not gone yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRemoval {
    /// The connection.
    pub connection: Connection,
    /// When its consent is tried to be withdrawn again; none: at once.
    pub next_attempt_at: Option<Timestamp>,
    /// Attempts that failed so far.
    pub attempts: u32,
    /// Why the last of them failed.
    pub last_error: Option<String>,
}

impl Storage {
    /// Hides a connection from everybody at once, forgets what was to be told of it, and claims its removal. Whatever
    /// happens to the caller after that, the removal is due when the lease ends. None when it is hidden already, is
    /// gone, or is another user's.
    ///
    /// # Errors
    /// Those of the database.
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
        // With the user's row taken, nobody else moves the status meanwhile.
        let before = tx.one(FIND_STATUS, params![user, id], |row| row.word(0, "a connection status")).await?;
        let to = ConnectionStatus::Deleting;
        let Some(from) = before.filter(|status| *status != to) else {
            tx.rollback().await;
            return Ok(None);
        };
        // Nothing more is told of it, from this moment on.
        endpoints::lock_endpoints(&mut tx, user).await?;
        let claim = tx.one(HIDE, params![user, id, now, lease_until], claimed).await?;
        webhook_events::delete_webhook_events_of(&mut tx, user, id).await?;
        let step = Step { user, connection: id, from: Some(from), to: Some(to), cause: "removed" };
        audit::record(&mut tx, &step, now).await?;
        tx.commit().await?;
        Ok(claim)
    }

    /// Claims the removal of one connection, due or not. None while somebody else has it, and when there is none.
    ///
    /// # Errors
    /// Those of the database.
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

    /// Claims a few of the removals that are due and that nobody works on, those that are due longest first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn claim_due_removals(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
    ) -> Result<Vec<ClaimedRemoval>> {
        self.db.claim_due((IS_DUE, CLAIM_DUE), now, lease_until, limit, claimed).await
    }

    /// Gives a removal back after a failed attempt: when to try again, and why it failed. False when somebody else has
    /// overtaken the claim; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn postpone_removal(&self, claim: &ClaimedRemoval, until: Timestamp, last_error: &str) -> Result<bool> {
        let values = params![claim.user_id, claim.connection_id, claim.fence, until, last_error];
        Ok(self.db.run(POSTPONE, values).await? > 0)
    }

    /// Forgets a connection: its row, its credentials, its accounts, its fingerprints, its events with their
    /// deliveries, and the links to repair it. What remains are the audit rows, of which the last one gets this cause.
    /// False when somebody else has overtaken the claim; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn finish_removal(&self, claim: &ClaimedRemoval, cause: &str, now: Timestamp) -> Result<bool> {
        let (user, id) = (claim.user_id, claim.connection_id);
        let mut tx = self.db.begin().await?;
        match bump_revision(&mut tx, user).await {
            Err(StorageError::NotFound(_)) => return Ok(false),
            other => other?,
        }
        // The deliveries of its events go with it: nobody may be at them.
        endpoints::lock_endpoints(&mut tx, user).await?;
        if tx.run(DELETE, params![user, id, claim.fence]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        links::delete_links_to(&mut tx, user, id).await?;
        link_sessions::clear_connection(&mut tx, user, id).await?;
        let step = Step { user, connection: id, from: Some(ConnectionStatus::Deleting), to: None, cause };
        audit::record(&mut tx, &step, now).await?;
        // Last of all: whoever seals anew holds secrets of several users, and must wait for nobody who waits for those.
        delete_secret(&mut tx, &SecretSlot::credentials(user, id)).await?;
        delete_secret(&mut tx, &SecretSlot::fingerprint_key(user, id)).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Every connection that is hidden and not gone yet, newest first, of all users. For the person who hosts.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list_removals(&self) -> Result<Vec<PendingRemoval>> {
        self.db.all(LIST, params![], pending).await
    }

    /// How many there are.
    ///
    /// # Errors
    /// Those of the database.
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
