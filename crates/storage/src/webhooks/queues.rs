//! Endpoints of the installation, which get the events of all users.
//!
//! Such an endpoint belongs to [`UserId::INSTALLATION`], and is what commands show and change. For each user who had an
//! event for it, it has a queue: a row of that user with the same id. An event adds the queues that are missing.
//! Claims, deliveries and failures are those of a queue, as of a user's own endpoint, so one busy or failing user
//! delays no other. A change of the endpoint raises its fence, and [`Endpoints::align_queues`] makes the queues equal
//! to it again.

use bellbird_domain::{EndpointId, UserId};
use jiff::Timestamp;

use crate::Endpoints;
use crate::db::{Row, params, statements};
use crate::error::Result;
use crate::locks::lock_user_if_exists;
use crate::webhooks::endpoints::{delete_deliveries, fail_unfinished_deliveries};

/// Queues in one read.
const BATCH_SIZE: i64 = 500;

statements! {
    LIST_UNALIGNED = "SELECT l.user_id, l.id FROM webhook_endpoints l LEFT JOIN webhook_endpoints p
            ON p.user_id = '00000000-0000-0000-0000-000000000000' AND p.id = l.id
        WHERE l.queue_fence IS NOT NULL AND (p.fence IS NULL OR p.fence <> l.queue_fence) LIMIT $1";

    /// A queue that was disabled because it failed is enabled again. The claim of one that is disabled loses its lease.
    ALIGN = "UPDATE webhook_endpoints SET url = p.url, event_types = p.event_types, status = p.status,
            disabled_reason = p.disabled_reason, queue_fence = p.fence, failing_since = NULL, unhealthy_since = NULL,
            is_failing = 0,
            lease_until = CASE WHEN p.status = 'disabled' THEN NULL ELSE webhook_endpoints.lease_until END,
            due_at = CASE WHEN p.status = 'disabled' THEN NULL ELSE webhook_endpoints.due_at END,
            fence = CASE WHEN p.status = 'disabled' THEN webhook_endpoints.fence + 1 ELSE webhook_endpoints.fence END
        FROM webhook_endpoints p WHERE webhook_endpoints.user_id = $1 AND webhook_endpoints.id = $2
            AND p.user_id = '00000000-0000-0000-0000-000000000000' AND p.id = $2
        RETURNING CAST(CASE WHEN webhook_endpoints.status = 'disabled' THEN 1 ELSE 0 END AS BIGINT)";

    DELETE_ORPHAN = "DELETE FROM webhook_endpoints WHERE user_id = $1 AND id = $2 AND NOT EXISTS (
            SELECT p.id FROM webhook_endpoints p
            WHERE p.user_id = '00000000-0000-0000-0000-000000000000' AND p.id = $2)";

    DELETE = "DELETE FROM webhook_endpoints WHERE user_id = $1 AND id = $2 AND queue_fence IS NOT NULL";

    LIST_USERS = "SELECT user_id FROM webhook_endpoints WHERE id = $1 AND user_id > $2 ORDER BY user_id LIMIT $3";
}

impl Endpoints<'_> {
    /// Makes queues equal to their endpoints, and deletes those of removed ones, each in a transaction. Returns how
    /// many deliveries have failed because their endpoint is disabled.
    ///
    /// Call it after a change. The hourly cleanup does too, so a process that is killed in between loses nothing.
    pub async fn align_queues(self, now: Timestamp) -> Result<u64> {
        let mut failed = 0;
        loop {
            let ids = |row: &Row<'_>| Ok((row.id(0)?, row.id(1)?));
            let queues: Vec<(UserId, EndpointId)> = self.0.db.all(LIST_UNALIGNED, params![BATCH_SIZE], ids).await?;
            if queues.is_empty() {
                return Ok(failed);
            }
            for (user, id) in queues {
                failed += self.align_queue(user, id, now).await?;
            }
        }
    }

    async fn align_queue(self, user: UserId, id: EndpointId, now: Timestamp) -> Result<u64> {
        let mut tx = self.0.db.begin().await?;
        let mut failed = 0;
        if !lock_user_if_exists(&mut tx, user).await? {
            tx.run(DELETE, params![user, id]).await?;
            delete_deliveries(&mut tx, user, id).await?;
        } else {
            match tx.one(ALIGN, params![user, id], |row| row.int(0)).await? {
                Some(0) => {}
                Some(_) => failed = fail_unfinished_deliveries(&mut tx, user, id, now).await?,
                None => {
                    if tx.run(DELETE_ORPHAN, params![user, id]).await? > 0 {
                        delete_deliveries(&mut tx, user, id).await?;
                    }
                }
            }
        }
        tx.commit().await?;
        Ok(failed)
    }

    /// The users with a queue at an endpoint of the installation, after `after`, in the order of their ids.
    pub async fn list_queue_users(self, id: EndpointId, after: UserId, limit: u32) -> Result<Vec<UserId>> {
        self.0.db.all(LIST_USERS, params![id, after, i64::from(limit)], |row| row.id(0)).await
    }
}
