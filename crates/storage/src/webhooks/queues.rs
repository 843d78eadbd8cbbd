//! Queues whose endpoint or user was removed.
//!
//! An event outlives its user until it is delivered, so a queue at an endpoint of the installation
//! does, and has the reference that the user had. It ends with the last event that is not
//! delivered: one that failed can be sent again until it is as old as the retention of events
//! allows.

use bellbird_domain::{EndpointId, UserId};

use crate::Endpoints;
use crate::db::{Tx, params, scalar, statements};
use crate::error::Result;
use crate::webhooks::endpoints::{delete_queue, lock_queues};

/// Queues in one read.
const BATCH_SIZE: u32 = 500;

statements! {
    /// The next endpoint of the installation that has or had queues.
    NEXT_ENDPOINT = "SELECT endpoint_id FROM webhook_queues
        WHERE owner_id = '00000000-0000-0000-0000-000000000000' AND endpoint_id > $1 ORDER BY endpoint_id LIMIT 1";

    EXISTS = "SELECT 1 FROM webhook_endpoints WHERE id = $1";

    LIST_USERS = "SELECT user_id FROM webhook_queues
        WHERE owner_id = '00000000-0000-0000-0000-000000000000' AND endpoint_id = $1 AND user_id > $2
        ORDER BY user_id LIMIT $3";

    SET_REMOVED = "UPDATE webhook_queues SET user_removed = 1, user_reference = $2 WHERE user_id = $1";

    LIST_OF_REMOVED = "SELECT DISTINCT user_id FROM webhook_queues WHERE user_removed = 1 AND user_id > $1
        ORDER BY user_id LIMIT $2";

    /// The queues of a removed user without an event that can still be delivered.
    LIST_ENDED = "SELECT q.endpoint_id FROM webhook_queues q
        WHERE q.user_id = $1 AND q.user_removed = 1 AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d
            WHERE d.user_id = $1 AND d.endpoint_id = q.endpoint_id AND d.state <> 'delivered')";

    DELETE_EVENTS = "DELETE FROM webhook_events WHERE user_id = $1 AND NOT EXISTS (SELECT 1
        FROM webhook_queues q JOIN webhook_deliveries d ON d.user_id = q.user_id AND d.endpoint_id = q.endpoint_id
        WHERE q.user_id = $1 AND d.event_id = webhook_events.id)";
}

impl Endpoints<'_> {
    /// Deletes the queues of removed endpoints, and those of removed users that have ended.
    pub async fn delete_ended_queues(self) -> Result<()> {
        let mut last = EndpointId::from(uuid::Uuid::nil());
        while let Some(endpoint) = self.db.value(NEXT_ENDPOINT, params![last]).await? {
            last = endpoint;
            if !self.db.exists(EXISTS, params![endpoint]).await? {
                self.delete_queues_of(endpoint).await?;
            }
        }
        let mut last = UserId::INSTALLATION;
        loop {
            let users: Vec<UserId> = self
                .db
                .all(LIST_OF_REMOVED, params![last, BATCH_SIZE], scalar)
                .await?;
            let Some(user) = users.last() else {
                return Ok(());
            };
            last = *user;
            for user in users {
                let mut tx = self.db.begin().await?;
                lock_queues(&mut tx, user).await?;
                delete_ended_of(&mut tx, user).await?;
                tx.commit().await?;
            }
        }
    }

    async fn delete_queues_of(self, endpoint: EndpointId) -> Result<()> {
        let mut users = vec![UserId::INSTALLATION];
        while let Some(last) = users.last().copied() {
            for user in users {
                let mut tx = self.db.begin().await?;
                delete_queue(&mut tx, (user, endpoint)).await?;
                tx.commit().await?;
            }
            let values = params![endpoint, last, BATCH_SIZE];
            users = self.db.all(LIST_USERS, values, scalar).await?;
        }
        Ok(())
    }
}

/// Makes the queues of a user outlive them who have events that are not delivered yet, and deletes
/// the others with all other events. The caller holds the locks on the user's row and queues.
pub(crate) async fn outlive(tx: &mut Tx, user: UserId, reference: Option<&str>) -> Result<()> {
    tx.run(SET_REMOVED, params![user, reference]).await?;
    delete_ended_of(tx, user).await
}

async fn delete_ended_of(tx: &mut Tx, user: UserId) -> Result<()> {
    for endpoint in tx.all(LIST_ENDED, params![user], scalar).await? {
        delete_queue(tx, (user, endpoint)).await?;
    }
    tx.execute(DELETE_EVENTS, params![user]).await
}
