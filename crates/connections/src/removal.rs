//! Removes a connection: hides it at once, deletes its webhook events, withdraws its consent at the
//! provider, then deletes its data.
//!
//! A removal is a job, which an instance or the command line claims with a lease. It is retried
//! until the consent is withdrawn, and then deletes the connection. The operator can also remove
//! the connection locally.
//!
//! A process may be killed after any step. So a consent may be withdrawn twice, which every
//! provider accepts.

use std::time::Duration;

use bellbird_domain::{ConnectionId, ConnectionStatus, UserId};
use bellbird_providers::{Cause, Error};
use bellbird_storage::{ClaimedJob, JobKey, StorageError, job_kinds};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::ConnectionsError;
use crate::jobs::{FailedRun, JobKind, claim_or_wait, require_lease};
use crate::state::part;

/// For the provider calls of one attempt.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(30);
/// Longer than an attempt, with time for a slow database before and after it.
const LEASE: Duration = Duration::from_secs(120);

/// Webhook events deleted in one transaction.
const EVENTS_BATCH: u32 = 100;

pub(crate) static KIND: JobKind = JobKind {
    has_connection: true,
    ..JobKind::new(job_kinds::REMOVAL, LEASE, |state, claim| {
        Box::pin(Removals(state).attempt_removal(claim, ConsentAction::Withdraw))
    })
};

