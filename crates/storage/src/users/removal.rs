//! Removes users with their connections: a job waits until these are removed, and then deletes the
//! user.

use bellbird_domain::{ConnectionId, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::Users;
use crate::connections::removals;
use crate::db::{Tx, params, scalar, statements};
use crate::error::Result;
use crate::jobs::{self, ClaimedJob, JobKey, job_kinds};
use crate::locks::bump_revision;
use crate::users::user;

statements! {
    LIST_CONNECTIONS = "SELECT id FROM connections WHERE user_id = $1 ORDER BY id";

    IS_BEGUN = "SELECT user_id FROM jobs WHERE user_id = $1 AND kind = $2";
}

impl Users<'_> {
    /// Whether the removal of a user has begun. It ends with the user.
    pub async fn is_being_removed(self, id: UserId) -> Result<bool> {
        let values = params![id, job_kinds::USER_REMOVAL];
        self.db.exists(IS_BEGUN, values).await
    }

    /// Hides the connections of a user, whose removals are due then. Returns how many connections
    /// are left, or None if the lease was lost.
    pub async fn hide_connections(
        self,
        claim: &ClaimedJob,
        now: Timestamp,
    ) -> Result<Option<usize>> {
        let Some(mut tx) = jobs::begin_held(&self.db, claim).await? else {
            return Ok(None);
        };
        let left = hide_connections(&mut tx, claim.user_id(), now).await?;
        tx.commit().await?;
        Ok(Some(left))
    }

    /// As [`user::delete`], for the holder of a claim. Returns false, and changes nothing, if the
    /// lease was lost.
    pub async fn finish_removal(self, claim: &ClaimedJob, now: Timestamp) -> Result<bool> {
        let Some(mut tx) = jobs::begin_held(&self.db, claim).await? else {
            return Ok(false);
        };
        user::delete(&mut tx, claim.user_id(), now).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// Ends all access to a user's data, hides the connections, and adds the job that deletes the user.
/// While there is this job, `lock_staying_user` keeps new access from being added. Repeated, it
/// hides connections that were added since, and the job is due.
pub async fn begin(tx: &mut Tx, id: UserId, now: Timestamp) -> Result<()> {
    bump_revision(tx, id).await?;
    let job = JobKey::new(job_kinds::USER_REMOVAL, id, id);
    if !jobs::request(tx, &job, now, SignedDuration::ZERO).await? {
        jobs::insert(tx, &job, "", Some(now)).await?;
    }
    user::delete_access(tx, id).await?;
    hide_connections(tx, id, now).await?;
    Ok(())
}

async fn hide_connections(tx: &mut Tx, id: UserId, now: Timestamp) -> Result<usize> {
    let connections: Vec<ConnectionId> = tx.all(LIST_CONNECTIONS, params![id], scalar).await?;
    for connection in &connections {
        removals::hide(tx, "removed", id, *connection, now).await?;
    }
    Ok(connections.len())
}
