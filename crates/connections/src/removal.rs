//! Removes a connection: hides it at once, withdraws its consent at the provider, then deletes its data.
//!
//! A removal is a job, which an instance or the command line claims with a lease. It is retried until the consent is
//! withdrawn, and then deletes the connection. The operator can also remove the connection locally.
//!
//! A process may be killed after any step. So a consent may be withdrawn twice, which every provider accepts.

use std::time::Duration;

use bellbird_domain::{ConnectionId, ConnectionStatus, UserId};
use bellbird_providers::{CallContext, Error};
use bellbird_storage::{ClaimedRemoval, StorageError};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::schedule::{self, Failure};
use crate::{Connections, ConnectionsError, run_claims};

/// For the provider calls of one attempt.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(30);
/// Longer than an attempt, with time for a slow database before and after it.
const LEASE: Duration = Duration::from_secs(120);
/// Removals that one instance runs at the same time.
const CONCURRENCY_MAX: u32 = 8;
/// How often a command tries to claim a removal that another process is working on.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The result of [`Connections::remove`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    Done,
    /// The connection is hidden, but its consent is not withdrawn yet.
    Waiting {
        /// Why not, for the operator.
        reason: String,
        /// Time of the next attempt. `None` while another process holds the lease; the job runs again when it expires.
        next_attempt_at: Option<Timestamp>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConsentAction {
    Withdraw,
    Keep,
}

/// Why a consent could not be withdrawn.
#[derive(Debug, thiserror::Error)]
enum WithdrawError {
    #[error("{0}")]
    Provider(Error),
    #[error(transparent)]
    NotConfigured(ConnectionsError),
    #[error("its credentials cannot be opened: {0}")]
    Sealed(bellbird_storage::SealError),
}

impl WithdrawError {
    fn failure(&self) -> Failure {
        match self {
            Self::Provider(error) if error.is_transient() => Failure::Transient(error.retry_after()),
            _ => Failure::Permanent,
        }
    }
}

/// The result of one attempt.
enum Attempt {
    Done,
    Postponed {
        reason: String,
        until: Timestamp,
    },
    /// Another process has claimed the removal since.
    LeaseLost,
}

impl Connections {
    /// Removes a connection: hides it, and makes the first attempt to withdraw its consent and delete it.
    ///
    /// If the connection is already hidden, makes an attempt now. If another process is making one, waits for that.
    pub async fn remove(&self, id: ConnectionId) -> Result<Removal, ConnectionsError> {
        self.remove_with(id, ConsentAction::Withdraw).await
    }

    /// Deletes a connection without a call to its provider. The consent stays there until the user withdraws it.
    ///
    /// For an operator who knows that the provider can never be called again.
    pub async fn remove_locally(&self, id: ConnectionId) -> Result<Removal, ConnectionsError> {
        self.remove_with(id, ConsentAction::Keep).await
    }

    async fn remove_with(&self, id: ConnectionId, consent: ConsentAction) -> Result<Removal, ConnectionsError> {
        let connection = self.storage.find_connection_any(id).await?.ok_or(ConnectionsError::NotFound)?;
        let user = connection.user_id;
        let deadline = Instant::now() + ATTEMPT_DEADLINE;
        let (now, lease) = self.lease(LEASE);
        let mut claim = match connection.status {
            ConnectionStatus::Deleting => None,
            _ => self.storage.begin_removal(user, id, now, lease).await?,
        };
        loop {
            if claim.is_none() {
                let (now, lease) = self.lease(LEASE);
                claim = self.storage.claim_removal(user, id, now, lease).await?;
            }
            match claim.take() {
                Some(claim) => match self.attempt_removal(&claim, consent).await? {
                    Attempt::Done => return Ok(Removal::Done),
                    Attempt::Postponed { reason, until } => {
                        return Ok(Removal::Waiting { reason, next_attempt_at: Some(until) });
                    }
                    Attempt::LeaseLost => {}
                },
                None if self.storage.find_connection_any(id).await?.is_none() => return Ok(Removal::Done),
                None if Instant::now() >= deadline => {
                    let reason = "another process is removing it, or was interrupted".to_owned();
                    return Ok(Removal::Waiting { reason, next_attempt_at: None });
                }
                None => tokio::time::sleep(LEASE_POLL_INTERVAL).await,
            }
        }
    }

    /// Makes an attempt at every due removal, a few at a time, and returns when none is due.
    ///
    /// Every instance calls this periodically. On a database error, the claimed jobs run again when their leases
    /// expire.
    pub async fn run_due_removals(&self) -> Result<(), ConnectionsError> {
        loop {
            let (now, lease) = self.lease(LEASE);
            let claims = self.storage.claim_due_removals(now, lease, CONCURRENCY_MAX).await?;
            if claims.is_empty() {
                return Ok(());
            }
            run_claims(claims, |claim| {
                let connections = self.clone();
                async move { connections.attempt_removal(&claim, ConsentAction::Withdraw).await.map(|_| ()) }
            })
            .await?;
        }
    }

    /// Counts the hidden connections of all users that are not removed yet.
    pub async fn count_pending_removals(&self) -> Result<u64, ConnectionsError> {
        Ok(self.storage.count_removals().await?)
    }

    /// Lists the connections that any process has hidden or deleted since then, with their users.
    pub async fn list_removed_since(&self, since: Timestamp) -> Result<Vec<(UserId, ConnectionId)>, ConnectionsError> {
        Ok(self.storage.list_ended_connections(since).await?)
    }

    async fn attempt_removal(
        &self,
        claim: &ClaimedRemoval,
        consent: ConsentAction,
    ) -> Result<Attempt, ConnectionsError> {
        let id = claim.connection_id;
        let (error, cause) = match consent {
            ConsentAction::Withdraw => (self.withdraw(claim).await?, "deleted"),
            ConsentAction::Keep => (None, "removed_locally"),
        };
        let now = self.clock.now();
        let Some(error) = error else {
            let finished = self.storage.finish_removal(claim, cause, now).await?;
            if finished {
                tracing::info!(connection_id = %id, cause, "connection removed");
            }
            return Ok(if finished { Attempt::Done } else { Attempt::LeaseLost });
        };
        let reason = error.to_string();
        let failures = claim.attempts.saturating_add(1);
        // The random bits of the id, multiplied for another jitter with each attempt.
        let jitter = (id.uuid().as_u128() as u64).wrapping_mul(u64::from(failures));
        let until = now.saturating_add(schedule::backoff(failures, error.failure(), jitter)).unwrap_or(now);
        if !self.storage.postpone_removal(claim, until, &reason).await? {
            return Ok(Attempt::LeaseLost);
        }
        tracing::warn!(connection_id = %id, failures, retry_at = %until, reason, "could not withdraw consent");
        Ok(Attempt::Postponed { reason, until })
    }

    /// Withdraws the consent, or returns why that failed. Idempotent: succeeds if the consent is already gone.
    async fn withdraw(&self, claim: &ClaimedRemoval) -> Result<Option<WithdrawError>, ConnectionsError> {
        let credentials = match self.storage.find_credentials(claim.user_id, claim.connection_id).await {
            Ok(Some(credentials)) => credentials,
            Ok(None) => return Ok(None),
            Err(StorageError::Sealed(error)) => return Ok(Some(WithdrawError::Sealed(error))),
            Err(error) => return Err(error.into()),
        };
        let provider = match self.provider(&claim.provider) {
            Ok(provider) => provider,
            Err(error) => return Ok(Some(WithdrawError::NotConfigured(error))),
        };
        let context = CallContext::new(Instant::now() + ATTEMPT_DEADLINE, self.clock.now());
        Ok(match provider.withdraw(&context, &credentials).await {
            Ok(()) | Err(Error::ReconnectNeeded(ConnectionStatus::Revoked)) => None,
            Err(error) => Some(WithdrawError::Provider(error)),
        })
    }
}
