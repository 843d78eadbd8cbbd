//! Hides connections, and deletes those whose removal is complete: a job that withdraws the consent
//! at the provider in between.

use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, EventType, UserId};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::Removals;
use crate::connections::audit::{self, StatusChange};
use crate::connections::connection::connection;
use crate::connections::events;
use crate::db::{Row, Tx, pair, params, statements};
use crate::error::Result;
use crate::jobs::{self, ClaimedJob, JobKey, job_kinds};
use crate::linking::{consent_sessions, links};
use crate::locks::{bump_revision_if_exists, lock_user_if_exists};
use crate::secrets::store::{SecretSlot, delete_secret};
use crate::webhooks::{endpoints, webhook_events};

/// The columns that [`pending`] expects, in its order.
macro_rules! select_pending {
    ($rest:literal) => {
        concat!(
            "SELECT c.id, c.user_id, c.provider, c.category, c.institution_id, c.institution_name, c.institution_logo,
                c.status, c.last_refreshed_at, c.created_at, c.consent_expires_at, j.run_at, j.attempts, j.last_error
            FROM connections c
                JOIN jobs j ON j.user_id = c.user_id AND j.kind = 'removal' AND j.subject = CAST(c.id AS TEXT) ",
            $rest
        )
    };
}

statements! {
    FIND_STATUS = "SELECT status, provider FROM connections WHERE user_id = $1 AND id = $2";

    HIDE = "UPDATE connections SET status = 'deleting' WHERE user_id = $1 AND id = $2";

    DELETE = "DELETE FROM connections WHERE user_id = $1 AND id = $2 AND status = 'deleting'";

    LIST = select_pending!("ORDER BY c.created_at DESC, c.id");

    FIND = select_pending!("WHERE c.user_id = $1 AND c.id = $2");
}

/// A connection that is hidden and not yet deleted. Serialized as commands print it with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingRemoval {
    #[serde(skip)]
    pub connection: Connection,
    /// The next attempt to withdraw the consent.
    pub next_attempt_at: Timestamp,
    /// Failures so far.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}