/// The result of [`Removals::remove`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    Done,
    /// The connection is hidden, but its consent is not withdrawn yet.
    Waiting {
        /// Why not, for the operator.
        reason: String,
        /// Time of the next attempt. `None` while another process holds the lease; the job runs
        /// again when it expires.
        next_attempt_at: Option<Timestamp>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConsentAction {
    Withdraw,
    Keep,
}

part! {
    /// Removals of connections.
    Removals
}

impl Removals<'_> {
    /// Removes a connection: hides it, and makes the first attempt to withdraw its consent and
    /// delete it.
    ///
    /// If the connection is already hidden, makes an attempt now. If another process is making one,
    /// waits for that.
    pub async fn remove(self, id: ConnectionId) -> Result<Removal, ConnectionsError> {
        self.remove_with(id, ConsentAction::Withdraw).await
    }

    /// Deletes a connection without a call to its provider. The consent stays there until the user
    /// withdraws it.
    ///
    /// For an operator who knows that the provider can never be called again.
    pub async fn remove_locally(self, id: ConnectionId) -> Result<Removal, ConnectionsError> {
        self.remove_with(id, ConsentAction::Keep).await
    }

    async fn remove_with(
        self,
        id: ConnectionId,
        consent: ConsentAction,
    ) -> Result<Removal, ConnectionsError> {
        let connection = self
            .0
            .storage
            .connections()
            .find_any(id)
            .await?
            .ok_or(ConnectionsError::NotFound)?;
        let user = connection.user_id;
        let (now, lease) = self.0.lease(LEASE);
        let mut claim = match connection.status {
            ConnectionStatus::Deleting => None,
            _ => {
                self.0
                    .storage
                    .removals()
                    .begin(user, id, now, lease)
                    .await?
            }
        };
        let deadline = Instant::now() + ATTEMPT_DEADLINE;
        loop {
            let next = match claim.take() {
                Some(claim) => Some(Some(claim)),
                None => claim_or_wait(deadline, || self.claim_removal(user, id)).await?,
            };
            let claim = match next {
                Some(Some(claim)) => claim,
                Some(None) => return Ok(Removal::Done),
                None => {
                    let reason = "another process is removing it, or was interrupted".to_owned();
                    return Ok(Removal::Waiting {
                        reason,
                        next_attempt_at: None,
                    });
                }
            };
            match self
                .0
                .run_claimed(&KIND, &claim, self.attempt_removal(&claim, consent))
                .await
            {
                Ok(()) => return Ok(Removal::Done),
                // Another task has claimed the removal since.
                Err(FailedRun {
                    error: ConnectionsError::Busy,
                    ..
                }) => {}
                Err(FailedRun {
                    error,
                    retry_at: None,
                }) => return Err(error),
                Err(FailedRun { error, retry_at }) => {
                    return Ok(Removal::Waiting {
                        reason: error.last_error(),
                        next_attempt_at: retry_at,
                    });
                }
            }
        }
    }

    /// Starts a removal that was requested, if this process is a service.
    pub fn wake(self, provider: &str) {
        self.0.wake(&KIND, provider);
    }

    /// Hides a connection and leaves the rest of its removal to a job. `cause` is one word for the
    /// audit trail.
    pub(crate) async fn remove_in_background(
        self,
        cause: &str,
        user: UserId,
        id: ConnectionId,
        provider: &str,
    ) -> Result<(), ConnectionsError> {
        let now = self.0.clock.now();
        self.0
            .storage
            .removals()
            .begin_because(cause, user, id, now, None)
            .await?;
        self.0.wake(&KIND, provider);
        Ok(())
    }

    /// Claims the removal. `Some(None)` if the connection is deleted already.
    async fn claim_removal(
        self,
        user: UserId,
        id: ConnectionId,
    ) -> Result<Option<Option<ClaimedJob>>, ConnectionsError> {
        let key = JobKey::new(KIND.name, user, id);
        if let Some(claim) = self.0.claim(&KIND, &key).await? {
            return Ok(Some(Some(claim)));
        }
        Ok(self
            .0
            .storage
            .connections()
            .find_any(id)
            .await?
            .is_none()
            .then_some(None))
    }

    /// Lists the connections that any process has hidden or deleted since then, with their users.
    pub async fn list_since(
        self,
        since: Timestamp,
    ) -> Result<Vec<(UserId, ConnectionId)>, StorageError> {
        self.0.storage.connections().list_ended(since).await
    }

    async fn attempt_removal(
        self,
        claim: &ClaimedJob,
        consent: ConsentAction,
    ) -> Result<(), ConnectionsError> {
        self.delete_webhook_events(claim).await?;
        let cause = match consent {
            ConsentAction::Withdraw => {
                self.withdraw(claim).await?;
                tracing::info!("consent withdrawn");
                "deleted"
            }
            ConsentAction::Keep => "removed_locally",
        };
        require_lease(
            self.0
                .storage
                .removals()
                .finish(claim, cause, self.0.clock.now())
                .await?,
        )?;
        tracing::info!(cause, "connection removed");
        // Its user may be removed with it.
        self.0.lanes.wake(job_kinds::USER_REMOVAL, "");
        Ok(())
    }

    /// Deletes the webhook events in batches, before the consent, whose withdrawal may fail for
    /// days.
    async fn delete_webhook_events(self, claim: &ClaimedJob) -> Result<(), ConnectionsError> {
        loop {
            let deleted = self
                .0
                .storage
                .removals()
                .delete_webhook_events(claim, EVENTS_BATCH)
                .await?;
            match deleted {
                None => return Err(ConnectionsError::Busy),
                Some(deleted) if deleted < EVENTS_BATCH => return Ok(()),
                Some(_) => {}
            }
        }
    }

    /// Withdraws the consent. Idempotent: succeeds if the consent is already gone.
    async fn withdraw(self, claim: &ClaimedJob) -> Result<(), ConnectionsError> {
        let Some(credentials) = self
            .0
            .storage
            .secrets()
            .find_credentials(claim.user_id(), claim.subject_id())
            .await?
        else {
            return Ok(());
        };
        let context = self
            .0
            .call_context_within(ATTEMPT_DEADLINE, Cause::RequestedJob(claim.user_id()));
        match self
            .0
            .provider(&claim.provider)?
            .withdraw(&context, &credentials)
            .await
        {
            Ok(()) | Err(Error::ReconnectNeeded(ConnectionStatus::Revoked)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
