//! Stores what a refresh found: the accounts and the status of a connection, and when its consent
//! ends.
//!
//! A refresh is a job (see `jobs/mod.rs`). `last_refreshed_at`, which users see, is when the
//! provider last returned data.

use bellbird_domain::{ConnectionId, ConnectionStatus, UserId};
use jiff::Timestamp;

use crate::Refreshes;
use crate::connections::account_merge;
use crate::connections::accounts::NewAccount;
use crate::connections::audit::StatusChange;
use crate::connections::connection::write_last_refreshed_at;
use crate::connections::events;
use crate::db::{params, statements};
use crate::error::Result;
use crate::jobs::{self, ClaimedJob};
use crate::locks::{bump_revision, bump_revision_if_exists};

statements! {
    FIND_BACKFILL_END = "SELECT backfill_ends_at FROM connections WHERE user_id = $1 AND id = $2";

    END_BACKFILL = "UPDATE connections SET backfill_ends_at = NULL WHERE user_id = $1 AND id = $2";

    /// An end that is later by a day or more is another one, which is reported again.
    SET_CONSENT_EXPIRY = "UPDATE connections SET consent_expires_at = $3,
            consent_notice_days = CASE WHEN $3 < consent_expires_at + 86400000000 THEN consent_notice_days END
        WHERE user_id = $1 AND id = $2 AND consent_expires_at IS DISTINCT FROM $3";

    SET_STATUS = "UPDATE connections SET status = $4 WHERE user_id = $1 AND id = $2 AND status = $3";
}

impl Refreshes<'_> {
    /// Until when the accounts of a connection may still appear. None: all have appeared.
    pub async fn find_backfill_end(
        self,
        user: UserId,
        id: ConnectionId,
    ) -> Result<Option<Timestamp>> {
        self.db.value(FIND_BACKFILL_END, params![user, id]).await
    }

    /// Merges the accounts that a refresh read, and records that the provider responded. The list
    /// `is_complete` unless accounts may still appear: only a complete one makes an account
    /// missing, hides it or deletes it. The revision grows if users can see a change.
    ///
    /// Returns false, and changes nothing, if the lease was lost: to another task, by an import, or
    /// because the connection is being deleted.
    pub async fn apply(
        self,
        claim: &ClaimedJob,
        accounts: &[NewAccount<'_>],
        is_complete: bool,
        now: Timestamp,
    ) -> Result<bool> {
        let (user, id) = (claim.user_id(), claim.subject_id());
        let Some(mut tx) = jobs::begin_held(&self.db, claim).await? else {
            return Ok(false);
        };
        write_last_refreshed_at(&mut tx, user, id, now).await?;
        if account_merge::merge_accounts(&mut tx, user, id, accounts, is_complete.then_some(now))
            .await?
        {
            bump_revision(&mut tx, user).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Stores when the consent of a connection ends. The revision grows if that is new.
    ///
    /// Returns false, and changes nothing, if the lease was lost as with [`Self::apply`].
    pub async fn set_consent_expiry(
        self,
        claim: &ClaimedJob,
        expires_at: Option<Timestamp>,
    ) -> Result<bool> {
        let (user, id) = (claim.user_id(), claim.subject_id::<ConnectionId>());
        let Some(mut tx) = jobs::begin_held(&self.db, claim).await? else {
            return Ok(false);
        };
        if tx
            .changes(SET_CONSENT_EXPIRY, params![user, id, expires_at])
            .await?
        {
            bump_revision(&mut tx, user).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Changes the status of a connection from `from` to `to`, and records the change in the audit.
    /// The caller checks that the change is allowed. Endpoints that subscribe to
    /// `connection.updated` get a webhook event, whose first attempts are due at
    /// `first_attempt_at`.
    ///
    /// Returns false, and changes nothing, if the status is no longer `from`, or the lease was lost
    /// as with [`Self::apply`].
    pub async fn set_status(
        self,
        claim: &ClaimedJob,
        from: ConnectionStatus,
        to: ConnectionStatus,
        cause: &str,
        now: Timestamp,
        first_attempt_at: Timestamp,
    ) -> Result<bool> {
        let (user, connection) = (claim.user_id(), claim.subject_id());
        let mut tx = self.db.begin().await?;
        let values = params![user, connection, from, to];
        if !bump_revision_if_exists(&mut tx, user).await?
            || !jobs::hold(&mut tx, claim).await?
            || !tx.changes(SET_STATUS, values).await?
        {
            tx.rollback().await;
            return Ok(false);
        }
        if from == to {
            // No change: no new revision, no audit row.
            tx.rollback().await;
            return Ok(true);
        }
        let change = StatusChange {
            user,
            connection,
            from: Some(from),
            to: Some(to),
            cause,
        };
        events::record(&mut tx, &change, now, first_attempt_at).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// As `storage.jobs().finish`, and clears the end of the backfill in the same transaction.
    pub async fn finish_backfill(
        self,
        claim: &ClaimedJob,
        next: Option<Timestamp>,
    ) -> Result<bool> {
        let Some(mut tx) = jobs::begin_finished(&self.db, claim, next).await? else {
            return Ok(false);
        };
        tx.run(
            END_BACKFILL,
            params![claim.user_id(), claim.subject_id::<ConnectionId>()],
        )
        .await?;
        tx.commit().await?;
        Ok(true)
    }
}