impl Removals<'_> {
    /// Hides a connection, deletes its deliveries that have not ended, and claims its removal. If
    /// the caller is killed, the removal is due when the lease ends. None if the user has no such
    /// connection, or it is hidden already.
    pub async fn begin(
        self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedJob>> {
        self.begin_because("removed", user, id, now, Some(lease_until))
            .await
    }

    /// As [`Self::begin`], with another cause in the audit trail. Without a lease it is claimed by
    /// nobody, and due.
    pub async fn begin_because(
        self,
        cause: &str,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        lease_until: Option<Timestamp>,
    ) -> Result<Option<ClaimedJob>> {
        let mut tx = self.db.begin().await?;
        if !hide(&mut tx, cause, user, id, now).await? {
            tx.rollback().await;
            return Ok(None);
        }
        let removal = JobKey::new(job_kinds::REMOVAL, user, id);
        let claim = match lease_until {
            Some(lease_until) => {
                jobs::claim(&mut tx, self.holder, &removal, now, lease_until).await?
            }
            None => None,
        };
        tx.commit().await?;
        Ok(claim)
    }

    /// As [`Self::begin_because`] without a lease, for the consent session that a job works on.
    /// Returns false, and changes nothing, if the lease of that job was lost.
    pub async fn begin_for(
        self,
        session: &ClaimedJob,
        cause: &str,
        id: ConnectionId,
        now: Timestamp,
    ) -> Result<bool> {
        let Some(mut tx) = jobs::begin_held(&self.db, session).await? else {
            return Ok(false);
        };
        if hide(&mut tx, cause, session.user_id(), id, now).await? {
            tx.commit().await?;
        } else {
            tx.rollback().await;
        }
        Ok(true)
    }

    /// Deletes up to `limit` webhook events of a connection that is being removed, with their
    /// deliveries: months of them would take too long for one transaction. Returns their number,
    /// which is less than `limit` at the end, or None if the lease was lost.
    pub async fn delete_webhook_events(
        self,
        claim: &ClaimedJob,
        limit: u32,
    ) -> Result<Option<u32>> {
        let (user, id) = (claim.user_id(), claim.subject_id());
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await? {
            return Ok(None);
        }
        endpoints::lock_queues(&mut tx, user).await?;
        if !jobs::hold(&mut tx, claim).await? {
            tx.rollback().await;
            return Ok(None);
        }
        let deleted = webhook_events::delete_webhook_events_of(&mut tx, user, id, limit).await?;
        tx.commit().await?;
        Ok(Some(deleted))
    }

    /// Deletes a connection with its credentials, accounts, fingerprints, webhook events,
    /// deliveries and repair links. The event of its removal and the audit rows stay, and a last
    /// audit row records `cause`. Returns false, and changes nothing, if the lease was lost.
    pub async fn finish(self, claim: &ClaimedJob, cause: &str, now: Timestamp) -> Result<bool> {
        let (user, id) = (claim.user_id(), claim.subject_id());
        let mut tx = self.db.begin().await?;
        if !bump_revision_if_exists(&mut tx, user).await? {
            return Ok(false);
        }
        // Deliveries are deleted too, so no other task may be writing them.
        endpoints::lock_queues(&mut tx, user).await?;
        if !jobs::delete(&mut tx, claim).await? {
            tx.rollback().await;
            return Ok(false);
        }
        tx.run(DELETE, params![user, id]).await?;
        // Few or none: the removal has deleted them before, and no sync adds any to a hidden
        // connection.
        webhook_events::delete_webhook_events_of(&mut tx, user, id, u32::MAX).await?;
        links::delete_links_to(&mut tx, user, id).await?;
        consent_sessions::clear_connection(&mut tx, user, id).await?;
        let change = StatusChange {
            user,
            connection: id,
            from: Some(ConnectionStatus::Deleting),
            to: None,
            cause,
        };
        audit::record(&mut tx, &change, now).await?;
        // A user who is being removed may wait for this.
        jobs::request(
            &mut tx,
            &JobKey::new(job_kinds::USER_REMOVAL, user, user),
            now,
            SignedDuration::ZERO,
        )
        .await?;
        // Secrets come last, and in the order of key rotation, which locks secrets of several
        // users. Otherwise the two could deadlock.
        delete_secret(&mut tx, &SecretSlot::credentials(user, id)).await?;
        delete_secret(&mut tx, &SecretSlot::fingerprint_key(user, id)).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// All hidden connections that are not yet deleted, newest first, of all users. For the
    /// operator.
    pub async fn list(self) -> Result<Vec<PendingRemoval>> {
        self.db.all(LIST, params![], pending).await
    }

    /// Finds the removal of a hidden connection that is not yet deleted.
    pub async fn find(self, user: UserId, id: ConnectionId) -> Result<Option<PendingRemoval>> {
        self.db.one(FIND, params![user, id], pending).await
    }
}

/// Hides a connection and adds its removal, which is due. Returns false, and is to be rolled back,
/// if the user has no such connection, or it is hidden already.
pub async fn hide(
    tx: &mut Tx,
    cause: &str,
    user: UserId,
    id: ConnectionId,
    now: Timestamp,
) -> Result<bool> {
    if !bump_revision_if_exists(tx, user).await? {
        return Ok(false);
    }
    // The user's row is locked, so the status cannot change meanwhile.
    let before: Option<(ConnectionStatus, String)> =
        tx.one(FIND_STATUS, params![user, id], pair).await?;
    let to = ConnectionStatus::Deleting;
    let Some((from, provider)) = before.filter(|(status, _)| *status != to) else {
        return Ok(false);
    };
    // From here on, no webhook event of this connection is delivered but that of its removal.
    endpoints::lock_queues(tx, user).await?;
    tx.run(HIDE, params![user, id]).await?;
    let removal = JobKey::new(job_kinds::REMOVAL, user, id);
    jobs::delete_of(tx, user, &removal.subject).await?;
    jobs::insert(tx, &removal, &provider, Some(now)).await?;
    webhook_events::delete_open_deliveries_of(tx, user, id).await?;
    let change = StatusChange {
        user,
        connection: id,
        from: Some(from),
        to: Some(to),
        cause,
    };
    audit::record(tx, &change, now).await?;
    events::insert_now(tx, (user, Some(id)), EventType::ConnectionRemoved, now).await?;
    Ok(true)
}

fn pending(row: &Row<'_>) -> Result<PendingRemoval> {
    Ok(PendingRemoval {
        connection: connection(row)?,
        next_attempt_at: row.get(11)?,
        attempts: row.number(12, "a number of attempts")?,
        last_error: row.get(13)?,
    })
}
